"""The first page of a report, in plain language: one shape and one wording for every kind of audit."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.estimate import Estimate
from lightleak.report.headline import Tile
from lightleak.report.wording import points

MOST_LINES = 5
"""Lines of the table; with more, only the worst of each block is shown, so that the summary stays one sheet."""

MOST_TOLD = 2
"""Runs that are set beside the first one, in words and in the table, for the same reason."""

LESS, MORE, UNSURE = "▼", "▲", "○"
"""Signs of a change, so that colour carries no meaning."""

INTERVAL = (
    "“95% interval”: a range made so that, measured again and again, 95 of 100 such ranges hold the true average. The "
    "narrower, the surer the figure. A “point” is one in a hundred."
)
NO_PROOF = "A low figure is no proof of safety. It covers the attacks that were tried; another may get more."
THIS_ALONE = "The figures hold for this table, this model and these settings, not for another training."


@dataclass(frozen=True)
class Cell:
    """One figure of the table.

    Attributes:
        value: the figure.
        interval: its 95% interval; empty where there is none.
        change: what became of it, with the interval of the change; empty where nothing is compared.
    """

    value: str
    interval: str = ""
    change: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: what it is about, and a figure for each column.

    Attributes:
        title: what it is about.
        detail: in smaller letters below it.
        cells: one for each column.
        unit: what the title counts, for a narrow screen, where the column has no heading.
    """

    title: str
    detail: str
    cells: tuple[Cell, ...]
    unit: str = ""


@dataclass(frozen=True)
class Block:
    """Lines that belong together, such as those of one defence; ``aside`` says how good its model is."""

    title: str
    aside: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """The figures behind the sentences.

    Attributes:
        label: what it lists, for whoever does not see it.
        head: heading of the first column.
        columns: headings of the others.
        blocks: its lines.
        note: how to read it.
    """

    label: str
    head: str
    columns: tuple[str, ...]
    blocks: tuple[Block, ...]
    note: str


@dataclass(frozen=True)
class Summary:
    """The first page.

    Attributes:
        sentences: what is at risk without a change; the first stands out.
        tiles: the numbers of it.
        terms: words that are explained before they are used in the table.
        defences: what helps and what it costs, in words; one sentence that says so where nothing is known of it.
        table: the figures; None where there are none.
        attacker: the threat model as questions and answers.
        notes: how the figures are to be read, and what they do not show.
        budget: what the attacks could spend, against the published budget.
    """

    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...] = ()
    terms: tuple[str, ...] = ()
    defences: tuple[str, ...] = ()
    table: Table | None = None
    attacker: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    budget: str = ""


def of_hundred(value: Estimate | None) -> str:
    """A share as a count of a hundred.

    >>> of_hundred(Estimate(0.125)), of_hundred(Estimate(0.0001)), of_hundred(Estimate(1.0)), of_hundred(None)
    ('12.5', 'under 0.1', '100', '–')
    """
    if value is None:
        return "–"
    return "under 0.1" if 0 < value.mean < 0.0005 else f"{100 * value.mean:.1f}".removesuffix(".0")


def range_of(value: Estimate | None, lowest: float = 0.0) -> str:
    """The 95% interval in hundredths; empty where there is none.

    >>> range_of(Estimate(0.5, 8, 0.25, 0.8)), range_of(Estimate(0.5))
    ('25.0 to 80.0', '')
    """
    if value is None or value.low is None or value.high is None:
        return ""
    ends = (round(100 * end, 1) + 0.0 for end in (max(value.low, lowest), min(value.high, 1.0)))  # no -0.0
    return " to ".join(f"{end:.1f}".replace("-", "−") for end in ends)


def interval_of(value: Estimate, lowest: float = 0.0) -> str:
    """The interval with its name.

    >>> interval_of(Estimate(0.5, 8, 0.25, 0.8)), interval_of(Estimate(0.5))
    ('95% interval 25.0 to 80.0', 'no interval')
    """
    return f"95% interval {range_of(value, lowest)}" if value.has_interval else "no interval"


def change_of(value: Estimate) -> str:
    """A difference in a sentence.

    >>> change_of(Estimate(-0.2, 8, -0.3, -0.1)), change_of(Estimate(0.2))
    ('change −20.0, 95% interval −30.0 to −10.0', 'change +20.0, no interval')
    """
    return f"change {points(value.mean)}, {interval_of(value, -1.0)}"


def sign_of(difference: Estimate) -> str:
    """Which way something measurably went.

    >>> sign_of(Estimate(-0.2, 8, -0.3, -0.1)), sign_of(Estimate(0.2)), sign_of(Estimate(0.2, 8, 0.1, 0.3))
    ('▼', '○', '▲')
    """
    if difference.low is None or difference.high is None:
        return UNSURE
    return LESS if difference.high < 0 else MORE if difference.low > 0 else UNSURE


def cell_of(value: Estimate | None, change: Estimate | None = None) -> Cell:
    """A share of a hundred, and what became of it.

    >>> cell_of(Estimate(0.5, 8, 0.4, 0.6), Estimate(-0.2, 8, -0.3, -0.1))
    Cell(value='50', interval='40.0 to 60.0', change='▼ −20.0 (−30.0 to −10.0)')
    """
    if value is None:
        return Cell("–")
    changed = ""
    if change is not None:
        changed = f"{sign_of(change)} {points(change.mean)}" + (
            f" ({range_of(change, -1.0)})" if change.has_interval else ""
        )
    return Cell(of_hundred(value), range_of(value), changed)


def signed_cell(value: Estimate | None) -> Cell:
    """A difference in hundredths."""
    return Cell("–") if value is None else Cell(points(value.mean), range_of(value, -1.0))


def counted(n: int, one: str) -> str:
    """A number of things.

    >>> counted(1, "message"), counted(3, "message")
    ('1 message', '3 messages')
    """
    return f"{n} {one if n == 1 else one + 's'}"


def joined(*parts: str) -> str:
    """The parts that say something, with commas."""
    return ", ".join(part for part in parts if part)


def capital(text: str) -> str:
    """The text as the start of a sentence; the rest of it stays as it is.

    >>> capital("withdraw C1")
    'Withdraw C1'
    """
    return text[:1].upper() + text[1:]


def is_long(blocks: Sequence[Sequence[object]]) -> bool:
    """Whether blocks with these lines are more than `MOST_LINES`, so that one line of each is to be shown."""
    return sum(map(len, blocks)) > MOST_LINES
