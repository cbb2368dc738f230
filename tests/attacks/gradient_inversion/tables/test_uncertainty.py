"""How open the cells of a reconstruction are."""

import math
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.tables.entropy import cell_entropy, cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior


def test_found_rows_are_closed_and_missing_ones_as_open_as_the_prior(make_batch: Any) -> None:
    batch = make_batch(n_classes=3)
    found = cell_uncertainty(batch.encoder, batch.prior, 4, 3)
    schema = batch.encoder.schema
    assert list(found.columns) == list(schema.names) and len(found) == 7
    for column in schema.categorical:
        assert (found[column.name][:4] == 0).all() and (found[column.name][4:] > 0.2).all()
        assert (found[column.name] <= 1).all()
    for column in schema.numerical:
        assert found[column.name][:4].max() < found[column.name][4:].min()


@pytest.mark.parametrize("encoding", ["standardized", "onehot"])
def test_it_is_what_cell_entropy_says_of_draws_from_the_prior(make_batch: Any, encoding: str) -> None:
    batch = make_batch(encoding=encoding, marginals=False)
    encoder, prior = batch.encoder, RowPrior.of(batch.update, batch.encoder, "schema")
    generator = torch.Generator().manual_seed(0)
    draws = 20_000
    codes = [torch.multinomial(shares, draws, replacement=True, generator=generator) for shares in prior.shares]
    numbers = prior.mean + prior.deviation * torch.randn(
        draws, len(prior.mean), generator=generator, dtype=torch.float64
    )
    free = [column.name for column in encoder.schema.columns if column.name in ("area", "price", "region", "heated")]
    # Wide enough that neither bounds nor whole numbers matter.
    encoder = type(encoder).from_state(*encoder.to_state())
    encoder.lower, encoder.upper = encoder.lower - 1e9, encoder.upper + 1e9
    ensemble = encoder.assemble(torch.stack(codes, -1), numbers).unsqueeze(1)
    expected = cell_entropy(encoder, ensemble, ensemble[0])
    found = cell_uncertainty(batch.encoder, prior, 0, 1)
    for name in free:
        assert found[name][0] == pytest.approx(expected[name][0], abs=0.02)


def test_a_categorys_entropy_is_one_where_all_are_even(make_batch: Any) -> None:
    batch = make_batch()
    prior = RowPrior.of(batch.update, batch.encoder, "schema")
    found = cell_uncertainty(batch.encoder, prior, 0, 2)
    assert all(found[column.name].tolist() == pytest.approx([1, 1]) for column in batch.encoder.schema.categorical)
    assert not found.isna().any().any() and all(math.isfinite(v) for v in found.to_numpy().flatten())
    assert cell_uncertainty(batch.encoder, prior, 0, 0).shape == (0, len(batch.encoder.schema.names))
