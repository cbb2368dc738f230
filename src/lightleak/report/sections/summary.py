"""The first page of every report: one sentence, one picture, the three risks, what would help, what was not tested."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lightleak.core.results import Row
from lightleak.report.blocks import Block, Cell, Column, Section, Table
from lightleak.report.format import DASH, interval, lowest, of_hundred, percent, points, sign_of, with_interval
from lightleak.report.intervals import Estimate
from lightleak.report.page import fill, table_of
from lightleak.report.sections.tested import untested

MOST_RUNS = 2
"""Runs that are compared with the first one here, so that the summary stays one sheet."""


@dataclass(frozen=True)
class RiskLine:
    """One of the three risks of WP216: an attack next to what would be achieved anyway; None: not measured.

    Attributes:
        name: singling out, linkage or inference.
        meaning: what counts as a success.
        attack: success of the attack.
        control: success of the same attack on people who took no part.
        baseline: success without an update.
    """

    name: str
    meaning: str
    attack: Estimate | None = None
    control: Estimate | None = None
    baseline: Estimate | None = None


def first_page(
    blocks: Iterable[Block], facts: Iterable[tuple[str, str]], rows: Iterable[Row], css: str = ""
) -> Section:
    """Return the first page; facts that have nothing to say are left out.

    Args:
        blocks: the sentence, the picture, the risks.
        facts: further facts by name.
        rows: rows of attacks, which say what was tested.
        css: further classes.
    """
    known = [(name, words) for name, words in facts if words]
    known.append(("Not tested", fill("sections", "untested", untested(rows))))
    return Section("summary", "In plain language", (*blocks, fill("macros", "facts", known)), f"summary {css}".strip())


def risks_table(
    lines: Iterable[RiskLine], of: str, baseline: str = "By guessing", title: str = "The three risks"
) -> Table:
    """Draw the risks, of 100 ``of``, next to a baseline."""
    columns: list[Column[RiskLine]] = [
        Column(f"Of 100 {of}", lambda line: Cell(line.name, (line.meaning,))),
        Column("By attack", lambda line: of_hundred_cell(line.attack, otherwise="not measured")),
        Column("Not in the training", lambda line: of_hundred_cell(line.control), optional=True),
        Column(baseline, lambda line: of_hundred_cell(line.baseline)),
    ]
    return table_of(title, columns, [("", list(lines))], css="risk stack")


def interval_cell(
    value: Estimate | None, said: Callable[[Estimate | None], str] = percent, change: Estimate | None = None
) -> Cell:
    """A share, or a difference in points, with its interval, and what a defense changes in it.

    >>> interval_cell(Estimate(0.5, 8, 0.4, 0.6), change=Estimate(-0.2, 8, -0.3, -0.1)).small
    ('40.0 to 60.0', '▼ −20.0 (−30.0 to −10.0)')
    """
    ends = interval(value, lowest(said)) if value and value.has_interval else ""
    changed = f"{sign_of(change)} {with_interval(change, points)}" if change else ""
    return Cell(said(value), tuple(filter(None, (ends, changed))))


def below(said: str) -> Cell:
    """A figure with what is said of it in brackets below it.

    >>> below("50.0 (40.0 to 60.0)").small, below("–").small
    (('40.0 to 60.0',), ())
    """
    figure, _, rest = said.partition(" (")
    return Cell(figure, (rest.removesuffix(")"),) if rest else ())


def of_hundred_cell(value: Estimate | None, change: Estimate | None = None, otherwise: str = DASH) -> Cell:
    """A share as a count of a hundred with its interval, and what a defense changes in it."""
    return interval_cell(value, of_hundred, change) if value else Cell(otherwise)
