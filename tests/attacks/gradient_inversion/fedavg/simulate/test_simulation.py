"""The simulated training equals a plain loop of SGD, and its way back equals autograd through that loop."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from lightleak.attacks.gradient_inversion.fedavg.simulate.chain import chain_of
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_split import shared_positions
from lightleak.attacks.gradient_inversion.fedavg.simulate.local_step import LocalStep, NetworkStep, Weights
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Schedule, Simulation, schedule_for
from lightleak.attacks.gradient_inversion.fedavg.simulate.simulation import LocalSGD, SimulatedTraining
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.data.layout import EncodedLayout
from lightleak.targets.functional import functional_call
from lightleak.targets.image_cnn import ImageCNN
from lightleak.targets.mlp import MLP
from lightleak.targets.resnet import ConcatenatingResNet

CLIENTS, ROWS, EPOCHS, BATCHES, CLASSES = 3, 7, 3, 2, 3
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: MLP(EncodedLayout.of_numerical(8), CLASSES, hidden=(6, 5)),
    "linear": lambda: MLP(EncodedLayout.of_numerical(8), CLASSES, hidden=()),
    "image_cnn": lambda: ImageCNN(EncodedLayout.of_numerical(56), CLASSES, shape=(2, 4, 7), channels=(3, 4), hidden=6),
    "image_cnn of the code": lambda: ImageCNN(
        EncodedLayout.of_numerical(35), CLASSES, shape=(1, 5, 7), channels=(3, 4), hidden=6, second_kernel=3
    ),
    "resnet": lambda: ConcatenatingResNet(EncodedLayout.of_numerical(8), CLASSES),
}


def stacked(network: nn.Module) -> dict[str, Tensor]:
    """Parameters of several clients that differ."""
    draws = torch.Generator().manual_seed(3)
    return {
        name: p.detach() + 0.1 * torch.randn(CLIENTS, *p.shape, generator=draws, dtype=p.dtype)
        for name, p in network.named_parameters()
    }


def plain_loop(
    network: nn.Module,
    named: dict[str, Tensor],
    x: Tensor,
    labels: Tensor,
    schedule: Schedule,
    sgd: LocalSGD,
    positions: Tensor | None,
) -> list[Weights]:
    """PyTorch's SGD written out, client by client, on autograd's graph."""
    ends = []
    for client in range(CLIENTS):
        weights = [value[client].clone().requires_grad_() for value in named.values()]
        velocity: Weights | None = None
        for epoch in range(schedule.epochs):
            rows = x[client, epoch if schedule.copies > 1 else 0]
            rows = rows if positions is None else rows[positions[client, epoch]]
            for part in schedule.slices():
                logits = functional_call(network, dict(zip(named, weights, strict=True)), (rows[part],))
                loss = cross_entropy(logits, labels[client, epoch, part])
                gradient = torch.autograd.grad(loss, weights, create_graph=True)
                step = [g + sgd.weight_decay * w for g, w in zip(gradient, weights, strict=True)]
                if velocity is not None:
                    step = [sgd.momentum * v + g for v, g in zip(velocity, step, strict=True)]
                velocity = step if sgd.momentum else None
                weights = [w - schedule.learning_rate * s for w, s in zip(weights, step, strict=True)]
        ends.append(weights)
    return ends


def steps_for(network: nn.Module, named: dict[str, Tensor]) -> list[tuple[LocalStep, list[str]]]:
    """The general step, and the closed form where there is one."""
    chain = chain_of(network)
    general: list[tuple[LocalStep, list[str]]] = [(NetworkStep(network, tuple(named), {}), list(named))]
    return general if chain is None else [*general, (chain.step(), list(chain.names))]


@pytest.mark.parametrize("segment", [None, 1, 4])
@pytest.mark.parametrize("sgd", [LocalSGD(), LocalSGD(0.9, 0.01)], ids=["plain", "momentum and decay"])
@pytest.mark.parametrize("simulation", ["full", "shared", "epoch", "fedsgd"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_training_and_the_way_back_equal_a_plain_loop(
    name: str, simulation: Simulation, sgd: LocalSGD, segment: int | None
) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().double()
    named = stacked(network)
    schedule = schedule_for(simulation, ROWS, EPOCHS, BATCHES, 0.05)
    width = 8 if name in ("mlp", "linear", "resnet") else network.image_shape[0] * 28 if "code" not in name else 35
    x = torch.randn(CLIENTS, schedule.copies, ROWS, width, dtype=torch.float64)
    first = torch.randint(CLASSES, (CLIENTS, 1, ROWS))
    labels = torch.cat([first, *(first[..., torch.randperm(ROWS)] for _ in range(EPOCHS - 1))], 1)
    positions = shared_positions(labels) if simulation == "shared" else None

    leaf = x.clone().requires_grad_()
    ends = plain_loop(network, named, leaf, labels, schedule, sgd, positions)
    cotangents = {name: torch.randn_like(value) for name, value in named.items()}
    total = sum(
        (end * cotangents[name][client]).sum()
        for client, weights in enumerate(ends)
        for name, end in zip(named, weights, strict=True)
    )
    (expected,) = torch.autograd.grad(total, leaf)
    for step, names in steps_for(network, named):

        def shaped(values: dict[str, Tensor], names: list[str] = names, step: LocalStep = step) -> Weights:
            flat = not isinstance(step, NetworkStep)
            return [values[n].flatten(2) if flat and values[n].dim() > 3 else values[n].clone() for n in names]

        training = SimulatedTraining(step, schedule, sgd, labels, positions, segment)
        end, back = training.run(shaped(named), x)
        for n, value in zip(names, end, strict=True):
            reference = torch.stack([weights[list(named).index(n)].detach() for weights in ends])
            torch.testing.assert_close(value.flatten(), reference.flatten(), rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(back(shaped(cotangents)), expected, rtol=1e-7, atol=1e-9)


def test_every_chain_of_linear_layers_is_found_and_nothing_else() -> None:
    found = {name: chain_of(make()) for name, make in NETWORKS.items()}
    assert [name for name, chain in found.items() if chain is None] == ["resnet"]
    chain = found["mlp"]
    assert chain is not None
    assert chain.names == tuple(f"linears.{i}.{part}" for i in range(3) for part in ("weight", "bias"))
    assert chain_of(MLP(EncodedLayout.of_numerical(8), 2, activation="tanh")) is None
    assert chain_of(MLP(EncodedLayout.of_numerical(8), 2, norm="batch")) is None


class Mask(torch.autograd.Function):
    """``1[a > 0]`` whose derivative is that of a logistic."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, width: float) -> Tensor:
        ctx.save_for_backward(a)
        ctx.width = width
        return (a > 0).to(a.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (a,) = ctx.saved_tensors
        inside = torch.sigmoid(a / ctx.width)
        return grad * inside * (1 - inside) / ctx.width, None


def straight_step(weights: Weights, x: Tensor, labels: Tensor, widths: list[float]) -> Weights:
    """Gradient of a chain whose masks have a derivative, on autograd's graph."""
    hidden, masks = [x], []
    for weight, bias, width in zip(weights[0:-2:2], weights[1:-2:2], widths, strict=True):
        a = hidden[-1] @ weight.T + bias
        masks.append(Mask.apply(a, width))
        hidden.append(a.relu())
    logits = hidden[-1] @ weights[-2].T + weights[-1]
    errors = [(logits.softmax(-1) - one_hot(labels, logits.shape[-1])) / len(x)]
    for weight, mask in zip(reversed(weights[2::2]), reversed(masks), strict=True):
        errors.insert(0, (errors[0] @ weight) * mask)
    return [part for e, h in zip(errors, hidden, strict=True) for part in (e.T @ h, e.sum(0))]


@pytest.mark.parametrize("segment", [None, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("hidden", [(6,), (6, 5), (7, 6, 5)], ids=str)
def test_straight_through_masks_go_through_every_step(
    hidden: tuple[int, ...], momentum: float, segment: int | None
) -> None:
    torch.manual_seed(0)
    network = MLP(EncodedLayout.of_numerical(8), CLASSES, hidden=hidden).double()
    named, share = stacked(network), 0.3
    schedule = schedule_for("full", ROWS, EPOCHS, BATCHES, 0.05)
    x = torch.randn(CLIENTS, schedule.copies, ROWS, 8, dtype=torch.float64)
    labels = torch.randint(CLASSES, (CLIENTS, EPOCHS, ROWS))
    straight = StraightThrough(0.5 + torch.rand(CLIENTS, len(hidden), dtype=torch.float64), 0.8, 0.2)
    leaf, total = x.clone().requires_grad_(), torch.zeros((), dtype=torch.float64)
    cotangents = [torch.randn_like(value) for value in named.values()]
    for client in range(CLIENTS):
        weights = [value[client].clone().requires_grad_() for value in named.values()]
        widths = [0.8 * (0.2 / 0.8) ** share * float(d) for d in straight.deviations[client]]
        velocity: Weights | None = None
        for epoch in range(EPOCHS):
            for part in schedule.slices():
                step = straight_step(weights, leaf[client, epoch, part], labels[client, epoch, part], widths)
                if velocity is not None:
                    step = [momentum * v + g for v, g in zip(velocity, step, strict=True)]
                velocity = step if momentum else None
                weights = [w - schedule.learning_rate * g for w, g in zip(weights, step, strict=True)]
        total = total + sum((w * c[client]).sum() for w, c in zip(weights, cotangents, strict=True))
    (expected,) = torch.autograd.grad(total, leaf)
    chain = chain_of(network)
    assert chain is not None
    training = SimulatedTraining(chain.step(straight), schedule, LocalSGD(momentum), labels, None, segment).at(share)
    _, back = training.run([value.clone() for value in named.values()], x)
    torch.testing.assert_close(back([c.clone() for c in cotangents]), expected, rtol=1e-7, atol=1e-10)
    plain = SimulatedTraining(chain.step(), schedule, LocalSGD(momentum), labels, None, segment)
    _, back = plain.run([value.clone() for value in named.values()], x)
    assert not torch.allclose(back([c.clone() for c in cotangents]), expected, rtol=1e-2)
