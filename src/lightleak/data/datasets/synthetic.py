"""The synthetic tables of TabLeak App. E.1 and C.5: independent discrete and Gaussian columns of any number."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from lightleak.core.errors import UsageError
from lightleak.core.seeds import numpy_generator
from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import Table

SMALLEST_DOMAIN, LARGEST_DOMAIN = 2, 6  # categories of a discrete column (App. E.1)
MEAN_RANGE, DEVIATION_RANGE = (0.0, 5.0), (1.0, 3.0)  # of the Gaussian columns (App. E.1)

TABLE = describe("synthetic")
CARD = TABLE.card


@dataset(TABLE.card, *TABLE.downloads)
def load_synthetic(
    folder: Path,
    seed: int,
    *,
    n_discrete: int = 5,
    n_continuous: int = 5,
    n_rows: int = 10_000,
    max_categories: int = LARGEST_DOMAIN,
    encoded_width: int = 0,
    table_seed: int = 0,
) -> Table:
    """Generate a table; the label is ``label``.

    Args:
        folder: not used.
        seed: root seed of the split alone.
        n_discrete: discrete columns, named ``d0`` onwards.
        n_continuous: Gaussian columns, named ``c0`` onwards.
        n_rows: rows to draw.
        max_categories: largest domain; sizes are uniform between 2 and it.
        encoded_width: if positive, domain sizes are nudged until the encoded width is this.
        table_seed: root seed of distributions and rows, so that another split has the same rows.

    Raises:
        UsageError: a number that cannot be.
    """
    _check(n_discrete, n_continuous, n_rows, max_categories, encoded_width)
    sizes = _domain_sizes(
        n_discrete, max_categories, encoded_width - n_continuous if encoded_width else None, table_seed
    )
    rng = numpy_generator(table_seed, "synthetic", n_discrete, n_continuous)
    columns: list[Column] = []
    values: dict[str, np.ndarray] = {}
    score = np.zeros(n_rows)
    for i, size in enumerate(sizes):
        codes = rng.choice(size, n_rows, p=rng.dirichlet(np.ones(size)))
        columns.append(Column.categorical(f"d{i}", [str(code) for code in range(size)]))
        values[f"d{i}"] = codes.astype(str).astype(object)
        score += rng.standard_normal(size)[codes]
    for i in range(n_continuous):
        drawn = rng.standard_normal(n_rows)
        columns.append(Column.continuous(f"c{i}"))
        values[f"c{i}"] = rng.uniform(*MEAN_RANGE) + rng.uniform(*DEVIATION_RANGE) * drawn
        score += rng.standard_normal() * drawn
    noise = rng.logistic(scale=score.std() * np.sqrt(3) / np.pi, size=n_rows)  # as much variance as the score
    values["label"] = np.where(score - np.median(score) + noise > 0, "1", "0").astype(object)
    schema = TableSchema(tuple(columns), Column.categorical("label", ["0", "1"]))
    return split_table(
        replace(CARD, title=f"{CARD.title}: {n_discrete} discrete, {n_continuous} continuous"),
        schema,
        pd.DataFrame(values),
        seed,
    )


def _domain_sizes(n_discrete: int, max_categories: int, total: int | None, seed: int) -> np.ndarray:
    """Domain sizes ``[n_discrete]``, uniform; with ``total``, moved by single steps until they sum to it."""
    rng = numpy_generator(seed, "domain-sizes")
    sizes = rng.integers(SMALLEST_DOMAIN, max_categories + 1, n_discrete)
    while total is not None and (gap := total - int(sizes.sum())):
        step = 1 if gap > 0 else -1
        movable = np.flatnonzero(sizes < max_categories if gap > 0 else sizes > SMALLEST_DOMAIN)
        sizes[rng.choice(movable)] += step
    return sizes


def _check(n_discrete: int, n_continuous: int, n_rows: int, max_categories: int, encoded_width: int) -> None:
    if n_discrete < 0 or n_continuous < 0 or n_discrete + n_continuous < 1:
        raise UsageError(
            f"n_discrete and n_continuous must be 0 or more, one of them positive; got {n_discrete} and {n_continuous}"
        )
    if n_rows < 10:
        raise UsageError(f"n_rows must be at least 10, got {n_rows}")
    if max_categories < SMALLEST_DOMAIN:
        raise UsageError(f"max_categories must be at least {SMALLEST_DOMAIN}, got {max_categories}")
    low, high = n_continuous + SMALLEST_DOMAIN * n_discrete, n_continuous + max_categories * n_discrete
    if encoded_width and not low <= encoded_width <= high:
        raise UsageError(
            f"encoded_width must be between {low} and {high} for {n_discrete} discrete columns of 2 to "
            f"{max_categories} categories and {n_continuous} continuous ones, got {encoded_width}"
        )
