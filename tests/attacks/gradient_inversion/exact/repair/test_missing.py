"""Guesses for rows that were not found."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.repair.missing import guess_rows
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.seeds import generator


def guess(batch: Any, known: int, space: RowDomain | None = None) -> tuple[tuple[torch.Tensor, torch.Tensor], Any]:
    n, n_classes = len(batch.x), batch.chain.n_classes
    counts = torch.nn.functional.one_hot(batch.truth.labels[:known], n_classes).double()
    residual = Residual.of(batch.chain, batch.observed, n).with_rows(batch.x[:known], counts)
    space = space or RowDomain.whole(batch.encoder, batch.prior)
    return guess_rows(residual, space, batch.prior, generator(0, "missing"))


@pytest.mark.parametrize("known", [0, 4, 9, 10])
@pytest.mark.parametrize(("n_classes", "encoding"), [(2, "standardized"), (3, "minmax"), (5, "onehot")])
def test_they_are_valid_rows_as_many_as_are_missing(make_batch: Any, known: int, n_classes: int, encoding: str) -> None:
    batch = make_batch(10, (20, 20), n_classes, encoding, seed=2)
    cells, labels = guess(batch, known)
    assert labels.shape == (10 - known,) and len(cells[0]) == len(cells[1]) == 10 - known
    rows = batch.encoder.decode(batch.encoder.assemble(*cells))
    batch.encoder.schema.validate(rows, require_label=False)
    again = batch.encoder.encode(rows)
    torch.testing.assert_close(again, batch.encoder.assemble(*cells), rtol=1e-5, atol=1e-5)
    encoder = batch.encoder
    assert bool(((cells[1] >= encoder.lower) & (cells[1] <= encoder.upper)).all())
    assert bool(((labels >= 0) & (labels < n_classes)).all())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_are_those_the_last_bias_leaves(make_batch: Any, n_classes: int) -> None:
    for seed in range(4):
        for known in (0, 10, 18, 20):
            batch = make_batch(24, (30, 30), n_classes, seed=seed)
            _, labels = guess(batch, known)
            found = torch.bincount(labels, minlength=n_classes)
            true = torch.bincount(batch.truth.labels[known:], minlength=n_classes)
            # An untrained network's probabilities hardly differ between rows: off by one row at most.
            assert int((found - true).abs().max()) <= 1


def test_the_likeliest_row_of_what_may_be_left(make_batch: Any) -> None:
    batch = make_batch(10, seed=2)
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, 10)
    cells, _ = guess(batch, 6, space)
    for k, (shares, present) in enumerate(zip(batch.prior.shares, space.present, strict=True)):
        assert bool((cells[0][:, k] == present[shares[present].argmax()]).all())
    for j, value in space.constants.items():
        assert bool((cells[1][:, j] == value).all())
    names = [column.name for column in batch.encoder.schema.numerical]
    assert bool((guess(batch, 6)[0][1][:, names.index("fee")] == 0).all())  # most rows pay none
    price = RowPrior.of(batch.update, batch.encoder).mean[names.index("price")].round()
    assert bool((cells[1][:, names.index("price")] == price).all())
