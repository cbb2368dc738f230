"""Comparison of a paper's cells with ours: ``comparison.md`` for readers, ``comparison.json`` for programs."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lightleak.core.results import NONE, SCHEMA_VERSION, ValueRow
from lightleak.core.summary import CONFIDENCE, Z95, Summary, student
from lightleak.reproductions.paper.values import PaperCell, PaperTable

COMPARISON_FILE = "comparison.json"
FEWEST = 5
"""Measurements below which a cell is not judged: with so few, agreement is a matter of chance."""
NOT_COMPARED = ("correlation", "distance", "seconds")
"""Units without a criterion for agreement: seconds on another machine, distances of histograms whose bins are not
stated."""
DECIMALS = {"count": 0, "fraction": 4, "distance": 4}
"""Decimals with which numbers of a unit are shown; others by magnitude."""
PRINTED_DECIMALS = DECIMALS | {
    **dict.fromkeys(("percent", "dB", "hours", "labels"), 1),
    **dict.fromkeys(("nats", "normalized", "squared_distance", "distinguishing_accuracy"), 2),
}
"""Decimals that papers print of a metric or a unit; of others, those of the number itself."""
RULE = (
    "two values agree if their difference is within the combined 95% interval of both means and half a unit of the "
    "last printed digit; where the paper prints no deviation, its measurements are taken to spread as ours do, and "
    "where all of ours are equal, ours as those of the paper"
)
_HIDDEN = ("metric", "unit", "mean", "std", "protocol", "sigmoid_bounds")
SHOWN = (*(field.name for field in fields(PaperCell) if field.name not in _HIDDEN), "metric")
"""Coordinates that become columns where a table varies them."""


@dataclass(frozen=True)
class Compared:
    """One cell of the paper and what we measured for it, in the paper's unit.

    Attributes:
        cell: the paper's.
        ours: our result.
        same_data: ours was measured on the paper's table; otherwise there is no criterion for agreement.
        stand_in: what ours was measured on instead, for the heads of the two columns; their difference is left out.
        is_fact: ours was read off a table or a network, not measured on samples: one value is all there is.
        seconds: wall time of the attacks behind ours.
        measurements: number of measurements behind the paper's mean.
    """

    cell: PaperCell
    ours: Summary
    same_data: bool = True
    stand_in: str | None = None
    is_fact: bool = False
    seconds: float = 0.0
    measurements: int = 1

    @property
    def difference(self) -> float:
        """Ours minus the paper's."""
        return self.ours.mean - self.cell.mean

    @property
    def agrees(self) -> bool | None:
        """Whether the two values are within `allowed` of each other.

        ``None`` where the paper prints no value, ours is missing, nothing says how far it may lie (a correlation,
        another table), or there are `too_few` measurements.
        """
        if not self._is_comparable or self.too_few:
            return None
        return abs(self.difference) <= self.allowed

    @property
    def allowed(self) -> float:
        """The largest difference that counts as agreement, in the cell's unit: see `RULE`."""
        # The side that faces the paper's value: a share's interval is not even.
        facing = self.ours.mean - self.ours.low if self.difference > 0 else self.ours.high - self.ours.mean
        ours = 0.0 if math.isnan(facing) else facing
        if self.ours.std == 0 and self.cell.std is not None and not self.is_fact:
            ours = Z95 * self.cell.std / math.sqrt(self.ours.n)
        if self.printed_error is not None:
            return math.hypot(ours, Z95 * self.printed_error) + rounding(self.cell)
        spread = 0.0 if math.isnan(self.ours.std) else self.ours.std
        paper = student(CONFIDENCE, max(self.ours.n - 1, 1)) * spread / math.sqrt(self.measurements)
        return math.hypot(ours, paper) + rounding(self.cell)

    @property
    def printed_error(self) -> float | None:
        """Standard error of the printed mean; None where the paper prints no deviation."""
        return None if self.cell.std is None else self.cell.std / math.sqrt(self.measurements)

    @property
    def too_few(self) -> bool:
        """Whether the cell could be compared, but was measured fewer than `FEWEST` times."""
        return self._is_comparable and not self.is_fact and self.ours.n < FEWEST

    @property
    def _is_comparable(self) -> bool:
        return not math.isnan(self.difference) and self.cell.unit not in NOT_COMPARED and self.same_data

    def row(self, table: PaperTable) -> ValueRow:
        """Return the cell of ``table`` as a typed row with both values."""
        cell, ours = self.cell, self.ours
        shared = ("metric", "dataset", "protocol", "defense", "column", "property_name")
        return ValueRow(
            **{name: getattr(cell, name) for name in shared},
            attack=cell.attack or NONE,
            target=cell.network,
            seconds=self.seconds,
            value=ours.mean,
            paper=table.source,
            table=table.name,
            page=table.page,
            cell=cell.coordinates,
            value_unit=cell.unit,
            printed=cell.mean,
            printed_error=self.printed_error,
            std=ours.std,
            n=ours.n,
            low=ours.low,
            high=ours.high,
            agrees=self.agrees,
            measured_on=self.stand_in,
        )


def comparison_json(table: PaperTable, compared: Sequence[Compared], notes: Sequence[str] = ()) -> str:
    """Return the text of `COMPARISON_FILE`."""
    rows = [one.row(table).to_dict() for one in compared]
    return json.dumps({"schema_version": SCHEMA_VERSION, "notes": [*notes], "rows": rows}, indent=1)


