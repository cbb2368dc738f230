"""Random hold-outs of rows, plain or by group."""

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError
from lightleak.core.seeds import numpy_generator


def holdout(n_rows: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows that stay and of those held out, both ascending.

    Args:
        n_rows: rows to split.
        fraction: share held out, between 0 and 1 (exclusive); each side gets at least one row.
        seed: root seed.

    Raises:
        DataError: the fraction is no fraction or there are fewer than two rows.

    >>> stay, out = holdout(10, 0.2, seed=0)
    >>> len(stay), len(out)
    (8, 2)
    """
    _check(n_rows, fraction)
    n_out = min(max(round(n_rows * fraction), 1), n_rows - 1)
    order = numpy_generator(seed, "holdout").permutation(n_rows)
    return np.sort(order[n_out:]), np.sort(order[:n_out])


def group_holdout(groups: np.ndarray | pd.Series, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As `holdout`, but rows of one group (one patient, say) are never on both sides.

    Args:
        groups: ``[n_rows]`` group of each row.
        fraction: share of rows held out; met up to the size of one group.
        seed: root seed.

    Raises:
        DataError: the fraction is no fraction or there are fewer than two groups.
    """
    codes, names = pd.factorize(np.asarray(groups))
    _check(len(names), fraction)
    order = numpy_generator(seed, "group-holdout").permutation(len(names))
    rows_before = np.cumsum(np.bincount(codes)[order])
    n_out = min(max(int(np.searchsorted(rows_before, len(codes) * fraction)) + 1, 1), len(names) - 1)
    out = np.isin(codes, order[:n_out])
    return np.flatnonzero(~out), np.flatnonzero(out)


def _check(n_units: int, fraction: float) -> None:
    if not 0.0 < fraction < 1.0:
        raise DataError(f"the share of rows held out must be above 0 and below 1, got {fraction}")
    if n_units < 2:
        raise DataError(f"a split needs at least 2 rows (or groups of rows), got {n_units}")
