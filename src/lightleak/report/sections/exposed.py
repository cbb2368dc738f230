"""The most exposed people of a training, for the owner of its table alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from lightleak.core.people import People, exposure
from lightleak.report.blocks import Block, Cell, Column
from lightleak.report.format import DASH, counted
from lightleak.report.page import fill, table_of
from lightleak.report.read import Run

MOST_PEOPLE = 10
"""People that are listed; the file of the run folder has all of them."""

_VERDICTS = ("proven", "recovered")


@dataclass(frozen=True)
class Person:
    """One person's risk.

    Attributes:
        person: number in the training part of the table.
        row: label in the source; empty where that is not known.
        verdict: the strongest that some update gave.
        seen: updates with the record.
        proven: of these, updates that proved it.
        recovered: of these, updates from which every column came back, with proof or without.
        first: step or round of the first proof, from 1; None where there is none.
        sharing: other rows of the table that are equal; None where that is not known.
    """

    person: str
    row: str
    verdict: str
    seen: int
    proven: int
    recovered: int
    first: int | None
    sharing: int | None

    @property
    def order(self) -> tuple[float, ...]:
        """What people are ordered by, from the most exposed on."""
        return exposure(self.verdict, self.seen, self.proven, self.recovered, self.first, self.sharing)

    @property
    def risk(self) -> tuple[float, ...]:
        """The same without how many proofs there were, and when: verdict, how few share the row, how often."""
        return self.order[:3]


def most_exposed(run: Run, people: People) -> tuple[list[Person], int]:
    """Return the most exposed people, and how many there are of the risk of the first."""
    found = sorted(_exposed(run, people), key=lambda one: one.order)
    return found[:MOST_PEOPLE], sum(one.risk == found[0].risk for one in found) if found else 0


def always_exposed(run: Run, people: People) -> tuple[int, int] | None:
    """Return how many people every update with their record gave away, and how many of them several updates did.

    None where the run does not say, or is redacted.
    """
    found = [one.seen for one in _exposed(run, people) if max(one.proven, one.recovered) >= one.seen]
    return (len(found), sum(seen > 1 for seen in found)) if run.persons and not run.is_redacted else None


def _exposed(run: Run, people: People) -> list[Person]:
    """The people whom the attack proved or recovered."""
    read = (_read(line) for line in run.persons if line.get("attack") == people.attack)
    return [one for one in read if one and one.verdict in _VERDICTS]


def exposed_blocks(run: Run, people: People) -> tuple[Block, ...]:
    """Draw the most exposed people; nothing where nobody is exposed, or the run is redacted."""
    shown, n_alike = most_exposed(run, people)
    if not shown:
        return ()
    of, proves = ("message" if people.unit == "step" else "update"), people.has_certificates
    columns: list[Column[Person]] = [
        Column("Person", lambda one: Cell(one.person, (f"row {one.row}",) if one.row else ())),
        Column("Verdict", lambda one: one.verdict),
        Column("Proven in", lambda one: f"{one.proven} of {counted(one.seen, of)}" if proves else DASH, optional=True),
        Column(f"First proven, {people.unit}", lambda one: _number(one.first), optional=True),
        Column("Recovered in", lambda one: f"{one.recovered} of {counted(one.seen, of)}"),
        Column("Others with the same row", lambda one: _number(one.sharing), optional=True),
    ]
    table = table_of("Most exposed people", columns, [("", shown)], css="risk stack")
    return table, fill("people", "exposed", len(shown), n_alike)


def _number(value: int | None) -> str:
    return DASH if value is None else str(value)


def _read(line: Mapping[str, str]) -> Person | None:
    """A line of the file; None where it cannot be read."""
    try:
        counts = {name: int(line[name]) for name in ("seen", "proven", "recovered")}
        texts = (line.get(name) for name in ("first_proven", "sharing"))
        first, sharing = (int(float(text)) if text else None for text in texts)
        first = None if first is None else first + 1
        return Person(line["person"], line["row"], line["verdict"], **counts, first=first, sharing=sharing)
    except (KeyError, ValueError):
        return None
