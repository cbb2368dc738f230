"""One-way marginals of a table: what an attacker without any update could guess from (TabLeak Sec. 4, Random)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError, ObservationError
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, ColumnKind, TableSchema

DEVIATIONS = 4
"""Deviations from the mean that a grid of normal density covers: declared bounds may be far wider than the numbers."""

BINS = 100  # TabLeak Sec. 4: continuous features are discretized uniformly in 100 bins


@dataclass(frozen=True)
class Marginals:
    """Values and probabilities per column.

    Attributes:
        values: per column the categories, or the lower edges of the bins.
        probabilities: per column their frequencies, summing to 1.
    """

    values: Mapping[str, tuple[Any, ...]]
    probabilities: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, schema: TableSchema, frame: pd.DataFrame, bins: int = BINS) -> "Marginals":
        """Count ``frame``, which should be rows disjoint from the clients'.

        Numbers are cut into ``bins`` equal bins, whole numbers of a narrower range into one bin a value; a bin stands
        for its lower edge, as in the reference implementation.

        Raises:
            DataError: the frame has no rows or does not fit the schema.
        """
        frame = schema.validate(frame, require_label=False)
        if frame.empty:
            raise DataError("marginals are counted from rows, got an empty table")
        counted = {column.name: _count(column, frame[column.name], bins) for column in schema.columns}
        probabilities = {name: tuple((counts / counts.sum()).tolist()) for name, (_, counts) in counted.items()}
        return cls({name: values for name, (values, _) in counted.items()}, probabilities)

    def sample(self, schema: TableSchema, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw ``n`` rows of the features, every cell independently of the others.

        Args:
            schema: the columns to draw.
            n: rows.
            rng: where the randomness comes from; no other generator is touched.

        Raises:
            ObservationError: a column of the schema has no marginal.
        """
        self.require(schema)
        return pd.DataFrame({column.name: self._draw(column, n, rng) for column in schema.columns})

    def sharpened(self, schema: TableSchema, sharpness: float, tolerance: float) -> "Marginals":
        """Return marginals that favor the values most likely to be right.

        The probability of a value is multiplied by its chance of being right to the power ``sharpness - 1``. Of a
        category that chance is its own probability, so that probabilities are raised to ``sharpness``; of a number it
        is the probability of all values within the tolerance.

        Args:
            schema: the columns.
            sharpness: at least 1, which changes nothing; infinity keeps the likeliest value of each column alone, the
                modal row.
            tolerance: distance at which a number counts as right, in standard deviations of the column.

        Raises:
            ObservationError: a column of the schema has no marginal.
        """
        self.require(schema)
        changed = {column.name: self.sharpened_column(column, sharpness, tolerance) for column in schema.columns}
        return Marginals(self.values, {**self.probabilities, **changed})

    def deviation(self, column: Column) -> float:
        """Standard deviation of a numerical column."""
        values, weights = (np.asarray(of[column.name], dtype="float64") for of in (self.values, self.probabilities))
        shares = weights / weights.sum()
        return float(np.sqrt((shares * (values - (values * shares).sum()) ** 2).sum()))

    def require(self, schema: TableSchema) -> None:
        """Check that every column can be drawn.

        Raises:
            ObservationError: a column has no marginal, or one with values of another kind.
        """
        for column in schema.columns:
            values = self.values.get(column.name, ())
            fits = all(_is_number(v) if column.is_numerical else v in column.categories for v in values)
            if not values or not fits:
                raise ObservationError(f"the marginals hold no {column.kind} values of column {column.name!r}")

    def _draw(self, column: Column, n: int, rng: np.random.Generator) -> np.ndarray:
        values = np.asarray(self.values[column.name], dtype="float64" if column.is_numerical else object)
        weights = np.asarray(self.probabilities[column.name], dtype="float64")
        drawn = rng.choice(values, size=n, p=weights / weights.sum())
        return drawn.round().astype("int64") if column.kind is ColumnKind.INTEGER else drawn

    def sharpened_column(self, column: Column, sharpness: float, tolerance: float) -> tuple[float, ...]:
        """Return the probabilities of one column as `sharpened` changes them."""
        shares = np.asarray(self.probabilities[column.name], dtype="float64")
        right = shares = shares / shares.sum()
        if column.is_numerical:
            values = np.asarray(self.values[column.name], dtype="float64")
            right = _mass_around(values, shares, tolerance * self.deviation(column))
        if np.isinf(sharpness):
            likeliest = np.lexsort((shares, right))[-1]  # of equally good values the commonest
            return tuple(np.eye(1, len(shares), likeliest)[0].tolist())
        weights = shares * (right / right.max()) ** (sharpness - 1)
        return tuple((weights / weights.sum()).tolist())

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: [list(self.values[name]), list(self.probabilities[name])] for name in self.values}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "Marginals":
        """Inverse of `to_dict`.

        Raises:
            ObservationError: no mapping, or no pair of values and as many probabilities for a column.
        """
        if not isinstance(state, Mapping):
            raise ObservationError(f"marginals must be a mapping by column, got {type(state).__name__}")
        values, probabilities = {}, {}
        for name, entry in state.items():
            try:
                if not isinstance(entry[0], list | tuple) or not all(_is_number(w) for w in entry[1]):
                    raise TypeError(entry)
                values[name], weights = tuple(entry[0]), np.asarray(entry[1], dtype="float64")
                fits = weights.shape == (len(values[name]),) and bool((weights >= 0).all())
                usable = fits and 0 < weights.sum() < np.inf
            except (TypeError, ValueError, LookupError):
                usable = False
            if not usable:
                raise ObservationError(f"the marginal of column {name!r} must be values and as many probabilities")
            probabilities[name] = tuple(weights.tolist())
        return cls(values, probabilities)


