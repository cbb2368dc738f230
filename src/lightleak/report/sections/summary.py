"""The first section: what is at risk, what helps and what it costs, in plain language, on one sheet."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.format import interval, joined, of_hundred, points, sign_of
from lightleak.report.intervals import Estimate
from lightleak.report.page import Block, Bullets, Cell, Facts, Heading, Paragraph, Section, Table, Tile, Tiles

MOST_LINES = 5
"""Lines of the table; with more, only the worst of each group is shown, so that the summary stays one sheet."""

MOST_RUNS = 2
"""Runs that are compared with the first one here, for the same reason."""

INTERVAL = (
    "“95% interval”: a range made so that, measured again and again, 95 of 100 such ranges contain the true average. "
    "The narrower, the surer the figure. A “point” is one in a hundred."
)
NO_PROOF = "A low figure is no proof of safety. It covers the attacks that were tried; another may get more."
THIS_ALONE = "The figures hold for this table, this model and these settings, not for another training."


@dataclass(frozen=True)
class Summary:
    """What the first section says.

    Attributes:
        sentences: what is at risk; the first stands out.
        tiles: the numbers of it.
        terms: words that are explained before the table uses them.
        defenses: what helps and what it costs; one sentence where nothing is known of it.
        table: the figures behind the sentences, with a note on how to read them; None where there are none.
        note: that note.
        attacker: the threat model as questions and answers.
        notes: what the figures do not show.
    """

    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...] = ()
    terms: tuple[str, ...] = ()
    defenses: tuple[str, ...] = ()
    table: Table | None = None
    note: str = ""
    attacker: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def summary_section(summary: Summary) -> Section:
    """Draw the summary."""
    lead, *others = summary.sentences
    blocks: list[Block] = [Paragraph(lead, "lead")]
    if others:
        blocks.append(Paragraph(" ".join(filter(None, others))))
    if summary.tiles:
        blocks.append(Tiles(summary.tiles))
    blocks += [Paragraph(term, "verdict") for term in summary.terms]
    if summary.defenses:
        one = len(summary.defenses) == 1
        blocks += [Heading("Does a defense help, and what does it cost?")]
        blocks += [Paragraph(summary.defenses[0]) if one else Bullets(summary.defenses)]
    if summary.table:
        blocks += [summary.table, Paragraph(summary.note, "note")]
    if summary.attacker:
        blocks += [Heading("Against whom?"), Facts(summary.attacker)]
    if summary.notes:
        blocks += [Heading("How to read the figures, and what they do not show"), Bullets(summary.notes, "small")]
    return Section("summary", "In plain language", tuple(blocks), "summary")


def share_cell(value: Estimate | None, change: Estimate | None = None) -> Cell:
    """A share of a hundred with its interval, and what became of it.

    >>> share_cell(Estimate(0.5, 8, 0.4, 0.6), Estimate(-0.2, 8, -0.3, -0.1)).small
    ('40.0 to 60.0', '▼ −20.0 (−30.0 to −10.0)')
    """
    spread = interval(value) if value and value.has_interval else ""
    return Cell(of_hundred(value), tuple(filter(None, (spread, _change(change)))))


def points_cell(value: Estimate | None) -> Cell:
    """A difference in points with its interval."""
    return Cell(points(value), (interval(value, -1.0),) if value and value.has_interval else ())


def is_long(groups: Sequence[Sequence[object]]) -> bool:
    """Whether groups of these lines are too long for the summary, so that one line of each is to be shown."""
    return sum(map(len, groups)) > MOST_LINES


def _change(value: Estimate | None) -> str:
    if value is None:
        return ""
    return joined(sign_of(value), points(value), f"({interval(value, -1.0)})" if value.has_interval else "", by=" ")
