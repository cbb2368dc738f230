"""A paper's cells beside ours: ``comparison.md``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightleak.audit.paper.values import PaperCell, PaperTable
from lightleak.metrics.summary import Summary

TOLERANCE_POINTS = 3.0
PAPER_BATCHES = 50
SHOWN = (
    "dataset",
    "network",
    "attack",
    "labels",
    "batch_size",
    "training_epochs",
    "steps",
    "restarts",
    "pooling",
    "column",
    "feature_kind",
    "metric",
)
"""Coordinates that become columns where a table varies them."""


@dataclass(frozen=True)
class Compared:
    """One cell of the paper and what we measured for it, in the paper's unit."""

    cell: PaperCell
    ours: Summary

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours.mean - self.cell.mean

    @property
    def agrees(self) -> bool | None:
        """Within 3 points, the combined 95% interval, or what rounding hides in the paper's last digit.

        ``None`` where the paper prints no value, ours is missing, or nothing says how far it may lie (a correlation).
        """
        if math.isnan(self.difference) or self.cell.unit == "correlation":
            return None
        spread = 0.0 if math.isnan(self.ours.high) else self.ours.high - self.ours.mean
        paper = 1.96 * (self.cell.std or 0.0) / math.sqrt(PAPER_BATCHES)
        tolerance = TOLERANCE_POINTS if self.cell.unit == "percent" else _half_digit(self.cell.mean)
        return abs(self.difference) <= max(tolerance, math.hypot(spread, paper))


def _half_digit(printed: float) -> float:
    """Half a unit of the last digit the paper prints, with room for the float itself.

    >>> round(_half_digit(4.2), 6), round(_half_digit(33699.0), 6)
    (0.05, 0.5)
    """
    _, _, decimals = f"{printed:.12g}".partition(".")
    return 0.5 * 10.0 ** -len(decimals) + 1e-9


def markdown(
    table: PaperTable, compared: Sequence[Compared], environment: dict[str, Any], command: str, notes: Sequence[str]
) -> str:
    """The comparison as a page: one line per cell, coordinates that do not vary left out of the columns."""
    keys = [key for key in SHOWN if any(getattr(c.cell, key) is not None for c in compared)]
    packages = environment["packages"]
    answers = [c.agrees for c in compared if c.agrees is not None]
    verdict = "The paper prints no numbers to compare with."
    if answers:
        verdict = (
            f"{sum(answers)} of {len(answers)} cells agree: within {TOLERANCE_POINTS:.0f} points (of percentages), the "
            f"combined 95% interval (the paper's from its deviation over {PAPER_BATCHES} batches), or its last digit."
        )
    header = [*keys, "paper", "ours", "95% interval", "n", "difference", "agrees"]
    lines = [
        f"# {table.name}: {table.title}",
        "",
        f"{table.source}, {'Table' if table.table else 'Figure'} {table.table or table.figure}, {table.page}.",
        "",
        f"Made by `{command}` on {environment['date'][:10]}, {environment['cores']} cores, {environment['device']}, "
        f"Python {environment['python']}, torch {packages['torch']}, lightleak {packages['lightleak']}.",
        "",
        verdict,
        "",
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
    ]
    lines += [_line(c, keys) for c in compared]
    if table.notes or table.description or notes:
        lines += ["", "Notes", ""]
        lines += [f"- {note}" for note in (table.description, table.notes, *notes) if note]
    return "\n".join(lines) + "\n"


def _line(compared: Compared, keys: Sequence[str]) -> str:
    cell, ours, unit = compared.cell, compared.ours, compared.cell.unit
    coordinates = ["" if (value := getattr(cell, key)) is None else str(value) for key in keys]
    paper = "-" if math.isnan(cell.mean) else _with_deviation(cell.mean, cell.std, unit)
    mine = "not run" if ours.n == 0 else _with_deviation(ours.mean, ours.std, unit)
    interval = "" if math.isnan(ours.low) else f"{_number(ours.low, unit)} to {_number(ours.high, unit)}"
    decimals = 0 if unit == "count" else 2
    difference = "" if math.isnan(compared.difference) else f"{compared.difference:+.{decimals}f}"
    agrees = {True: "yes", False: "no", None: ""}[compared.agrees]
    return "| " + " | ".join([*coordinates, paper, mine, interval, str(ours.n), difference, agrees]) + " |"


def _with_deviation(mean: float, std: float | None, unit: str) -> str:
    return _number(mean, unit) + ("" if std is None or math.isnan(std) else f" ± {_number(std, unit)}")


def _number(value: float, unit: str = "percent") -> str:
    """Two decimals below 10 and one above, none above 1000 or for counts: the precision the papers print.

    >>> _number(79.31), _number(0.394), _number(45222), _number(8.0, "count")
    ('79.3', '0.39', '45222', '8')
    """
    magnitude = abs(value)
    if magnitude >= 1000 or unit == "count":
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"
