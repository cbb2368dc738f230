"""Rows that are proven: what an attack knew of its own success, without the truth."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import get_args

from lightleak.core.certificate import Outcome
from lightleak.core.results import UpdateRow
from lightleak.report.blocks import Block, Column, Section
from lightleak.report.compare import Group, by_key
from lightleak.report.format import DASH, attack_title, capital, percent
from lightleak.report.format import with_interval as share_words
from lightleak.report.kinds.updates_words import parts, time_unit, varying
from lightleak.report.page import fill, folded, table_of

COMPOSED = "audit_max"
_WHEN = {"initial": "before training", "given": "network as given"}

_Group = Group[UpdateRow]
_Layer = tuple[_Group, int, int, int, int]
"""An attack with the number, rank and equations by row space and by column space of a hidden layer."""


def certificates_section(groups: Sequence[_Group], unit: tuple[str, str]) -> Section | None:
    """Draw what attacks have proven; None where no attack certifies rows."""
    proven = [group for group in groups if group.values("certified_share") and _certified(group)]
    if not proven:
        return None
    places = _places(proven)
    columns = [
        Column[_Group]("Attack", lambda group: group.title),
        Column("Rows in batch", size_of),
        Column("Expected beforehand", _expected),
        Column("Rows certified (95% interval)", partial(share_of, "certified_share", with_interval=True)),
        Column("With their numbers", partial(share_of, "certified_digits_share"), optional=True),
        Column("With their normalized numbers", _normalized, optional=True),
        Column("Batches certified whole", _whole),
        Column(
            "Left unexplained, at most", lambda g: residual_words(max(g.values("certificate_residual"), default=None))
        ),
        Column("Of these: cells right", partial(share_of, "certified_accuracy"), optional=True),
        Column("Of these: rows exact", partial(share_of, "certified_exact"), optional=True),
    ]
    layer_columns = [
        Column[_Layer]("Attack", lambda layer: layer[0].title),
        Column("Rows in batch", lambda layer: size_of(layer[0])),
        Column("Hidden layer", lambda layer: str(layer[1])),
        Column("Rank of its gradient", lambda layer: str(layer[2])),
        Column("Equations by the row space", lambda layer: str(layer[3])),
        Column("Equations by the column space", lambda layer: str(layer[4])),
    ]
    by_row = ((row.feasibility.reason or "").split("; ") for group in proven for row in _certified(group))
    reasons = dict.fromkeys(reason for each in by_row for reason in each)
    why: list[Block] = [f"{capital(reason)}." for reason in reasons if reason]
    layers = by_key((layer for group in proven for layer in _layers(group)), lambda layer: places[id(layer[0])])
    if layers:
        title = f"Ranks and equations behind the expectation, of the first {unit[0]} of each kind"
        why = list(folded(title, *why, table_of("Ranks and equations", layer_columns, layers.items())))
    composed = attack_title(COMPOSED) if any(group.attack == COMPOSED for group in proven) else ""
    is_judged = any(group.values("certified_exact") for group in proven)
    blocks = (
        fill("updates", "proven", unit, composed),
        table_of("Rows proven", columns, by_key(proven, lambda group: places[id(group)]).items()),
        fill("updates", "unexplained", is_judged),
    )
    return Section("proven", "Rows proven", (*blocks, *why))


def residual_words(residual: float | None) -> str:
    """Return a part of the update.

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
    """Return the rows behind each update of a group."""
    return DASH if group.first.size is None else str(group.first.size)


def share_of(name: str, group: _Group, with_interval: bool = False) -> str:
    """Return the mean of a score that is a share."""
    share = group.mean(name)
    return share_words(share) if with_interval else percent(share)


def _certified(group: _Group) -> list[UpdateRow]:
    return [row for row in group.rows if row.row_status]


def _normalized(group: _Group) -> str:
    """Return the share of rows whose normalized numbers are proven."""
    each = [proven for row in _certified(group) if row.normalized_columns for proven in row.row_normalized_proven]
    return percent(sum(each) / len(each)) if each else DASH


def _whole(group: _Group) -> str:
    return f"{sum(row.is_fully_certified for row in group.rows)} of {len(_certified(group))}"


def _layers(group: _Group) -> list[_Layer]:
    """Every hidden layer of the first batch."""
    plan = next((row.feasibility for row in _certified(group) if row.feasibility.ranks), None)
    if plan is None:
        return []
    numbers = zip(plan.ranks, plan.row_constraints, plan.unit_constraints, strict=False)
    return [(group, layer, *of_layer) for layer, of_layer in enumerate(numbers, 1)]


def _expected(group: _Group) -> str:
    times = Counter(row.expected for row in _certified(group) if row.expected)
    found = [f"{one} ({times[one]})" if len(times) > 1 else one for one in get_args(Outcome) if times[one]]
    return ", ".join(found) or DASH


def _places(groups: Sequence[_Group]) -> dict[int, str]:
    """By group, where its updates come from and what else is different; empty where all agree."""
    apart = varying(group.first for group in groups)
    others = [name for name in apart if name not in ("source", "epoch")]
    when = {"source", "epoch"} & set(apart)
    return {
        id(group): " · ".join([*([_when(group.first)] if when else []), *parts(group.first, others)])
        for group in groups
    }


def _when(row: UpdateRow) -> str:
    return _WHEN.get(row.source or "", f"{time_unit(row)} {row.epoch}")
