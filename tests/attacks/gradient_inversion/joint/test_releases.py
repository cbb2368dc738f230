"""Several noised releases of the same rows: one objective, which under unchanged weights is that of their mean."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion, pose, together
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.continuous import matcher_of, stage_config, widths_of
from lightleak.attacks.gradient_inversion.joint.coordinate_descent import add_term, descend, energies
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.joint.pair_descent import (
    Candidates,
    Weighted,
    alike_pairs,
    inner_products,
    pair_energies,
)
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, observed_gradient
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.metrics.certificate import wrong_certificates
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

SIGMA = 0.01
QUICK = JointConfig(noised_restarts=1, noised_steps=80)


def released(batch: Any, count: int, rate: float, sigma: float = SIGMA) -> ClientUpdate:
    """Noised gradients of a batch in several rounds; the server takes a step with each."""
    spec, draws, sent = NetworkSpec.from_dict(batch.update.network), generator(0, "releases"), []
    network = build_network(spec, seed=0)
    network.load_state_dict(dict(batch.update.parameters))
    for _ in range(count):
        update, _ = client_update(
            network, spec, batch.encoder, batch.truth.inputs, batch.truth.labels, share_labels=False
        )
        noised = {name: g + sigma * torch.randn(g.shape, generator=draws) for name, g in update.update.items()}
        sent.append(replace(update, update=noised, state="noised", marginals=batch.update.marginals))
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.sub_(noised[name], alpha=rate)
    return ClientUpdate.of_releases(sent)


def posed_together(batch: Any, update: ClientUpdate, noises: tuple[float, ...]) -> JointProblem:
    observed = [observed_gradient(release) for release in update.releases]
    problem = pose(update, batch.encoder, observed[0], SIGMA, "auto")
    return together(problem, [ReLUChain.of(release) for release in update.releases], observed, noises)


def posed_on_mean(batch: Any, update: ClientUpdate) -> JointProblem:
    """The problem of the releases' mean, whose noise is smaller."""
    observed = [observed_gradient(release) for release in update.releases]
    mean: Gradient = tuple(torch.stack(layers).mean(0) for layers in zip(*observed, strict=True))
    return pose(update, batch.encoder, mean, SIGMA / len(observed) ** 0.5, "auto")


def drawn(problem: JointProblem, seed: int, n: int = 4) -> JointRows:
    labels = torch.randint(0, 2, (n,), generator=generator(seed, "labels"))
    return JointRows(*problem.space.draw(n, generator(seed)), labels)


def test_under_unchanged_weights_the_objective_is_that_of_the_mean(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(20, 20))
    update = released(batch, 3, rate=0.0)
    problem, of_mean = posed_together(batch, update, (SIGMA,) * 3), posed_on_mean(batch, update)
    rows = [drawn(problem, seed) for seed in range(4)]
    found, expected = ([p.objective(each) - p.objective(rows[0]) for each in rows] for p in (problem, of_mean))
    torch.testing.assert_close(torch.tensor(found), 3 * torch.tensor(expected))


def test_the_engine_sees_the_mean_of_releases_under_unchanged_weights(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(20, 20))
    update, labels = released(batch, 3, rate=0.0), batch.truth.labels
    x = batch.truth.inputs.double().roll(1, 0)[None, None]
    slopes: list[Tensor] = []
    for problem in (posed_together(batch, update, (SIGMA,) * 3), posed_on_mean(batch, update)):
        settings = stage_config(precision="float64", mask_width=0.4, mask_width_end=0.1)
        matcher = matcher_of(problem, labels, settings, torch.float64, widths_of(problem)).at(0.5)  # type: ignore[attr-defined]
        slopes.append(matcher.value_and_grad(x)[1] * problem.target_value)
    torch.testing.assert_close(slopes[0], 3 * slopes[1])


