"""True and reconstructed rows of one batch side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import pandas as pd

from lightleak.core.certificate import RowStatus
from lightleak.report.comparison import Group, at_start, strongest_first
from lightleak.report.digits import column_decimals, shorten
from lightleak.report.result import Result
from lightleak.report.run_folder import STATUS, RunFolder, cells_file, load_cells

MOST_ROWS = 64
"""Rows of a batch that are shown; more makes a page that nobody reads and a file that is hard to send."""

SHADES = 4
"""Steps of colour for the attacker's confidence; more cannot be told apart beside each other."""

GAUSSIAN_AT_UNIT_SPREAD = 0.5 * math.log(2 * math.pi * math.e)
"""Differential entropy of a Gaussian whose deviation is one deviation of the column."""


@dataclass(frozen=True)
class Cell:
    """One cell of a reconstructed batch.

    Attributes:
        true: true value as text; None where it is redacted or unknown.
        reconstructed: recovered value as text; None where it is redacted.
        correct: whether it counts as right; None where the truth is unknown.
        entropy: entropy over the attack's restarts; None where the attack has none.
        shade: attacker's confidence in steps from 1 (unsure) to 4 (sure); 0 where it has none.
    """

    true: str | None
    reconstructed: str | None
    correct: bool | None
    entropy: float | None
    shade: int


@dataclass(frozen=True)
class Batch:
    """One reconstructed batch ready to be drawn.

    Attributes:
        group: attack and setting it belongs to.
        result: the batch.
        place: (rank, number) of this batch by accuracy, 1 the most accurate; None where the truth is unknown.
        columns: names in the order of the table.
        rows: (row number counted from 1, its cells in the order of ``columns``; None for a cell the file lacks).
        statuses: of each of these rows, what the attack knew of it without the truth; None where it knows nothing.
        n_rows: rows the file holds.
        redacted: whether values are left out.
    """

    group: Group
    result: Result
    place: tuple[int, int] | None
    columns: tuple[str, ...]
    rows: tuple[tuple[int, tuple[Cell | None, ...]], ...]
    n_rows: int
    redacted: bool
    statuses: tuple[RowStatus | None, ...]

    @property
    def known_statuses(self) -> list[RowStatus]:
        """The different ones, the surest first."""
        return [status for status in get_args(RowStatus) if status in self.statuses]


def typical_batch(runs: Sequence[RunFolder], groups: Sequence[Group], redact: bool) -> Batch | None:
    """The median batch of the strongest attack that kept its reconstructions; None where no run kept any.

    The median and not the best, since the best batch of many shows luck. Where the truth is unknown, the first batch of
    the attack that proved most rows.
    """
    by_name = {run.name: run for run in runs}
    attacks = [group for group in at_start(groups) if not group.is_baseline]
    ranked = strongest_first(attacks)
    unscored = sorted((other for other in attacks if other not in ranked), key=lambda group: -group.proven_share)
    for group in (*ranked, *unscored):
        run = by_name[group.setting.run]
        kept = [result for result in group.results if cells_file(run, result) is not None]
        # A damaged file costs its batch, not the section.
        while kept:
            result, place = _median(kept)
            cells = load_cells(run, result)
            if cells is not None:
                return _batch(group, result, cells, place, redact)
            kept.remove(result)
    return None


def _median(results: Sequence[Result]) -> tuple[Result, tuple[int, int] | None]:
    scored = [result for result in results if "cell_accuracy" in result.metrics]
    if not scored:
        return results[0], None
    scored.sort(key=lambda result: result.metrics["cell_accuracy"], reverse=True)
    middle = len(scored) // 2
    return scored[middle], (middle + 1, len(scored))


def confidence(entropy: float, categorical: bool) -> float:
    """How sure the attacker is of a cell, in [0, 1].

    A category counts ``1 - entropy`` (normalised entropy). A number counts one minus the spread of the restarts in
    deviations of its column, which its Gaussian differential entropy stands for (TabLeak Sec. 3.2).

    >>> confidence(0.25, True), round(confidence(GAUSSIAN_AT_UNIT_SPREAD, False), 3), confidence(-20.0, False) > 0.99
    (0.75, 0.0, True)
    """
    unsure = entropy if categorical else math.exp(min(entropy - GAUSSIAN_AT_UNIT_SPREAD, 0.0))
    return 1 - min(max(unsure, 0.0), 1.0)


def _batch(group: Group, result: Result, cells: pd.DataFrame, place: tuple[int, int] | None, redact: bool) -> Batch:
    columns = tuple(dict.fromkeys(cells["column"]))
    entropies = pd.to_numeric(cells["entropy"], errors="coerce")
    # A normalised entropy lies in [0, 1]; a column that leaves it holds numbers. Inside, both readings nearly agree.
    numerical = set(cells["column"][(entropies < 0) | (entropies > 1)])
    decimals = column_decimals(cells)

    def value(text: str, column: str) -> str | None:
        return None if redact or text == "" else shorten(text, decimals[column])

    found: dict[str, dict[str, Cell]] = {}
    records = zip(
        cells["row"], cells["column"], cells["true"], cells["reconstructed"], cells["correct"], entropies, strict=True
    )
    for row, column, true, reconstructed, correct, entropy in records:
        known = math.isfinite(entropy)
        found.setdefault(row, {})[column] = Cell(
            true=value(true, column),
            reconstructed=value(reconstructed, column),
            correct=_flag(correct),
            entropy=float(entropy) if known else None,
            shade=1 + min(int(SHADES * confidence(entropy, column not in numerical)), SHADES - 1) if known else 0,
        )
    shown = list(found.values())[:MOST_ROWS]
    rows = tuple((number, tuple(row.get(name) for name in columns)) for number, row in enumerate(shown, start=1))
    said = dict(zip(cells["row"], cells[STATUS], strict=True))
    words: dict[str, RowStatus] = {word: word for word in get_args(RowStatus)}
    statuses = tuple(words.get(said[row]) for row in list(found)[:MOST_ROWS])
    return Batch(group, result, place, columns, rows, len(found), redact, statuses)


def _flag(text: str) -> bool | None:
    return {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}.get(text.strip().lower())
