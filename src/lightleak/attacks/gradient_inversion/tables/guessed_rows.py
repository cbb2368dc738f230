"""The best guess of a batch without its update: rows drawn from marginals that favor likely values."""

import json

import pandas as pd

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.attacks.gradient_inversion.tables.guess_sharpness import LARGEST_BATCH, Draw, best_sharpness
from lightleak.core.seeds import numpy_generator
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema


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
