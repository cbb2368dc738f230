"""Labels to start from."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals
from lightleak.attacks.gradient_inversion.joint.labels import labels_within, starting_labels
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator


def test_counts_are_near_those_of_the_batch(make_batch: Any) -> None:
    batch = make_batch(n=40, n_classes=3)
    found = starting_labels(batch.update, RowDomain.whole(batch.encoder, batch.prior), generator(0))
    assert found.shape == (40,) and torch.equal(found, found.sort().values)
    counts, truth = (torch.bincount(y, minlength=3) for y in (found, batch.truth.labels))
    assert int((counts - truth).abs().max()) <= 2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labels_follow_from_intervals_of_the_gradient(posed: Any, seed: int) -> None:
    problem, truth = posed(n=8, n_classes=3, seed=seed)
    problem = replace(problem, prior=CellPrior.of(problem.space, None))
    bounds = problem.target, tuple(torch.full_like(layer, torch.inf) for layer in problem.target)
    intervals = Intervals.of(problem, bounds, torch.zeros(8, dtype=torch.long), generator(0))
    found = labels_within(problem, intervals, generator(0))
    assert torch.equal(found, found.sort().values)
    counts, true = (torch.bincount(y, minlength=3) for y in (found, truth.labels))
    assert int((counts - true).abs().sum()) <= 2
