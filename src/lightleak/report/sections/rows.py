"""True and reconstructed rows of one batch side by side."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pandas as pd

from lightleak.core.certificate import RowStatus
from lightleak.core.results import UpdateRow
from lightleak.report.compare import Group, by_key
from lightleak.report.digits import column_decimals, shorten
from lightleak.report.format import DASH, percent
from lightleak.report.page import Block, Cell, Legend, Line, Lines, Paragraph, Section, Table, text
from lightleak.report.read import STATUS, Run, cells_file, load_cells
from lightleak.report.sections.certificates import MARKS, MEANINGS

MOST_ROWS = 64
"""Rows of a batch that are shown; more makes a page that nobody reads and a file that is hard to send."""

SHADES = 4
"""Steps of color for the attacker's confidence; more cannot be told apart side by side."""

GAUSSIAN_AT_UNIT_SPREAD = 0.5 * math.log(2 * math.pi * math.e)
"""Differential entropy of a Gaussian whose deviation is one deviation of the column."""

_TONES = {True: ("hit", "✓", "right"), False: ("miss", "✗", "wrong"), None: ("unknown", "?", "truth unknown")}


@dataclass(frozen=True)
class Batch:
    """One reconstructed batch.

    Attributes:
        group: attack and what was fixed.
        row: the row of ``results.json``.
        place: rank and number of this batch by accuracy, 1 the most accurate; None where the truth is unknown.
        cells: its cells in long form.
    """

    group: Group[UpdateRow]
    row: UpdateRow
    place: tuple[int, int] | None
    cells: pd.DataFrame

    @property
    def n_rows(self) -> int:
        """Rows of the file."""
        return int(self.cells["row"].nunique())


def typical_batch(runs: Sequence[Run], ranked: Iterable[Group[UpdateRow]]) -> Batch | None:
    """The median batch of the first attack that kept its reconstructions; None where no run kept any.

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
    title = "Rows side by side"
    if batch is None:
        return Section(
            "rows",
            title,
            (Paragraph("No reconstructed rows were kept in this run folder, or they could not be read."),),
        )
    columns, shown = tuple(dict.fromkeys(batch.cells["column"])), min(batch.n_rows, MOST_ROWS)
    statuses = [status for status in get_args(RowStatus) if status in set(batch.cells[STATUS])]
    blocks: list[Block] = [Paragraph(_words(batch, unit, shown, redact)), _legend()]
    if statuses:
        blocks.append(Legend(tuple((_status(status), MEANINGS[status]) for status in statuses)))
    blocks += [
        Table("True and reconstructed rows", ("Row", *columns), tuple(_lines(batch, columns, redact)), box="rows"),
        Paragraph(
            f"The box contains {shown} {'row' if shown == 1 else 'rows'} and {len(columns)} columns; scroll inside it "
            "to see them all.",
            "note",
        ),
    ]
    return Section("rows", title, tuple(blocks))


def confidence(entropy: float, categorical: bool) -> float:
    """How sure the attacker is of a cell, in [0, 1].

    A category counts ``1 - entropy`` (normalized entropy). A number counts one minus the spread of the restarts in
    deviations of its column, which its Gaussian differential entropy stands for (TabLeak Sec. 3.2).

    >>> confidence(0.25, True), round(confidence(GAUSSIAN_AT_UNIT_SPREAD, False), 3), confidence(-20.0, False) > 0.99
    (0.75, 0.0, True)
    """
    unsure = entropy if categorical else math.exp(min(entropy - GAUSSIAN_AT_UNIT_SPREAD, 0.0))
    return 1 - min(max(unsure, 0.0), 1.0)


def shade(entropy: float, categorical: bool) -> int:
    """The attacker's confidence in steps from 1 (unsure) to 4 (sure); 0 where it has none."""
    if not math.isfinite(entropy):
        return 0
    return 1 + min(int(SHADES * confidence(entropy, categorical)), SHADES - 1)


