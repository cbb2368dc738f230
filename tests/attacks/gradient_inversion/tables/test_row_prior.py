"""What is believed of cells, by source."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.errors import ObservationError, UsageError

ENCODINGS = ["standardized", "onehot", "minmax"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_marginals_are_frequencies_and_moments_of_the_servers_rows(make_batch: Any, encoding: str) -> None:
    batch = make_batch(encoding=encoding)
    prior = RowPrior.of(batch.update, batch.encoder, "marginals")
    known = batch.update.marginals
    assert prior.source == "marginals"
    for shares, column in zip(prior.shares, batch.encoder.schema.categorical, strict=True):
        values, probabilities = known[column.name]
        expected = [dict(zip(values, probabilities, strict=True)).get(c, 0.0) for c in column.categories]
        torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.float64))
    for j, column in enumerate(batch.encoder.schema.numerical):
        values, weights = (torch.tensor(part, dtype=torch.float64) for part in known[column.name])
        mean = float(values @ weights)
        spread = float(((values - mean) ** 2 @ weights).sqrt())
        assert float(prior.mean[j]) == pytest.approx(mean)
        assert float(prior.deviation[j]) == pytest.approx(spread if spread else float(batch.encoder.deviation[j]))
    assert bool((prior.deviation > 0).all())


def test_statistics_are_the_standardizing_encoders(make_batch: Any) -> None:
    batch = make_batch()
    prior, encoder = RowPrior.of(batch.update, batch.encoder, "statistics"), batch.encoder
    for shares, block in zip(prior.shares, encoder.layout.categorical, strict=True):
        torch.testing.assert_close(shares, encoder.shift[block.slice])
    assert torch.equal(prior.mean, encoder.shift[encoder.numerical_positions])
    assert torch.equal(prior.deviation, encoder.deviation)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_schema_alone_is_even(make_batch: Any, encoding: str) -> None:
    batch = make_batch(encoding=encoding)
    prior, encoder = RowPrior.of(batch.update, batch.encoder, "schema"), batch.encoder
    for shares, block in zip(prior.shares, encoder.layout.categorical, strict=True):
        torch.testing.assert_close(shares, torch.full((block.width,), 1 / block.width, dtype=torch.float64))
    torch.testing.assert_close(prior.mean, (encoder.lower + encoder.upper) / 2)
    spread = (encoder.upper - encoder.lower) / 12**0.5  # of an even distribution
    torch.testing.assert_close(prior.deviation[spread > 0], spread[spread > 0])
    assert bool((prior.deviation > 0).all())


@pytest.mark.parametrize(
    ("encoding", "marginals", "expected"),
    [("standardized", True, "marginals"), ("standardized", False, "statistics"), ("onehot", False, "schema")],
)
def test_auto_takes_the_best_there_is(make_batch: Any, encoding: str, marginals: bool, expected: str) -> None:
    batch = make_batch(encoding=encoding, marginals=marginals)
    prior = RowPrior.of(batch.update, batch.encoder)
    named = RowPrior.of(batch.update, batch.encoder, expected)
    assert prior.source == expected and torch.equal(prior.mean, named.mean)


def test_knowledge_that_is_not_there_is_refused(make_batch: Any) -> None:
    batch = make_batch(encoding="onehot", marginals=False)
    with pytest.raises(ObservationError, match="the update carries none; use 'statistics' or 'schema'"):
        RowPrior.of(batch.update, batch.encoder, "marginals")
    with pytest.raises(ObservationError, match="needs the encoding 'standardized', got 'onehot'"):
        RowPrior.of(batch.update, batch.encoder, "statistics")
    with pytest.raises(UsageError, match="auto, marginals, statistics, schema, got 'guess'"):
        RowPrior.of(batch.update, batch.encoder, "guess")
    known = make_batch(encoding="onehot")
    partial = {name: value for name, value in known.update.marginals.items() if name != "price"}
    with pytest.raises(ObservationError, match="'price'"):
        RowPrior.of(replace(known.update, marginals=partial), known.encoder)


def test_a_constant_column_has_a_spread_to_divide_by_in_float32(make_batch: Any) -> None:
    batch = make_batch(4)
    prior = RowPrior.of(batch.update, batch.encoder, "schema")
    edition = [column.name for column in batch.encoder.schema.numerical].index("edition")
    assert float(batch.encoder.upper[edition] - batch.encoder.lower[edition]) == 0
    assert bool((prior.deviation.float() > 0).all())
