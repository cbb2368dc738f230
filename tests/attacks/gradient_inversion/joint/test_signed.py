"""The cost of bounds on elements, moves of rows under it, and the attack on updates of which signs alone were sent."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion, pose
from lightleak.attacks.gradient_inversion.joint.capacity import believed_rows
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.decision import Cells, is_guess_better
from lightleak.attacks.gradient_inversion.joint.interval_course import IntervalsConfig, labels_by_starts, least_around
from lightleak.attacks.gradient_inversion.joint.interval_descent import descend_within, exchange
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals, objective
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.pruned import Pruned
from lightleak.attacks.gradient_inversion.joint.signed import (
    SignInversion,
    SignsConfig,
    are_signs,
    of_signs,
    with_present,
)
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.rounding import Sign
from lightleak.defenses.horizontal.sparsification import GradientCompression

WORK = {"restarts": 2, "steps": 150, "sweeps": 2, "rounds": 1, "round_steps": 50}


def signed(update: ClientUpdate) -> ClientUpdate:
    return replace(update, update=Sign().apply(update.update, generator(0)), state="noised")


def held_against(
    batch: Any, update: ClientUpdate, is_pruned: bool = False
) -> tuple[JointProblem, Intervals, JointRows]:
    """The problem of an update, the intervals of signs, or of what was pruned, and the true rows."""
    observed = observed_gradient(update)
    problem = replace(pose(update, batch.encoder, observed, 1.0, JointConfig()), prior_weight=0.25)
    codes, numbers = problem.space.coordinates(batch.cells)
    truth = JointRows(codes, numbers, batch.truth.labels.clone())
    pruned = Pruned.of(observed, "smallest")
    bounds = (pruned.lowest, pruned.highest) if is_pruned else of_signs(observed)
    return problem, Intervals.of(problem, bounds, truth.labels, generator(0)), truth


def halved(update: ClientUpdate) -> ClientUpdate:
    return replace(update, update=GradientCompression(keep=0.5).apply(update.update, generator(0)), state="noised")


def right(found: Reconstruction, batch: Any) -> float:
    """Mean over true rows of the share of categories that the most similar row found has."""
    codes, _ = batch.encoder.project(found.encoded.double())
    return float((codes == batch.cells[0].unsqueeze(1)).double().mean(-1).amax(1).mean())


@pytest.mark.parametrize("is_pruned", [False, True])
def test_the_derivative_of_the_cost_is_autograds(make_batch: Any, is_pruned: bool) -> None:
    batch = make_batch(n=4)
    _, signs, _ = held_against(batch, (halved if is_pruned else signed)(batch.update), is_pruned)
    signs, draws = signs.at(0.5), generator(1)
    noise = [torch.randn(layer.shape, generator=draws).double() for layer in signs.sizes]
    at = [(size * one).requires_grad_() for size, one in zip(signs.sizes, noise, strict=True)]
    value, by_gradients = signs(at)
    for own, expected in zip(by_gradients, torch.autograd.grad(value, at), strict=True):
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("is_pruned", [False, True])
def test_what_is_beyond_intervals_with_a_row_is_that_of_the_whole_gradient(make_batch: Any, is_pruned: bool) -> None:
    batch = make_batch(n=4)
    problem, signs, truth = held_against(batch, (halved if is_pruned else signed)(batch.update), is_pruned)
    terms = problem.terms(truth.codes, truth.numbers)
    errors = tuple(e[0] for e in terms.weighted(terms.of_labels(truth.labels, 4)))
    hidden = tuple(h[0] for h in terms.hidden)
    for i in range(4):
        whole = problem.gradient(truth)
        rest = tuple(g - torch.outer(e[i], h[i]) for g, e, h in zip(whole, errors, hidden, strict=True))
        torch.testing.assert_close(signs.with_term(rest, errors, hidden)[i], signs.beyond(whole))


def test_the_truth_has_all_signs_and_costs_least(make_batch: Any) -> None:
    batch = make_batch(n=6)
    problem, signs, truth = held_against(batch, signed(batch.update))
    assert signs.missed(problem.gradient(truth)) < 1e-3  # float32 rounds some elements of nearly zero
    believed = believed_rows(problem, truth.labels, 6, generator(1))
    assert signs.missed(problem.gradient(believed)) > 0.1
    assert objective(problem, signs.at(1.0), truth) < objective(problem, signs.at(1.0), believed)


@pytest.mark.parametrize("encoding", ["standardized", "onehot"])
def test_signs_of_the_first_layer_show_which_categories_occur(make_batch: Any, encoding: str) -> None:
    batch = make_batch(n=6, encoding=encoding)
    problem, *_ = held_against(batch, signed(batch.update))
    narrowed = with_present(problem, problem.target[0].sign())
    occurring = [set(column.unique().tolist()) for column in batch.cells[0].T]
    assert [set(kept.tolist()) for kept in narrowed.space.present] == occurring
    assert any(len(one) < size for one, size in zip(occurring, problem.space.sizes, strict=True))
    shares = [(-minus).exp().sum() for minus in narrowed.prior.categories]  # type: ignore[union-attr]
    torch.testing.assert_close(torch.stack(shares), torch.ones(len(shares)).double())


def test_moves_lower_the_cost_and_rows_of_a_pool_are_taken(make_batch: Any) -> None:
    batch = make_batch(n=5)
    problem, signs, truth = held_against(batch, signed(batch.update))
    signs = signs.at(1.0)
    start = believed_rows(problem, truth.labels, 5, generator(1))
    moved = descend_within(problem, signs, start, 2, generator(2))
    assert objective(problem, signs, moved) < objective(problem, signs, start) - 10
    codes, numbers = torch.cat([truth.codes[:3], start.codes[3:]]), torch.cat([truth.numbers[:3], start.numbers[3:]])
    mixed = JointRows(codes, numbers, truth.labels)
    found = exchange(problem, signs, mixed, truth, generator(3))
    assert sorted(found.codes.tolist()) == sorted(truth.codes.tolist())


def test_more_is_recovered_by_who_knows_that_signs_were_sent(make_batch: Any) -> None:
    batch = make_batch(n=4)
    sent = signed(batch.update)
    unaware = JointInversion(JointConfig(noised_restarts=1, noised_steps=80, noised_rounds=0)).run(sent, seed=0)
    aware = SignInversion(SignsConfig(**WORK)).run(sent, seed=0)
    assert right(aware, batch) > max(right(unaware, batch), 0.9)
    assert aware.certificate.certified == 0 and aware.loss < 0.2 and aware.attack == "exact_signs"


def test_three_classes_are_served(make_batch: Any) -> None:
    batch = make_batch(n=4, n_classes=3)
    found = SignInversion(SignsConfig(restarts=1, steps=20, sweeps=1, rounds=0)).run(signed(batch.update), seed=0)
    assert len(found.rows) == 4 and found.labels.max() < 3


def test_the_guess_is_returned_where_starts_have_less_in_common_with_each_other(make_batch: Any) -> None:
    batch = make_batch(n=6)
    problem, _, truth = held_against(batch, signed(batch.update))
    far = [believed_rows(problem, truth.labels, 6, generator(seed)) for seed in range(2)]
    assert is_guess_better(problem, far, Cells.of(problem, far[0]))
    assert not is_guess_better(problem, [truth, truth], Cells.of(problem, far[0]))
    assert not is_guess_better(problem, [truth], Cells.of(problem, truth))


def test_counts_of_labels_are_those_of_starts_that_come_nearest(make_batch: Any) -> None:
    batch = make_batch(n=6, hidden=(40, 40))
    problem, intervals, truth = held_against(batch, halved(batch.update), is_pruned=True)
    wrong = torch.zeros_like(truth.labels) if truth.labels.any() else torch.ones_like(truth.labels)
    found = labels_by_starts(problem, intervals, wrong, IntervalsConfig(steps=800), 0)
    assert abs(int(found.sum()) - int(truth.labels.sum())) < abs(int(wrong.sum()) - int(truth.labels.sum()))
    assert torch.equal(found, found.sort().values)
    asked: list[int] = []
    assert least_around(lambda at: asked.append(at) or (at - 2) ** 2, 4, 9) == 2  # type: ignore[func-returns-value]
    assert asked == [4, 5, 6, 3, 2, 1, 0]


def test_a_layer_that_believed_rows_leave_silent_has_a_size(make_batch: Any) -> None:
    batch = make_batch(n=3)
    problem, _, truth = held_against(batch, signed(batch.update))
    silent = replace(problem.nodes, biases=(problem.nodes.biases[0] - 1e6, *problem.nodes.biases[1:]))
    found = Intervals.of(replace(problem, nodes=silent), of_signs(problem.target), truth.labels, generator(0))
    assert all(bool((size > 0).all() and size.isfinite().all()) for size in found.sizes)


def test_progress_sums_to_one_and_other_updates_are_refused(make_batch: Any) -> None:
    batch, done = make_batch(n=3), []
    attack = SignInversion(SignsConfig(restarts=1, steps=5, sweeps=1, rounds=1, round_steps=5))
    attack.run_many([signed(batch.update)], [0], progress=done.append)
    assert sum(done) == pytest.approx(1)
    assert are_signs(signed(batch.update).update.values()) and not are_signs(batch.update.update.values())
    whole = replace(batch.update, update={name: value + 1 for name, value in batch.update.update.items()})
    with pytest.raises(ObservationError, match="elements of many sizes"):
        ATTACKS.get("exact_signs")().check(whole)
