"""Rows that are proven: what an attack knew of its own success, without the truth."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from lightleak.core.certificate import Outcome
from lightleak.core.results import UpdateRow
from lightleak.report.compare import Group
from lightleak.report.format import DASH, attack_title, capital, in_brackets, percent
from lightleak.report.kinds.updates_words import parts, time_unit, varying
from lightleak.report.page import Block, Column, Paragraph, Section, folded, table_of, text

MARKS = {"certified": "◆", "likely": "◇", "missing": "○"}
"""Signs of the statuses of a row, unlike those for right and wrong cells."""

MEANINGS = {
    "certified": "proven: no row of other categories or another label passes the same tests against the update",
    "likely": "the best explanation that was found, not proven",
    "missing": "not found: a guess from how often values occur",
}
_WHEN = {"initial": "before training", "given": "network as given"}

_Group = Group[UpdateRow]


def certificates_section(groups: Sequence[_Group], unit: tuple[str, str]) -> Section | None:
    """Draw what attacks have proven; None where no attack certifies rows."""
    proven = [group for group in groups if group.values("certified_share") and _certified(group)]
    if not proven:
        return None
    judged = any(group.values("certified_exact") for group in proven)
    composed = next((group for group in proven if group.attack == "audit_max"), None)
    places = _places(proven)
    reasons = dict.fromkeys(row.feasibility.reason for group in proven for row in _certified(group))
    why: list[Block] = [Paragraph(f"{capital(reason)}.") for reason in reasons if reason]
    layers = [(group, *layer) for group in proven for layer in _layers(group)]
    if layers:
        table = table_of("Ranks and equations", _layer_columns(places), [("", layers)])
        words = f"Ranks and equations behind the expectation, of the first {unit[0]} of each kind"
        why = list(folded(words, *why, table))
    return Section(
        "proven",
        "Rows proven",
        (
            Paragraph(
                text(
                    "Exact inversion looks for single rows and tests each against the update itself. A row that "
                    "passes is <strong>certified</strong>: whoever sees the update can be sure of its categories and "
                    "label, without any truth to compare with; and of its numbers, to a hundredth of each column's "
                    "deviation, where these are certified as well. A <strong>likely</strong> row is the best "
                    "explanation found of what was left; a <strong>missing</strong> one is a guess. Beforehand, the "
                    "sizes and ranks of the update's layers say what to expect: every row (exact), some (partial), "
                    "or none with proof (approximate).{}",
                    f" “{attack_title(composed.attack)}” runs exact inversion first, optimizes together what it "
                    "leaves, and returns what explains the update best."
                    if composed
                    else "",
                )
            ),
            table_of("Rows proven", _columns(places), [("", proven)]),
            Paragraph(
                "“Left unexplained” is the part of an update that the rows found do not account for; rounding alone "
                "leaves about one part in ten million. "
                + (
                    "Only the last column needed the truth: it checks the certificates. Numbers that are not whole "
                    "come back to rounding, which the strict comparison of rows may count as a difference; so may "
                    "the last digit of whole numbers with a very wide range. "
                    if judged
                    else ""
                )
                + "A row without a certificate is not safe for that: it may be right all the same.",
                "note",
            ),
            *why,
        ),
    )


def residual_words(residual: float | None) -> str:
    """A part of the update.

    >>> residual_words(0.31), residual_words(1.26e-7), residual_words(None)
    ('31.0%', '1e-7', '–')
    """
    if residual is None:
        return DASH
    if residual >= 0.001:
        return f"{100 * residual:.1f}%"
    digits, power = f"{residual:.0e}".split("e")
    return f"{digits}e{int(power)}"


def size_of(group: _Group) -> str:
    """Rows behind each update of a group."""
    return DASH if group.first.batch_size is None else str(group.first.batch_size)


def _columns(places: dict[int, str]) -> list[Column[_Group]]:
    return [
        Column("Attack", lambda group: group.title),
        Column("Updates from", lambda group: places[id(group)] or DASH, optional=True, css="words"),
        Column("Rows in batch", size_of),
        Column("Expected beforehand", _expected),
        Column("Rows certified (95% interval)", lambda group: _share(group, "certified_share", with_interval=True)),
        Column("With their numbers", lambda group: _share(group, "certified_digits_share"), optional=True),
        Column(
            "Batches certified whole",
            lambda group: f"{sum(row.is_fully_certified for row in group.rows)} of {len(_certified(group))}",
        ),
        Column("Left unexplained, at most", lambda group: residual_words(_residual(group))),
        Column("Of these: cells right", lambda group: _share(group, "certified_accuracy"), optional=True),
        Column("Of these: rows exact", lambda group: _share(group, "certified_exact"), optional=True),
    ]


_Layer = tuple[_Group, int, int, int, int]


def _layer_columns(places: dict[int, str]) -> list[Column[_Layer]]:
    return [
        Column("Attack", lambda layer: layer[0].title),
        Column("Updates from", lambda layer: places[id(layer[0])] or DASH, optional=True, css="words"),
        Column("Rows in batch", lambda layer: size_of(layer[0])),
        Column("Hidden layer", lambda layer: str(layer[1])),
        Column("Rank of its gradient", lambda layer: str(layer[2])),
        Column("Equations by the row space", lambda layer: str(layer[3])),
        Column("Equations by the column space", lambda layer: str(layer[4])),
    ]


def _certified(group: _Group) -> list[UpdateRow]:
    return [row for row in group.rows if row.row_status]


def _layers(group: _Group) -> list[tuple[int, int, int, int]]:
    """Number, rank, equations by row space and by column space of every hidden layer of the first batch."""
    plan = next((row.feasibility for row in _certified(group) if row.feasibility.ranks), None)
    if plan is None:
        return []
    numbers = zip(plan.ranks, plan.row_constraints, plan.unit_constraints, strict=False)
    return [(layer, *of_layer) for layer, of_layer in enumerate(numbers, 1)]


def _expected(group: _Group) -> str:
    times = Counter(row.expected for row in _certified(group) if row.expected)
    told = [f"{one} ({times[one]})" if len(times) > 1 else one for one in get_args(Outcome) if times[one]]
    return ", ".join(told) or DASH


def _residual(group: _Group) -> float | None:
    return max(group.values("certificate_residual"), default=None)


def _share(group: _Group, name: str, with_interval: bool = False) -> str:
    share = group.mean(name)
    return percent(share) + (in_brackets(share) if with_interval else "")


def _places(groups: Sequence[_Group]) -> dict[int, str]:
    """By group, where its updates come from and what else is different; empty where all agree."""
    told = varying(group.first for group in groups)
    others = [name for name in told if name not in ("source", "epoch")]
    when = {"source", "epoch"} & set(told)
    return {
        id(group): " · ".join([*([_when(group.first)] if when else []), *parts(group.first, others)])
        for group in groups
    }


def _when(row: UpdateRow) -> str:
    return _WHEN.get(row.source or "", f"{time_unit(row)} {row.epoch}")
