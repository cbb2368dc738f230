"""True and reconstructed rows of one batch side by side."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import get_args

from lightleak.core.certificate import RowStatus
from lightleak.core.grouping import by_key
from lightleak.core.results import UpdateRow
from lightleak.report.blocks import Block, Cell, Line, Section
from lightleak.report.format import DASH, counted
from lightleak.report.kinds.updates_groups import UpdateGroup
from lightleak.report.page import cells_table, fill, folded, line_of
from lightleak.report.read import STATUS, Run, cells_file, load_cells
from lightleak.report.read import Cell as Value

MOST_CELLS = 1500
"""Cells of a batch that are shown, true and reconstructed; more makes a page that nobody reads and a file that is
hard to send."""

SHADES = 4
"""Steps of color for the attacker's confidence; more cannot be distinguished side by side."""

GAUSSIAN_AT_UNIT_SPREAD = 0.5 * math.log(2 * math.pi * math.e)
"""Differential entropy of a Gaussian whose deviation is one deviation of the column."""

SHOWN_DIGITS = 4
"""Of the numbers of a table, which pass through an encoder and back: that leaves 22.9999999 for 23."""

_NUMBER = re.compile(r"[+-]?\d+(?:\.(?P<decimals>\d+))?(?P<power>e[+-]\d+)?")
_FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


