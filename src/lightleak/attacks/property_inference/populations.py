"""Populations of record norms at known fractions, and queries of the records (ProVFL Algorithm 1, lines 3-8, 11-13)."""

from typing import Literal

import numpy as np

from lightleak.core.errors import UsageError

Features = Literal["quantiles", "sorted"]


def fraction_grid(step: float) -> np.ndarray:
    """Fractions ``0, q%, 2 q%, .., 100%`` (line 4), float ``[1 + 100 / q]``.

    >>> fraction_grid(25).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]

    Raises:
        UsageError: ``step`` does not divide 100 percent.
    """
    steps = round(100 / step) if step > 0 else 0
    if steps < 1 or abs(steps * step - 100) > 1e-9:
        raise UsageError(f"fraction_step must divide 100 (percent), got {step}")
    return np.arange(steps + 1) / steps


def draw_populations(
    counts: np.ndarray, sizes: tuple[int, int], sample_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Auxiliary rows of every attack sample, int ``[R, M]`` (lines 5, 6).

    Rows are drawn without replacement, or with it where a class has fewer rows than a sample needs of it.

    Args:
        counts: int ``[R]`` how many of the M rows have the property.
        sizes: auxiliary rows with the property, and without.
        sample_size: M.
        rng: source of the draws.

    Returns:
        Positions below ``sizes[0]`` are rows with the property; those from ``sizes[0]`` on are rows without.
    """
    n_with, n_without = sizes
    rows = np.empty((len(counts), sample_size), dtype=np.int64)
    for row, count in zip(rows, counts.tolist(), strict=True):
        row[:count] = _draw(n_with, count, rng)
        row[count:] = _draw(n_without, sample_size - count, rng) + n_with
    return rows


def draw_queries(n_records: int, queries: int, sample_size: int, rng: np.random.Generator) -> np.ndarray:
    """Records of every query, int ``[Q, M]``, without replacement within a query (line 12)."""
    return np.stack([_draw(n_records, sample_size, rng) for _ in range(queries)])


def draw_resampled_pairs(
    counts: np.ndarray, rows_with: np.ndarray, rows_without: np.ndarray, sample_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Two samples of each of S bootstrap copies of some auxiliary rows, int ``[S, 2, M]``.

    What the two predictions of a pair have in common beyond their fraction is the accident of which rows were
    auxiliary: the noise of the draws is independent within a pair.

    Args:
        counts: int ``[S]`` how many of the M rows have the property.
        rows_with: int ``[a]`` positions of the rows with the property.
        rows_without: int ``[b]`` those without.
        sample_size: M.
        rng: source of the draws.
    """
    n = len(counts)
    copies_with = rows_with[rng.integers(0, len(rows_with), (n, len(rows_with)))]
    copies_without = rows_without[rng.integers(0, len(rows_without), (n, len(rows_without)))]
    uniform = rng.random((n, 2, sample_size))
    copy = np.arange(n)[:, None, None]
    drawn_with = copies_with[copy, (uniform * len(rows_with)).astype(np.int64)]
    drawn_without = copies_without[copy, (uniform * len(rows_without)).astype(np.int64)]
    return np.where(np.arange(sample_size) < counts[:, None, None], drawn_with, drawn_without)


def population_features(values: np.ndarray, features: Features, n_quantiles: int) -> np.ndarray:
    """What a regressor sees of populations of norms ``[.., M]``: all M sorted, or ``n_quantiles`` of them.

    Quantile i is the order statistic at ``(i + 1/2) / n_quantiles``; with ``n_quantiles = M`` both are the same.

    >>> population_features(np.array([[4.0, 1.0, 3.0, 2.0]]), "quantiles", 2).tolist()
    [[2.0, 4.0]]
    """
    ordered = np.sort(values, axis=-1)
    if features == "sorted":
        return ordered
    m = values.shape[-1]
    return ordered[..., ((np.arange(n_quantiles) + 0.5) / n_quantiles * m).astype(np.int64)]


def _draw(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(n, size, replace=size > n, shuffle=False)
