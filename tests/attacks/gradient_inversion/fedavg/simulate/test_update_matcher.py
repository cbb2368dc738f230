"""The matcher's loss is the objective of the averaged simulated update, plus priors, and its derivative autograd's."""

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.chain_step import ChainStep
from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import epoch_prior
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import schedule_for
from lightleak.attacks.gradient_inversion.fedavg.simulate.simulation import LocalSGD, SimulatedTraining
from lightleak.attacks.gradient_inversion.fedavg.simulate.update_matcher import UpdateMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES, layered_error
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.optimize.whitening import Whitening, maps_of

UPDATES, RESTARTS, CLIENTS, ROWS, EPOCHS, WIDTH = 2, 3, 2, 4, 2, 5
SHAPES = [(6, WIDTH), (6,), (3, 6), (3,)]


@pytest.mark.parametrize("weight", [1.0, 0.25])
@pytest.mark.parametrize("name", [*OBJECTIVES, "layered_error"])
def test_value_and_derivative_equal_the_definition(name: str, weight: float) -> None:
    draws = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.float64)

    schedule = schedule_for("full", ROWS, EPOCHS, 2, 0.2)
    labels = torch.randint(3, (UPDATES, CLIENTS, EPOCHS, ROWS), generator=draws)
    weights, deltas = [draw(UPDATES, *s) for s in SHAPES], [0.1 * draw(UPDATES, *s) for s in SHAPES]

    def training(restarts: int) -> SimulatedTraining:
        of_all = labels.unsqueeze(1).expand(-1, restarts, -1, -1, -1).flatten(0, 2)
        return SimulatedTraining(ChainStep([None, None]), schedule, LocalSGD(), of_all)

    objective = layered_error if name == "layered_error" else OBJECTIVES[name]
    scale = 1 / schedule.total_rate
    matcher = UpdateMatcher(
        training,
        weights,
        deltas,
        scale,
        CLIENTS,
        EPOCHS,
        objective,
        weight,
        priors=[lambda x: 0.7 * epoch_prior(x).mean(-1)],
    )
    x = draw(UPDATES, RESTARTS, CLIENTS * EPOCHS * ROWS, WIDTH)
    value, derivative = matcher.value_and_grad(x)

    leaf = x.clone().requires_grad_()
    variables = leaf.view(UPDATES, RESTARTS, CLIENTS, EPOCHS, ROWS, WIDTH)
    expected = []
    for u in range(UPDATES):
        for r in range(RESTARTS):
            moved = [torch.zeros_like(w[u]) for w in weights]
            for c in range(CLIENTS):
                w1, b1, w2, b2 = (w[u] for w in weights)
                for e in range(EPOCHS):
                    for part in schedule.slices():
                        w1, b1, w2, b2 = (v if v.requires_grad else v.requires_grad_() for v in (w1, b1, w2, b2))
                        hidden = (variables[u, r, c, e, part] @ w1.T + b1).relu()
                        loss = torch.nn.functional.cross_entropy(hidden @ w2.T + b2, labels[u, c, e, part])
                        g = torch.autograd.grad(loss, (w1, b1, w2, b2), create_graph=True)
                        w1, b1, w2, b2 = (v - 0.2 * s for v, s in zip((w1, b1, w2, b2), g, strict=True))
                after = (w1, b1, w2, b2)
                moved = [m + (w[u] - a) / CLIENTS * scale for m, w, a in zip(moved, weights, after, strict=True)]
            target = [-d[u] * scale for d in deltas]
            if name == "cosine":
                g, t = (torch.cat([v.flatten() for v in values]) for values in (moved, target))
                distance = 1 - g @ t / (g.norm() * t.norm())
            elif name == "relative_error":
                g, t = (torch.cat([v.flatten() for v in values]) for values in (moved, target))
                distance = (g - t).square().sum() / t.square().sum()
            elif name == "squared_error":
                distance = sum((g - t).square().mean() for g, t in zip(moved, target, strict=True))
            else:
                distance = sum(
                    (g - t).square().sum() * torch.e ** -(i // 2)
                    for i, (g, t) in enumerate(zip(moved, target, strict=True))
                )
            expected.append(weight * distance + 0.7 * epoch_prior(variables[u, r]).mean(-1))
    reference = torch.stack(expected).view(UPDATES, RESTARTS)
    torch.testing.assert_close(value, reference.detach(), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(derivative, torch.autograd.grad(reference.sum(), leaf)[0], rtol=1e-7, atol=1e-10)


def test_a_whitened_update_is_compared_layer_by_layer() -> None:
    draws = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.float64)

    schedule = schedule_for("shared", ROWS, EPOCHS, 2, 0.2)
    labels = torch.randint(3, (UPDATES, 1, EPOCHS, ROWS), generator=draws)
    weights, deltas = [draw(UPDATES, *s) for s in SHAPES], [0.1 * draw(UPDATES, *s) for s in SHAPES]
    scale = 1 / schedule.total_rate

    def training(restarts: int) -> SimulatedTraining:
        of_all = labels.unsqueeze(1).expand(-1, restarts, -1, -1, -1).flatten(0, 2)
        straight = StraightThrough(torch.ones(len(of_all), 1, dtype=torch.float64), 0.5, 0.1)
        return SimulatedTraining(ChainStep([None, None], straight), schedule, LocalSGD(), of_all)

    layers = [(6, WIDTH + 1), (3, 7)]
    moments = [[maps_of(draw(40, o), draw(40, i), 1e-2) for o, i in layers] for _ in range(UPDATES)]
    targets = [
        torch.cat([-scale * w, -scale * b.unsqueeze(-1)], -1) for w, b in zip(deltas[0::2], deltas[1::2], strict=True)
    ]
    whitening = Whitening.of(moments, targets)
    given = training, weights, deltas, scale, 1, 1, OBJECTIVES["cosine"], 0.5
    matcher = UpdateMatcher(*given, whitening=whitening).at(0.6)
    x = draw(UPDATES, RESTARTS, ROWS, WIDTH)
    value, derivative = matcher.value_and_grad(x)

    simulation = training(RESTARTS).at(0.6)
    start = [w.repeat_interleave(RESTARTS, 0) for w in weights]
    end, back = simulation.run(start, x.flatten(0, 1).unsqueeze(1))
    leaves = [e.clone().requires_grad_() for e in end]
    moved = [((w - e) * scale).unflatten(0, (UPDATES, RESTARTS)) for w, e in zip(start, leaves, strict=True)]
    expected = []
    for u in range(UPDATES):
        for r in range(RESTARTS):
            found = [torch.cat([moved[i][u, r], moved[i + 1][u, r].unsqueeze(-1)], -1) for i in (0, 2)]
            parts = [
                ((k_e @ (g - t[u]) @ k_h * (g - t[u])).sum(), (k_e @ t[u] @ k_h * t[u]).sum())
                for g, t, (k_e, k_h) in zip(found, targets, moments[u], strict=True)
            ]
            expected.append(0.5 * sum(p[0] for p in parts) / sum(p[1] for p in parts))
    reference = torch.stack(expected)
    torch.testing.assert_close(value.flatten(), reference.detach())
    by_weights = torch.autograd.grad(reference.sum(), leaves)
    torch.testing.assert_close(derivative, back(list(by_weights)).view_as(x))
    assert not torch.equal(matcher.at(0.1).value_and_grad(x)[1], derivative)