@dataclass(frozen=True)
class Batch:
    """One reconstructed batch.

    Attributes:
        group: attack and what was fixed.
        row: the row of ``results.json``.
        place: rank and number of this batch by accuracy, 1 the most accurate; None where the truth is unknown.
        cells: its cells in long form.
    """

    group: UpdateGroup
    row: UpdateRow
    place: tuple[int, int] | None
    cells: tuple[Value, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the file."""
        return len({cell["row"] for cell in self.cells})


def typical_batch(runs: Sequence[Run], ranked: Iterable[UpdateGroup]) -> Batch | None:
    """Return the median batch of the first attack that kept its reconstructions; None where no run kept any.

    The median and not the best, since the best batch of many shows luck. Where the truth is unknown, the first batch.
    """
    by_name = {run.name: run for run in runs}
    for group in ranked:
        run = by_name[group.first.run]
        kept = [row for row in group.rows if cells_file(run, row.reconstruction) is not None]
        while kept:  # a damaged file costs its batch, not the section
            row, place = _median(kept)
            cells = load_cells(run, row.reconstruction)
            if cells is not None:
                return Batch(group, row, place, cells)
            kept.remove(row)
    return None


def rows_section(batch: Batch | None, unit: tuple[str, str], redact: bool) -> Section:
    """Draw the rows of a batch; with ``redact`` only whether each cell is right."""
    columns = tuple(dict.fromkeys(cell["column"] for cell in batch.cells)) if batch else ()
    most = max(1, MOST_CELLS // max(1, len(columns)))
    blocks: list[Block] = [fill("rows", "words", batch, unit, most, redact)]
    if batch is not None:
        statuses = [status for status in get_args(RowStatus) if any(cell[STATUS] == status for cell in batch.cells)]
        shown = tuple(islice(_lines(batch, columns, redact), most))
        legend = fill("rows", "legend", range(1, SHADES + 1), statuses)
        groups = (("", lines) for lines in shown)
        table = cells_table("True and reconstructed rows", ("Row", *columns), groups, box="rows")
        blocks += folded(f"{counted(len(shown), 'row')} of {counted(len(columns), 'column')}", legend, table)
    return Section("rows", "Rows side by side", tuple(blocks))


def confidence(entropy: float, categorical: bool) -> float:
    """Return how sure the attacker is of a cell, in [0, 1].

    A category counts ``1 - entropy`` (normalized entropy). A number counts one minus the spread of the restarts in
    deviations of its column, derived from its Gaussian differential entropy (TabLeak Sec. 3.2).

    >>> confidence(0.25, True), round(confidence(GAUSSIAN_AT_UNIT_SPREAD, False), 3), confidence(-20.0, False) > 0.99
    (0.75, 0.0, True)
    """
    unsure = entropy if categorical else math.exp(min(entropy - GAUSSIAN_AT_UNIT_SPREAD, 0.0))
    return 1 - min(max(unsure, 0.0), 1.0)


def shade(entropy: float, categorical: bool) -> int:
    """Return the attacker's confidence in steps from 1 (unsure) to 4 (sure); 0 where it has none."""
    if not math.isfinite(entropy):
        return 0
    return 1 + min(int(SHADES * confidence(entropy, categorical)), SHADES - 1)


def shown_decimals(texts: Iterable[str]) -> int | None:
    """Return decimals that show about four digits of the largest number of a column; None without numbers.

    >>> shown_decimals(["22.999999878", "9.5", "high"]), shown_decimals(["1484705"]), shown_decimals(["high"])
    (2, 0, None)
    """
    numbers = [abs(float(text)) for text in texts if _NUMBER.fullmatch(text)]
    largest = max((number for number in numbers if math.isfinite(number)), default=0.0)
    return max(0, SHOWN_DIGITS - 1 - math.floor(math.log10(largest))) if largest > 0 else None


def shorten(text: str, decimals: int) -> str:
    """Return a number with more decimals than shown rounded; any other text unchanged.

    >>> shorten("22.999999878", 2), shorten("2.3e-08", 2), shorten("9.5", 2), shorten("high", 2), shorten("007", 2)
    ('23', '0', '9.5', 'high', '007')
    """
    found = _NUMBER.fullmatch(text)
    if not found or not math.isfinite(float(text)) or (len(found["decimals"] or "") <= decimals and not found["power"]):
        return text
    short = f"{float(text):.{decimals}f}"
    short = short.rstrip("0").rstrip(".") if decimals else short
    return "0" if float(short) == 0 else short


def _median(rows: Sequence[UpdateRow]) -> tuple[UpdateRow, tuple[int, int] | None]:
    scored = [row for row in rows if row.number("cell_accuracy") is not None]
    if not scored:
        return rows[0], None
    scored.sort(key=lambda row: row.number("cell_accuracy") or 0.0, reverse=True)
    middle = len(scored) // 2
    return scored[middle], (middle + 1, len(scored))


def _lines(batch: Batch, columns: Sequence[str], redact: bool) -> Iterable[list[Line]]:
    """Each reconstructed row below the true one, or alone where values are left out."""
    of_column = by_key(batch.cells, lambda cell: cell["column"])
    # A normalized entropy lies in [0, 1]; a column that leaves it contains numbers. Inside, both readings nearly agree.
    numerical = {
        name for name, same in of_column.items() if any(_entropy(one) < 0 or _entropy(one) > 1 for one in same)
    }
    decimals = {name: _decimals(same) for name, same in of_column.items()}

    def shown(cell: Value, side: str) -> str:
        return "" if redact else shorten(cell[side], decimals[cell["column"]])

    def recovered(cell: Value | None) -> str:
        if cell is None:
            return DASH
        step = shade(_entropy(cell), cell["column"] not in numerical)
        is_right = _FLAGS.get(cell["correct"].strip().lower())
        return fill("rows", "cell", cell["column"], shown(cell, "reconstructed"), is_right, _entropy(cell), step)

    by_row = by_key(batch.cells, lambda cell: cell["row"]).values()
    for number, of_row in enumerate(by_row, start=1):
        cells = [{one["column"]: one for one in of_row}.get(name) for name in columns]
        head = fill("rows", "head", number if redact else 0, "recovered", of_row[0][STATUS])
        found = line_of(head, *(Cell(recovered(one), css="long") for one in cells))
        true = (Cell((one and shown(one, "true")) or DASH, css="long") for one in cells)
        above = [] if redact else [line_of(fill("rows", "head", number, "true", ""), *true, css="true")]
        yield [*above, found]


def _entropy(cell: Value) -> float:
    try:
        return float(cell["entropy"])
    except ValueError:
        return math.nan


def _decimals(cells: Sequence[Value]) -> int:
    """Decimals of a column: the true numbers decide, as an attack without bounds may return any magnitude."""
    sides = (shown_decimals(cell[side] for cell in cells) for side in ("true", "reconstructed"))
    return next((decimals for decimals in sides if decimals is not None), 0)
