"""Labels to start from."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator


def test_counts_are_near_those_of_the_batch(make_batch: Any) -> None:
    batch = make_batch(n=40, n_classes=3)
    found = starting_labels(batch.update, RowDomain.whole(batch.encoder, batch.prior), generator(0))
    assert found.shape == (40,) and torch.equal(found, found.sort().values)
    counts, truth = (torch.bincount(y, minlength=3) for y in (found, batch.truth.labels))
    assert int((counts - truth).abs().max()) <= 2
