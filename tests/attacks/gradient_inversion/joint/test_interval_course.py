"""Moves of rows within intervals, and the counts of labels to start from."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.capacity import believed_rows
from lightleak.attacks.gradient_inversion.joint.decision import Cells, is_guess_better
from lightleak.attacks.gradient_inversion.joint.interval_course import IntervalsConfig, labels_by_starts, least_around
from lightleak.attacks.gradient_inversion.joint.interval_descent import descend_within, exchange
from lightleak.attacks.gradient_inversion.joint.intervals import objective
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.core.seeds import generator


def test_moves_lower_the_cost_and_rows_of_a_pool_are_taken(make_batch: Any, held_against: Any, signed: Any) -> None:
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


def test_counts_of_labels_are_those_of_starts_that_come_nearest(
    make_batch: Any, held_against: Any, halved: Any
) -> None:
    batch = make_batch(n=6, hidden=(40, 40))
    problem, intervals, truth = held_against(batch, halved(batch.update), is_pruned=True)
    wrong = torch.zeros_like(truth.labels) if truth.labels.any() else torch.ones_like(truth.labels)
    found = labels_by_starts(problem, intervals, wrong, IntervalsConfig(steps=800), 0)
    assert abs(int(found.sum()) - int(truth.labels.sum())) < abs(int(wrong.sum()) - int(truth.labels.sum()))
    assert torch.equal(found, found.sort().values)
    asked: list[int] = []
    assert least_around(lambda at: asked.append(at) or (at - 2) ** 2, 4, 9) == 2  # type: ignore[func-returns-value]
    assert asked == [4, 5, 6, 3, 2, 1, 0]


def test_the_guess_is_returned_where_starts_have_less_in_common_with_each_other(
    make_batch: Any, held_against: Any, signed: Any
) -> None:
    batch = make_batch(n=6)
    problem, _, truth = held_against(batch, signed(batch.update))
    far = [believed_rows(problem, truth.labels, 6, generator(seed)) for seed in range(2)]
    assert is_guess_better(problem, far, Cells.of(problem, far[0]))
    assert not is_guess_better(problem, [truth, truth], Cells.of(problem, far[0]))
    assert not is_guess_better(problem, [truth], Cells.of(problem, truth))