def rounding(cell: PaperCell) -> float:
    """Return what rounding hides in the last digit of a printed value, with room for the float's own rounding.

    >>> round(rounding(PaperCell("cell_accuracy", "percent", 79.0)), 6), round(rounding(PaperCell("n", "rows", 339)), 6)
    (0.05, 0.5)
    """
    _, _, written = f"{cell.mean:.12g}".partition(".")
    decimals = PRINTED_DECIMALS.get(cell.metric, PRINTED_DECIMALS.get(cell.unit, len(written)))
    return 0.5 * 10.0**-decimals + 1e-9


def chance_of_agreement(compared: Sequence[Compared]) -> float | None:
    """Return the share of the judged cells that would agree if ours were exchanged among cells of the same metric.

    What is not judged is left out; None where no two cells can be exchanged.
    """
    judged = [one for one in compared if one.agrees is not None]
    exchanged = [
        replace(one, ours=other.ours).agrees
        for one in judged
        for other in judged
        if other is not one and (other.cell.metric, other.cell.unit) == (one.cell.metric, one.cell.unit)
    ]
    return sum(map(bool, exchanged)) / len(exchanged) if exchanged else None


def markdown(
    table: PaperTable, compared: Sequence[Compared], environment: dict[str, Any], command: str, notes: Sequence[str]
) -> str:
    """Return the comparison as a page: one line per cell, with columns only for coordinates that vary."""
    keys = [key for key in SHOWN if any(getattr(c.cell, key) is not None for c in compared)]
    packages = environment["packages"]
    header = [*keys, *_heads(compared), "95% interval", "n", "difference", "agrees"]
    lines = [
        f"# {table.name}: {table.title}",
        "",
        f"{table.source}, {'Table' if table.table else 'Figure'} {table.table or table.figure}, {table.page}.",
        "",
        f"Made by `{command}` on {environment['date'][:10]}, {environment['cores']} cores, {environment['device']}, "
        f"Python {environment['python']}, torch {packages['torch']}, lightleak {packages['lightleak']}.",
        "",
        _verdict(compared),
        "",
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
    ]
    lines += [_line(c, keys) for c in compared]
    if table.notes or table.description or notes:
        lines += ["", "Notes", ""]
        lines += [f"- {note}" for note in (table.description, table.notes, *notes) if note]
    return "\n".join(lines) + "\n"


def _heads(compared: Sequence[Compared]) -> tuple[str, str]:
    """Return the heads of the paper's column and of ours, with the data of each where they differ."""
    datasets, own = {c.cell.dataset for c in compared}, {c.stand_in for c in compared}
    if len(datasets) != 1 or len(own) != 1 or None in datasets | own:
        return "paper", "ours"
    return f"paper: {datasets.pop()}", f"ours: {own.pop()}"


def _verdict(compared: Sequence[Compared]) -> str:
    answers = [c.agrees for c in compared if c.agrees is not None]
    few = sum(c.too_few for c in compared)
    if few and not answers:
        return f"Too few measurements: no cell was measured {FEWEST} times or more, so nothing is judged."
    if not answers:
        if any(not c.same_data for c in compared):
            return "Measured on another table than the paper's: nothing is judged."
        return "The paper prints no numbers to compare with."
    chance = chance_of_agreement(compared)
    found = f"{sum(answers)} of {len(answers)} cells agree ({RULE})."
    if chance is not None:
        found += f" If nothing differed, {CONFIDENCE:.0%} would; if ours were exchanged among them, {chance:.0%} would."
    return found + (f" {few} more were measured fewer than {FEWEST} times, too few to judge." if few else "")


def _line(compared: Compared, keys: Sequence[str]) -> str:
    cell, ours, unit = compared.cell, compared.ours, compared.cell.unit
    coordinates = [_coordinate(getattr(cell, key)) for key in keys]
    paper = "-" if math.isnan(cell.mean) else _with_deviation(cell.mean, cell.std, unit)
    mine = "not run" if ours.n == 0 else _with_deviation(ours.mean, ours.std, unit)
    interval = "" if math.isnan(ours.low) else f"{_number(ours.low, unit)} to {_number(ours.high, unit)}"
    decimals = DECIMALS.get(unit, 2)
    apart = math.isnan(compared.difference) or compared.stand_in is not None
    difference = "" if apart else f"{compared.difference:+.{decimals}f}"
    agrees = "too few" if compared.too_few else {True: "yes", False: "no", None: ""}[compared.agrees]
    return "| " + " | ".join([*coordinates, paper, mine, interval, str(ours.n), difference, agrees]) + " |"


def _coordinate(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_deviation(mean: float, std: float | None, unit: str) -> str:
    return _number(mean, unit) + ("" if std is None or math.isnan(std) else f" ± {_number(std, unit)}")


def _number(value: float, unit: str = "percent") -> str:
    """Format a number with the precision that the papers print: see `DECIMALS`, else by magnitude.

    >>> _number(79.31), _number(0.394), _number(45222), _number(8.0, "count"), _number(0.0186, "fraction")
    ('79.3', '0.39', '45222', '8', '0.0186')
    """
    if unit in DECIMALS:
        return f"{value:.{DECIMALS[unit]}f}"
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"
