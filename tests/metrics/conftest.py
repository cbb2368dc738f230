"""Random batches, and the same metrics once more as plain loops over Python values."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest

from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.metrics import MatchedBatch

TOLERANCE = 0.319  # TabLeak App. A

# Numbers and categories alternate, so that a mix-up of the two orders cannot go unseen.
MIXED = (
    Column.integer("age", 18, 90),
    Column.categorical("color", ["red", "green", "blue"]),
    Column.continuous("height"),
    Column.categorical("sex", ["F", "M"]),
    Column.integer("children", 0, 6),
)


@dataclass(frozen=True)
class Case:
    encoder: TableEncoder
    truth: pd.DataFrame
    guess: pd.DataFrame
    uncertainty: pd.DataFrame

    @property
    def batch(self) -> MatchedBatch:
        return MatchedBatch.compare(self.encoder, self.truth, self.guess, self.uncertainty)


def _random_rows(columns: Sequence[Column], n: int, rng: np.random.Generator) -> pd.DataFrame:
    cells = {}
    for column in columns:
        if column.kind is ColumnKind.CATEGORICAL:
            cells[column.name] = rng.choice(np.array(column.categories, dtype=object), n)
        elif column.kind is ColumnKind.INTEGER:
            cells[column.name] = rng.integers(0, 7, n) if column.name == "children" else rng.integers(18, 91, n)
        else:
            cells[column.name] = rng.normal(170, 10, n)
    return pd.DataFrame(cells)


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Case]:
    """``make_case(seed, n, wrong)``: a truth and its shuffled copy with a share of the cells drawn anew."""

    @cache
    def fitted(columns: tuple[Column, ...]) -> TableEncoder:
        schema = TableSchema(columns, Column.categorical("ill", ["no", "yes"]))
        return TableEncoder(schema).fit(_random_rows(columns, 200, np.random.default_rng(0)))

    def make(seed: int, n: int = 4, wrong: float = 0.4, columns: Sequence[Column] = MIXED) -> Case:
        rng = np.random.default_rng(seed)
        truth, other = _random_rows(columns, n, rng), _random_rows(columns, n, rng)
        order = rng.permutation(n)
        guess = {}
        for name in truth.columns:
            redrawn = rng.random(n) < wrong
            guess[name] = np.where(redrawn, other[name], truth[name])[order]
        # Few distinct values, so that ranks tie as they do over 30 restarts.
        uncertainty = pd.DataFrame(rng.integers(0, 4, truth.shape) / 4, columns=truth.columns)
        return Case(fitted(tuple(columns)), truth, pd.DataFrame(guess), uncertainty)

    return make


class SlowReference:
    """Every definition as a loop over cells. It shares no line with the package."""

    def cell_right(self, case: Case, column: str, true: object, guess: object) -> bool:
        kind = case.encoder.schema.column(column).kind
        if kind is ColumnKind.CATEGORICAL:
            return true == guess
        return abs(float(guess) - float(true)) <= TOLERANCE * self.deviation(case, column)

    def cell_equal(self, case: Case, column: str, true: object, guess: object) -> bool:
        kind = case.encoder.schema.column(column).kind
        if kind is ColumnKind.CATEGORICAL:
            return true == guess
        if kind is ColumnKind.INTEGER:
            return round(float(true)) == round(float(guess))
        return abs(float(guess) - float(true)) <= 1e-6 * self.deviation(case, column)

    def deviation(self, case: Case, column: str) -> float:
        names = [c.name for c in case.encoder.schema.columns if c.kind is not ColumnKind.CATEGORICAL]
        return float(case.encoder.deviation[names.index(column)])

    def row_values(self, case: Case, true: int, guess: int) -> tuple[int, bool]:
        names = list(case.truth.columns)
        pairs = [(name, case.truth[name].iloc[true], case.guess[name].iloc[guess]) for name in names]
        return sum(self.cell_right(case, *p) for p in pairs), all(self.cell_equal(case, *p) for p in pairs)

    def best_totals(self, case: Case) -> tuple[int, int]:
        """Most right cells over all orders of the rows and, among those orders, most equal rows."""
        n = len(case.truth)
        best = (-1, -1)
        for order in itertools.permutations(range(n)):
            values = [self.row_values(case, i, j) for i, j in enumerate(order)]
            best = max(best, (sum(v[0] for v in values), sum(v[1] for v in values)))
        return best

    def hits(self, case: Case, order: Sequence[int]) -> list[list[bool]]:
        return [
            [self.cell_right(case, c, case.truth[c].iloc[i], case.guess[c].iloc[j]) for c in case.truth.columns]
            for i, j in enumerate(order)
        ]

    def accuracy(self, case: Case, order: Sequence[int], kinds: set[ColumnKind]) -> float:
        chosen = [
            right
            for row in self.hits(case, order)
            for right, column in zip(row, case.encoder.schema.columns, strict=True)
            if column.kind in kinds
        ]
        return sum(chosen) / len(chosen) if chosen else math.nan

    def rmse(self, case: Case, order: Sequence[int], standardized: bool) -> float:
        by_column = []
        for column in case.encoder.schema.columns:
            if column.kind is ColumnKind.CATEGORICAL:
                continue
            total = 0.0
            for i, j in enumerate(order):
                error = float(case.guess[column.name].iloc[j]) - float(case.truth[column.name].iloc[i])
                if standardized:
                    error /= self.deviation(case, column.name)
                total += error * error
            by_column.append(math.sqrt(total / len(order)))
        return sum(by_column) / len(by_column) if by_column else math.nan

    def ranked_accuracy(self, hits: Sequence[bool], entropy: Sequence[float], end: str, share: float) -> float:
        """The mean over every order in which cells of equal entropy could stand."""
        cells = [(e, right) for e, right in zip(entropy, hits, strict=True) if not math.isnan(e)]
        if not cells:
            return math.nan
        places = math.ceil(share * len(cells))
        found = []
        for arrangement in itertools.permutations(cells):
            ranked = sorted(arrangement, key=lambda cell: cell[0], reverse=end == "bottom")
            found.append(sum(right for _, right in ranked[:places]) / places)
        return sum(found) / len(found)

    def label_count_error(self, restored: Sequence[int], true: Sequence[int]) -> float:
        classes = set(restored) | set(true)
        return sum(abs(restored.count(c) - true.count(c)) for c in classes) / 2 / len(true)


@pytest.fixture(scope="session")
def slow() -> SlowReference:
    return SlowReference()
