"""Labels to start from."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.labels import labels_behind, starting_labels
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator


def test_counts_are_near_those_of_the_batch(make_batch: Any) -> None:
    batch = make_batch(n=40, n_classes=3)
    found = starting_labels(batch.update, RowDomain.whole(batch.encoder, batch.prior), generator(0))
    assert found.shape == (40,) and torch.equal(found, found.sort().values)
    counts, truth = (torch.bincount(y, minlength=3) for y in (found, batch.truth.labels))
    assert int((counts - truth).abs().max()) <= 2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labels_follow_from_a_last_layer_without_its_bias(posed: Any, seed: int) -> None:
    problem, truth = posed(n=5, n_classes=3, seed=seed)
    is_known = torch.ones_like(problem.target[-1], dtype=torch.bool)
    is_known[:, -1] = False
    unknown = torch.where(is_known, problem.target[-1], 9.0)
    found = labels_behind(replace(problem, target=(*problem.target[:-1], unknown)), is_known, generator(0))
    assert torch.equal(found, truth.labels.sort().values)
