"""Rows that are proven: what an attack knew of its own success, without the truth."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

from lightleak.core.certificate import Outcome
from lightleak.core.grouping import by_key
from lightleak.core.results import UpdateRow
from lightleak.report.blocks import Block, Column, Section
from lightleak.report.format import DASH, attack_title, capital, joined, of_a_number, percent
from lightleak.report.kinds.updates_groups import UpdateGroup
from lightleak.report.kinds.updates_words import parts, time_unit, varying
from lightleak.report.page import cells_table, fill, folded, table_of

COMPOSED = "audit_max"
_WHEN = {"initial": "before training", "given": "network as given"}
LAYER_HEADINGS = (
    "Attack",
    "Rows in batch",
    "Hidden layer",
    "Rank of its gradient",
    "Equations by the row space",
    "Equations by the column space",
)


def certificates_section(groups: Sequence[UpdateGroup], unit: tuple[str, str]) -> Section | None:
    """Draw what attacks have proven; None where no attack certifies rows."""
    proven = [group for group in groups if group.values("certified_share") and _certified(group)]
    if not proven:
        return None
    in_place = by_key(proven, _places(proven))
    columns: list[Column[UpdateGroup]] = [
        Column("Attack", lambda group: group.title),
        Column("Rows in batch", lambda group: group.size),
        Column("Expected beforehand", _expected),
        Column("Rows certified (95% interval)", lambda group: group.share_with_interval("certified_share")),
        Column("With their numbers", lambda group: group.share("certified_digits_share"), optional=True),
        Column("With their normalized numbers", _normalized, optional=True),
        Column("Batches certified whole", _whole),
        Column("Left unexplained, at most", _residual),
        Column("Of these: cells right", lambda group: group.share("certified_accuracy"), optional=True),
        Column("Of these: rows exact", lambda group: group.share("certified_exact"), optional=True),
    ]
    by_row = ((row.feasibility.reason or "").split("; ") for group in proven for row in _certified(group))
    reasons = dict.fromkeys(reason for each in by_row for reason in each)
    said = " ".join(f"{capital(reason)}." for reason in reasons if reason)
    why: list[Block] = [said] if said else []
    layers = [
        (place, lines) for place, same in in_place.items() if (lines := [one for g in same for one in _layers(g)])
    ]
    if layers:
        title = f"Ranks and equations behind the expectation, of the first {unit[0]} of each kind"
        why = list(folded(title, *why, cells_table("Ranks and equations", LAYER_HEADINGS, layers, css="stack")))
    composed = attack_title(COMPOSED) if any(group.attack == COMPOSED for group in proven) else ""
    is_judged = any(group.values("certified_exact") for group in proven)
    first = fill("updates", "proven", unit, composed), table_of("Rows proven", columns, in_place.items(), css="stack")
    return Section("proven", "Rows proven", (*first, fill("updates", "unexplained", is_judged), *why))


@of_a_number
def residual_words(residual: float) -> str:
    """Return a part of the update.

    >>> residual_words(0.31), residual_words(1.26e-7), residual_words(None)
    ('31.0%', '1e-7', '–')
    """
    if residual >= 0.001:
        return f"{100 * residual:.1f}%"
    digits, power = f"{residual:.0e}".split("e")
    return f"{digits}e{int(power)}"


def _certified(group: UpdateGroup) -> list[UpdateRow]:
    return [row for row in group.rows if row.row_status]


def _normalized(group: UpdateGroup) -> str:
    """Return the share of rows whose normalized numbers are proven."""
    each = [proven for row in _certified(group) if row.normalized_columns for proven in row.row_normalized_proven]
    return percent(sum(each) / len(each)) if each else DASH


def _whole(group: UpdateGroup) -> str:
    return f"{sum(row.is_fully_certified for row in group.rows)} of {len(_certified(group))}"


def _residual(group: UpdateGroup) -> str:
    return residual_words(max(group.values("certificate_residual"), default=None))


def _layers(group: UpdateGroup) -> list[tuple[str, ...]]:
    """A line for every hidden layer of the first batch, below `LAYER_HEADINGS`."""
    plan = next((row.feasibility for row in _certified(group) if row.feasibility.ranks), None)
    if plan is None:
        return []
    numbers = zip(plan.ranks, plan.row_constraints, plan.unit_constraints, strict=False)
    return [(group.title, group.size, *map(str, (layer, *found))) for layer, found in enumerate(numbers, 1)]


def _expected(group: UpdateGroup) -> str:
    times = Counter(row.expected for row in _certified(group) if row.expected)
    found = [f"{one} ({times[one]})" if len(times) > 1 else one for one in get_args(Outcome) if times[one]]
    return ", ".join(found) or DASH


def _places(groups: Sequence[UpdateGroup]) -> Callable[[UpdateGroup], str]:
    """By group, where its updates come from and what else is different; empty where all agree."""
    apart = varying(group.first for group in groups)
    others = [name for name in apart if name not in ("source", "epoch")]
    when = {"source", "epoch"} & set(apart)
    return lambda group: joined(_when(group.first) if when else "", *parts(group.first, others), by=" · ")


def _when(row: UpdateRow) -> str:
    return _WHEN.get(row.source or "", f"{time_unit(row)} {row.epoch}")