@pytest.mark.parametrize("noises", [(SIGMA, SIGMA, SIGMA), (SIGMA, 2 * SIGMA, 0.5 * SIGMA)])
def test_moves_under_moving_weights_are_differences_of_the_objective(
    make_batch: Any, changed: Any, noises: tuple[float, ...]
) -> None:
    batch = make_batch(n=4, hidden=(20, 20))
    problem = posed_together(batch, released(batch, 3, rate=0.5), noises)
    rows, others = drawn(problem, 0), drawn(problem, 1)
    residual = problem.residual(rows)

    terms, mine = problem.terms(others.codes, others.numbers), problem.terms(rows.codes[:1], rows.numbers[:1])
    mine_weighted = mine.of_labels(rows.labels[:1], problem.n_rows)
    without = add_term(residual, mine, mine_weighted, problem.kernels)
    found = energies(terms, terms.coefficients(problem.n_rows), without, problem.kernels)
    found = found[torch.arange(4), others.labels]
    found = found + problem.prior_weight * problem.penalties(others.codes, others.numbers)
    expected = torch.tensor([problem.objective(changed(rows, 0, others, i)) for i in range(4)], dtype=torch.float64)
    torch.testing.assert_close(found - found[0], expected - expected[0])

    steps = 0.1 * torch.randn(len(problem.space.free), 1, generator=generator(0), dtype=torch.float64)
    sides = [
        Candidates.of(problem, codes, numbers, int(label), steps, problem.kernels, torch.float64)
        for codes, numbers, label in zip(rows.codes[:2], rows.numbers[:2], rows.labels[:2], strict=True)
    ]
    inner = [inner_products(side.weighted, residual) for side in sides]
    pairs = pair_energies(*sides, *inner, problem.kernels)
    for i, j in ((0, 1), (2, 0), (3, 5), (len(pairs) - 1, 4)):
        moved = rows
        for at, index in enumerate((i, j)):
            codes, numbers, label = sides[at].row(index)
            new = JointRows(codes.unsqueeze(0), numbers.unsqueeze(0), torch.tensor([label]))
            moved = changed(moved, at, new, 0)
        wanted = problem.objective(moved) - problem.objective(rows)
        torch.testing.assert_close(float(pairs[i, j] - pairs[0, 0]), wanted, rtol=1e-6, atol=1e-10)


def test_a_release_counts_by_its_noise(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(20, 20))
    update = released(batch, 2, rate=0.5)
    rows = drawn(posed_on_mean(batch, update), 0)

    def squares(noises: tuple[float, float]) -> Tensor:
        return torch.stack(
            [layer.square().sum((1, 2)) for layer in posed_together(batch, update, noises).residual(rows)]
        )

    even, uneven = squares((SIGMA, SIGMA)), squares((SIGMA, 2 * SIGMA))
    torch.testing.assert_close(uneven[:, 0], even[:, 0])
    torch.testing.assert_close(uneven[:, 1], even[:, 1] / 4)


def test_descents_lower_the_objective_and_labels_are_counted_over_all_releases(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(20, 20))
    update = released(batch, 4, rate=0.5)
    problem = posed_together(batch, update, (SIGMA,) * 4)
    rows = drawn(problem, 0)
    assert problem.objective(descend(problem, rows, 3, generator(0))) < problem.objective(rows)
    own = Weighted.of(problem, rows.codes, rows.numbers, rows.labels, torch.float64)
    assert all(i != j for i, j in alike_pairs(own, problem.kernels))
    labels = starting_labels(update, problem.space, generator(0))
    assert labels.bincount(minlength=2).tolist() == batch.truth.labels.bincount(minlength=2).tolist()


def test_releases_prove_rows_that_one_release_does_not(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(30, 30))
    update = released(batch, 9, rate=0.2)
    one, all_of_them = (JointInversion(QUICK).run(each, seed=0) for each in (update.releases[0], update))
    assert one.certificate is not None and all_of_them.certificate is not None
    assert one.certificate.certified < all_of_them.certificate.certified == 4
    assert wrong_certificates(all_of_them, batch.truth, batch.encoder) == (0, 0)
    codes, _ = batch.encoder.project(all_of_them.encoded.double())
    assert sorted(codes.tolist()) == sorted(batch.cells[0].tolist())


def test_only_attacks_that_combine_releases_take_them(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(20, 20))
    update = released(batch, 2, rate=0.5)
    for name, options in (("exact", {}), ("tableak", {"labels": "geng"}), ("exact_pruned", {})):
        with pytest.raises(ObservationError):
            ATTACKS.get(name)(**options).check(update)
    for name in ("exact_joint", "audit_max", "random"):
        ATTACKS.get(name)().check(update)
    with pytest.raises(ObservationError, match="behind noise"):
        ATTACKS.get("exact_joint")().check(released(batch, 2, rate=0.5, sigma=0.0))
