"""The tables of a vertical report: error by attack, error by kind of result, and defences."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.core.intermediate_results import KINDS
from lightleak.report.charts import Style, series_style
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.vertical.charts import Trace, scatter_chart
from lightleak.report.vertical.comparison import Group, Property, attacks
from lightleak.report.vertical.result import NO_DEFENSE, PropertyResult
from lightleak.report.vertical.wording import attack_name, defense_name, defense_parts, setting_words, varying

UNDEFENDED_STYLE = Style("validation", "cross")


@dataclass(frozen=True)
class AttackRow:
    """One attack on one property, C1 and C2 side by side.

    Attributes:
        title: name of the attack, with its setting where settings differ.
        cells: group by adversary.
        is_best: adversaries for which it comes closest.
    """

    title: str
    cells: dict[str, Group]
    is_best: frozenset[str]

    @property
    def n_seeds(self) -> list[int]:
        """Numbers of seeds, each once."""
        return sorted({len(group.results) for group in self.cells.values()})


@dataclass(frozen=True)
class PropertyTable:
    """All attacks on one property, the closest first; ``guess`` is the error of guessing."""

    title: str
    rows: tuple[AttackRow, ...]
    guess: Estimate | None


def property_titles(properties: Sequence[Property]) -> dict[Property, str]:
    """What each property is called: with its dataset where there are several."""
    several = len({one.dataset for one in properties}) > 1
    return {one: f"{one.dataset or 'dataset not stated'}: {one.name}" if several else one.name for one in properties}


def group_titles(groups: Sequence[Group]) -> dict[Group, str]:
    """Title of each group with the parts of the setting in which the groups differ, the dataset apart."""
    differing = [name for name in varying(group.setting for group in groups) if name != "dataset"]
    return {group: " · ".join([group.title, *setting_words(group.setting, differing)]) for group in groups}


def error_tables(properties: Sequence[Property]) -> tuple[PropertyTable, ...]:
    """One part of the table for each property that has a finished attack."""
    titles = property_titles(properties)
    found = []
    for one in properties:
        rows = _attack_rows(one)
        if rows:
            found.append(PropertyTable(titles[one], tuple(sorted(rows, key=_least_error)), one.guess_error))
    return tuple(found)


def _attack_rows(one: Property) -> list[AttackRow]:
    """C1 and C2 share a row; variants do where each adversary has but one, such as LR+MR in C1 and MR in C2."""
    differing = [name for name in varying(group.setting for group in one.groups) if name != "dataset"]
    by_attack: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in one.groups:
        by_attack[group.attack, group.detail, *setting_words(group.setting, differing)].append(group)
    best = {
        name: min((group for group in one.of(name) if group.error), key=_error, default=None)
        for name in one.adversaries
    }
    rows = []
    for (attack, detail, *setting), members in by_attack.items():
        shared = [members] if len({group.adversary for group in members}) == len(members) else _by_variant(members)
        for same in shared:
            title = _shared_title(attack, same) + (f" ({detail})" if detail else "")
            cells = {group.adversary: group for group in same}
            closest = frozenset(name for name, group in cells.items() if group is best[name])
            rows.append(AttackRow(" · ".join([title, *setting]), cells, closest))
    return rows


def _by_variant(members: Sequence[Group]) -> list[list[Group]]:
    found: dict[str, list[Group]] = defaultdict(list)
    for group in members:
        found[group.variant].append(group)
    return list(found.values())


def _shared_title(attack: str, same: Sequence[Group]) -> str:
    variants = {group.variant for group in same}
    if len(variants) == 1:
        return attack_name(attack, variants.pop())
    return f"{attack_name(attack)} ({', '.join(f'{group.adversary}: {group.variant}' for group in same)})"


def _least_error(row: AttackRow) -> float:
    return min((error.mean for group in row.cells.values() if (error := group.error)), default=2.0)


@dataclass(frozen=True)
class KindRow:
    """Error from each kind of intermediate result alone, and from all together."""

    title: str
    errors: dict[str, Estimate]
    together: Estimate | None


def kind_table(properties: Sequence[Property]) -> tuple[tuple[str, tuple[KindRow, ...]], ...]:
    """By property the attacks that estimate from several kinds; none where no attack does or there is no truth."""
    titles = property_titles(properties)
    several = len({group.adversary for one in properties for group in one.groups if len(group.kind_errors) > 1}) > 1
    found = []
    for one in properties:
        named = group_titles(one.groups)
        rows = tuple(
            KindRow(named[group] + (f" · {group.adversary}" if several else ""), group.kind_errors, group.error)
            for group in one.groups
            if len(group.kind_errors) > 1
        )
        if rows:
            found.append((titles[one], rows))
    return tuple(found)


def shown_kinds(table: Sequence[tuple[str, Sequence[KindRow]]]) -> list[str]:
    """Kinds that stand in some row."""
    return [kind for kind in KINDS if any(kind in row.errors for _, rows in table for row in rows)]


@dataclass(frozen=True)
class DefenseRow:
    """One defence against one attack.

    Attributes:
        title: name of the defence.
        group: the attack under it.
        rise: its error minus the same attack's without defence, paired by seed; None without an undefended one.
        closest: the attack that came closest under this defence, where it is another one.
        loss: AUC lost, paired by seed.
    """

    title: str
    group: Group
    rise: Estimate | None
    closest: Group | None
    loss: Estimate | None

    @property
    def is_defended(self) -> bool:
        """Whether this is not the row without a defence."""
        return self.group.setting.defense != NO_DEFENSE


@dataclass(frozen=True)
class DefensePanel:
    """All defences against the attack on one property that came closest without them."""

    title: str
    rows: tuple[DefenseRow, ...]
    drawing: Markup | None
    styles: dict[str, Style]

    @property
    def has_rivals(self) -> bool:
        """Whether another attack came closer under some defence."""
        return any(row.closest is not None for row in self.rows)


def defense_panels(groups: Sequence[Group], redact: bool = False) -> tuple[DefensePanel, ...]:
    """One panel for each property and adversary that was attacked under some defence."""
    same_place: dict[tuple[str | None, str, str], list[Group]] = defaultdict(list)
    for group in attacks(groups):
        same_place[group.setting.dataset, group.property_name, group.adversary].append(group)
    several = len({dataset for dataset, _, _ in same_place}) > 1
    families = dict.fromkeys(defense_parts(group.setting.defense)[0] for group in attacks(groups))
    families.pop(NO_DEFENSE, None)
    styles = {family: series_style(index) for index, family in enumerate(families)} | {NO_DEFENSE: UNDEFENDED_STYLE}
    found = []
    for (dataset, name, adversary), members in same_place.items():
        if all(group.setting.defense == NO_DEFENSE for group in members):
            continue
        lead = _leading(members)
        title = f"{name} · {adversary} · {lead[0].title}"
        if several:
            title = f"{dataset or 'dataset not stated'}: {title}"
        found.append(_panel(title, lead, members, styles, redact))
    return tuple(found)


def _leading(members: Sequence[Group]) -> list[Group]:
    """The attack tried under most defences; among several the one that comes closest without a defence."""
    by_attack: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in members:
        by_attack[group.title, str(group.setting.target), str(group.setting.epoch)].append(group)
    most = max(map(len, by_attack.values()))
    full = [same for same in by_attack.values() if len(same) == most]
    return min(full, key=_undefended_error)


def _undefended_error(same: Sequence[Group]) -> float:
    return min((e.mean for group in same if group.setting.defense == NO_DEFENSE and (e := group.error)), default=2.0)


def _panel(
    title: str, lead: Sequence[Group], members: Sequence[Group], styles: dict[str, Style], redact: bool
) -> DefensePanel:
    base = next((group for group in lead if group.setting.defense == NO_DEFENSE), None)
    rows = []
    for group in lead:
        defended = group is not base
        rivals = [other for other in members if other.setting == group.setting]
        closest = min((other for other in rivals if other.error), key=_error, default=None)
        rows.append(
            DefenseRow(
                title=defense_name(group.setting.defense),
                group=group,
                rise=paired(group, base, lambda one: one.error) if defended else None,
                closest=closest if closest is not group else None,
                loss=paired(base, group, lambda one: one.auc) if defended else None,
            )
        )
    traces = _traces(lead, styles)
    guess = None if redact else estimate(one.prior_error for group in lead[:1] for one in group.results)
    drawing = scatter_chart(f"Error against AUC: {title}", traces, guess.mean if guess else None) if traces else None
    return DefensePanel(title, tuple(rows), drawing, {trace.label: trace.style for trace in traces})


def _error(group: Group) -> float:
    error = group.error
    return error.mean if error else 2.0


def _traces(lead: Sequence[Group], styles: dict[str, Style]) -> list[Trace]:
    by_family: dict[str, list[tuple[float, str, Estimate, Estimate]]] = defaultdict(list)
    for group in lead:
        family, label = defense_parts(group.setting.defense)
        auc, error = group.auc, group.error
        if auc is not None and error is not None:
            strength = next((one.defense_strength for one in group.results if one.defense_strength is not None), 0.0)
            by_family[family].append((strength, label, auc, error))
    return [
        Trace(
            defense_name(family),
            tuple(point[1:] for point in sorted(points, key=lambda point: point[0])),
            styles[family],
        )
        # What the others are compared with is drawn last, over them.
        for family, points in sorted(by_family.items(), key=lambda pair: pair[0] == NO_DEFENSE)
    ]


def paired(
    group: Group | None, other: Group | None, value: Callable[[PropertyResult], float | None]
) -> Estimate | None:
    """Mean of the first group's value minus the second's over the seeds they share."""
    if group is None or other is None:
        return None
    known = {str(one.seed): value(one) for one in other.results}
    pairs = [(value(one), known.get(str(one.seed))) for one in group.results]
    return estimate(a - b for a, b in pairs if a is not None and b is not None)
