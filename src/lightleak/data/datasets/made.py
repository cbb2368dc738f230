"""Made rows for tables whose files cannot be passed on: their columns, and nothing of their people."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lightleak.core.errors import UsageError
from lightleak.core.seeds import numpy_generator
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import DatasetCard

FEWEST = 10
BLOCK_COLUMNS = 256  # whose effects are added at a time
MEANS = (1.0, 30.0)
"""Of integer columns without bounds, which are geometric: many small counts and few large ones."""


def made_card(card: DatasetCard, n_rows: int) -> DatasetCard:
    """The card of a table of made rows, which says so in its title.

    Raises:
        UsageError: too few rows.
    """
    if n_rows < FEWEST:
        raise UsageError(f"option 'made' of dataset {card.name!r} must be 0 or at least {FEWEST} rows, got {n_rows}")
    return replace(card, title=f"{card.title}: made rows")


def made_rows(schema: TableSchema, n_rows: int) -> pd.DataFrame:
    """Draw independent columns, and labels from a random score of them with as much logistic noise.

    Always the same rows for a schema: probabilities of categories are drawn from the simplex, integer columns without
    bounds are geometric, bounded ones are 0 or 1 with a share from a U-shaped Beta distribution.

    Args:
        schema: categorical and integer columns; the label has two or more classes, equally frequent.
        n_rows: rows to draw.
    """
    rng = numpy_generator(0, "made rows", *schema.names)
    values, score = dict[str, np.ndarray](), np.zeros((n_rows, schema.n_classes))
    for first in range(0, len(schema.columns), BLOCK_COLUMNS):
        effects, weights = [], []
        for column in schema.columns[first : first + BLOCK_COLUMNS]:
            values[column.name], effect = _column(column, n_rows, rng)
            effects.append(effect)
            weights.append(rng.standard_normal(schema.n_classes))
        score += np.stack(effects, 1) @ np.stack(weights)
    score += score.std() * np.sqrt(3) / np.pi * rng.logistic(size=score.shape)
    score -= np.median(score, axis=0)
    categories = np.asarray(schema.label.categories, dtype=object)
    return pd.DataFrame(values | {schema.label.name: categories[score.argmax(1)]})


def _column(column: Column, n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Values ``[n_rows]`` and what each adds to a score."""
    if column.categories:
        n = len(column.categories)
        codes = rng.choice(n, n_rows, p=rng.dirichlet(np.ones(n)))
        return np.asarray(column.categories, dtype=object)[codes], rng.standard_normal(n)[codes]
    if column.lower is None:
        numbers = rng.geometric(1 / rng.uniform(*MEANS), n_rows) - 1
    else:
        numbers = (rng.random(n_rows) < rng.beta(0.5, 0.5)).astype("int64")
    return numbers, (numbers - numbers.mean()) / (numbers.std() or 1.0)