def _mass_around(values: np.ndarray, shares: np.ndarray, reach: float) -> np.ndarray:
    """Probability of all values within ``reach`` of each value."""
    order = np.argsort(values)
    below = np.concatenate([[0.0], np.cumsum(shares[order])])
    low = below[np.searchsorted(values[order], values - reach, side="left")]
    high = below[np.searchsorted(values[order], values + reach, side="right")]
    return np.asarray(high - low)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def statistics_marginals(encoder: TableEncoder, bins: int = BINS) -> Marginals:
    """Return the marginals that encoder statistics imply: what a server without any others would guess from.

    Categories by their shares where the encoding holds them, else evenly. Numbers between their bounds and within
    `DEVIATIONS` of the mean, by the normal density, where the encoding holds mean and deviation; else evenly between
    their bounds.

    Args:
        encoder: schema and statistics.
        bins: values of a numerical column, evenly spaced.
    """
    values: dict[str, tuple[Any, ...]] = {}
    probabilities: dict[str, tuple[float, ...]] = {}
    numbers = iter(zip(encoder.lower.tolist(), encoder.upper.tolist(), encoder.deviation.tolist(), strict=True))
    for column, block in zip(encoder.schema.columns, encoder.layout.blocks, strict=True):
        shift = encoder.shift[block.slice].cpu().numpy()
        if column.is_numerical:
            lower, upper, deviation = next(numbers)
            has_mean, mean = encoder.encoding in ("standardized", "onehot"), float(shift[0])
            reach = DEVIATIONS * deviation if has_mean else np.inf
            first, last = np.clip([mean - reach, mean + reach], lower, upper)
            numbers_at = np.linspace(first, last, bins)
            weights = np.exp(-(((numbers_at - mean) / deviation) ** 2) / 2) if has_mean else np.ones(bins)
            values[column.name] = tuple(numbers_at.tolist())
        else:
            weights = shift.clip(min=0) if encoder.encoding == "standardized" else np.ones(block.width)
            values[column.name] = column.categories
        weights = weights if weights.sum() > 0 else np.ones_like(weights)
        probabilities[column.name] = tuple((weights / weights.sum()).tolist())
    return Marginals(values, probabilities)


def _count(column: Column, cells: pd.Series, bins: int) -> tuple[tuple[Any, ...], np.ndarray]:
    """A value for each bin, and how many cells lie in it."""
    if not column.is_numerical:
        return column.categories, cells.value_counts().reindex(list(column.categories), fill_value=0).to_numpy()
    low, high = float(cells.min()), float(cells.max())
    if column.kind is ColumnKind.INTEGER and high - low < bins:
        # The last edge lies one past the highest value, so that each bin holds exactly one value.
        bins, high = int(high - low) + 1, high + 1
    counts, edges = np.histogram(cells, bins=bins, range=(low, high if high > low else low + 1))
    return tuple(edges[:-1].tolist()), counts