def _median(rows: Sequence[UpdateRow]) -> tuple[UpdateRow, tuple[int, int] | None]:
    scored = [row for row in rows if row.number("cell_accuracy") is not None]
    if not scored:
        return rows[0], None
    scored.sort(key=lambda row: row.number("cell_accuracy") or 0.0, reverse=True)
    middle = len(scored) // 2
    return scored[middle], (middle + 1, len(scored))


def _words(batch: Batch, unit: tuple[str, str], shown: int, redact: bool) -> str:
    size = f" of {batch.group.first.batch_size} rows" if batch.group.first.batch_size else ""
    found = [f"{batch.group.title} on one {unit[0]}{size}."]
    if batch.place is None:
        found.append("The truth is not part of this run, so cells cannot be marked right or wrong.")
    else:
        found.append(f"{percent(batch.row.number('cell_accuracy'))} of its cells are right.")
        place, n = batch.place
        found.append(
            f"It is the only {unit[0]} whose rows were kept."
            if n == 1
            else f"It is the median {unit[0]}, number {place} of {n} by accuracy, not the best one."
        )
    if batch.n_rows > shown:
        found.append(f"The first {shown} of {batch.n_rows} rows are shown.")
    if redact:
        found.append("Values are left out; only hits and misses are shown.")
    return " ".join(found)


def _legend() -> Legend:
    def swatches(css: str, sign: str) -> str:
        many = text("").join(
            text('<span class="cell {} shade{}">{}</span>', css, step, sign) for step in range(1, SHADES + 1)
        )
        return text('<span class="swatches">{}</span>', many)

    return Legend(
        (
            (swatches("hit", "✓"), "recovered rightly"),
            (swatches("miss", "✗"), "recovered wrongly"),
            (
                "",
                "The deeper the color, the surer the attacker was (lower entropy). An outline only: the attack has no "
                "confidence. Hover over a cell for its entropy.",
            ),
        )
    )


def _status(status: str) -> str:
    if status not in MARKS:
        return ""
    words = '<span class="status {0}" title="{0}: {1}">{2}&nbsp;{0}</span>'
    return text(words, status, MEANINGS[status], MARKS[status])


def _lines(batch: Batch, columns: Sequence[str], redact: bool) -> Iterable[Lines]:
    cells = batch.cells
    entropies = pd.to_numeric(cells["entropy"], errors="coerce")
    # A normalized entropy lies in [0, 1]; a column that leaves it contains numbers. Inside, both readings nearly agree.
    numerical = set(cells["column"][(entropies < 0) | (entropies > 1)])
    decimals = column_decimals(cells)
    records = cells.assign(entropy=entropies).to_dict("records")
    by_row = {
        row: {str(one["column"]): one for one in same} for row, same in by_key(records, lambda one: one["row"]).items()
    }
    for number, of_row in enumerate(list(by_row.values())[:MOST_ROWS], start=1):
        found, true = [], []
        for name in columns:
            one = of_row.get(name)
            written = {
                side: "" if one is None or redact else shorten(str(one[side]), decimals[name])
                for side in ("true", "reconstructed")
            }
            true.append(Cell(written["true"] or DASH, css="long"))
            found.append(
                Cell(DASH if one is None else _cell(one, written["reconstructed"], name not in numerical), css="long")
            )
        head = text('<span class="number">{}</span>', number)
        status = _status(str(next(iter(of_row.values()))[STATUS]))
        recovered = Line((Cell(text("{}recovered {}", text("{} ", head) if redact else "", status)), *found))
        lines = (recovered,) if redact else (Line((Cell(text("{} true", head)), *true), "true"), recovered)
        yield Lines(lines)


def _cell(one: Mapping[Any, Any], value: str, categorical: bool) -> str:
    css, sign, words = _TONES[_flag(str(one["correct"]))]
    entropy = float(str(one["entropy"]))
    sure = f"entropy {entropy:.2f}" if math.isfinite(entropy) else "no confidence"
    return text(
        '<span class="cell {} shade{}" title="{}: {}, {}"><b aria-label="{}">{}</b>{}</span>',
        css,
        shade(entropy, categorical),
        one["column"],
        words,
        sure,
        words,
        sign,
        value,
    )


def _flag(text: str) -> bool | None:
    return {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}.get(text.strip().lower())
