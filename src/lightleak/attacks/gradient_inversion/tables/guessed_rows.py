"""The best guess of a batch without its update: rows drawn from marginals that favor likely values.

How strongly is judged on batches simulated from the marginals.
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.seeds import numpy_generator
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema

Draw = Literal["row", "batch"]

CANDIDATES = (1.0, 1.5, 2.0, 3.0, 4.0, math.inf)
"""Sharpnesses that ``best`` chooses from: TabLeak's Random is 1, the modal row infinity."""

SIMULATED_ROWS, FEWEST_BATCHES, LARGEST_BATCH = 1024, 8, 256
"""A sharpness is judged on 1,024 rows in at least 8 batches; of larger batches than 256 rows the choice is that at 256
(it falls slowly: 2 at 128 rows, 1.5 to 2 at 256)."""


@lru_cache(maxsize=64)
def best_sharpness(known: str, n: int, numerical_draw: Draw) -> float:
    """Return the sharpness of `CANDIDATES` that recovers most cells of simulated batches.

    A batch is simulated by drawing every cell from its marginal. All candidates meet the same batches.

    Args:
        known: schema and marginals as JSON, so that the choice is made once for each.
        n: rows of a batch.
        numerical_draw: see `RandomConfig`.
    """
    described, shares = json.loads(known)
    schema, marginals = TableSchema.from_dict(described), Marginals.from_dict(shares)
    batches = max(FEWEST_BATCHES, SIMULATED_ROWS // n)
    right = {sharpness: np.zeros((batches, n, n), dtype="int64") for sharpness in CANDIDATES}
    for column in schema.columns:
        values = np.asarray(marginals.values[column.name], dtype="float64" if column.is_numerical else object)
        reach = TOLERANCE * marginals.deviation(column) if column.is_numerical else None
        chances = numpy_generator(0, "simulated", column.name, n).random((2, batches, n))
        truth = values[_drawn(marginals.probabilities[column.name], chances[0])][:, :, None]
        for sharpness, hits in right.items():
            guess = values[_drawn(marginals.sharpened_column(column, sharpness, TOLERANCE), chances[1])]
            if reach is not None and numerical_draw == "batch":
                guess = np.broadcast_to(guess[:, :1], guess.shape)
            hits += truth == guess[:, None] if reach is None else np.abs(truth - guess[:, None]) <= reach
    return max(right, key=lambda sharpness: _cells_right(right[sharpness]))


def _drawn(shares: Sequence[float], chances: np.ndarray) -> np.ndarray:
    """Index of a value for each uniform random number in [0, 1)."""
    up_to = np.cumsum(np.asarray(shares, dtype="float64"))
    return np.minimum(np.searchsorted(up_to, chances * up_to[-1], side="right"), len(up_to) - 1)


def _cells_right(right: np.ndarray) -> int:
    """Cells right in all batches after the rows of each are paired for most of them (TabLeak Eq. 6 and 7).

    Args:
        right: cells on which each true row agrees with each guessed row, ``[batches, n, n]``.
    """
    return sum(int(one[linear_sum_assignment(one, maximize=True)].sum()) for one in right)


def sharpness_of(schema: TableSchema, marginals: Marginals, n: int, numerical_draw: Draw = "row") -> float:
    """Return the sharpness that recovers most cells of simulated batches of ``n`` rows; see `best_sharpness`."""
    known = json.dumps([schema.to_dict(), marginals.to_dict()])
    return best_sharpness(known, min(n, LARGEST_BATCH), numerical_draw)


def guessed_rows(schema: TableSchema, marginals: Marginals, n: int, seed: int, sharpness: float) -> pd.DataFrame:
    """Return ``n`` rows drawn from sharpened marginals; the same for a seed whoever asks.

    Args:
        schema: the columns.
        marginals: what is known of every column.
        n: rows.
        seed: root of the random stream.
        sharpness: see `Marginals.sharpened`.
    """
    return marginals.sharpened(schema, sharpness, TOLERANCE).sample(schema, n, numpy_generator(seed, "random"))


def best_guess(schema: TableSchema, marginals: Marginals, n: int, seed: int) -> pd.DataFrame:
    """Return the rows that the baseline `random` guesses by default."""
    return guessed_rows(schema, marginals, n, seed, sharpness_of(schema, marginals, n))
