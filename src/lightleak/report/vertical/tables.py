"""The tables of a vertical report: error by attack, error by kind of result, and defences."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.core.intermediate_results import KINDS
from lightleak.report.charts import Style, series_style
from lightleak.report.estimate import Estimate
from lightleak.report.vertical.charts import Trace, scatter_chart
from lightleak.report.vertical.comparison import Group, Property, attacks
from lightleak.report.vertical.defended import Line, compared_lines, lines_of, place_of, reference_of
from lightleak.report.vertical.result import NO_DEFENSE
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
    def reads_exchange(self) -> bool:
        """Whether it reads anything of what is exchanged."""
        return all(group.reads_exchange for group in self.cells.values())

    @property
    def n_seeds(self) -> list[int]:
        """Numbers of seeds, each once."""
        return sorted({len(group.results) for group in self.cells.values()})


@dataclass(frozen=True)
class PropertyTable:
    """All attacks on one property, the closest first, and after them what reads no exchange."""

    title: str
    rows: tuple[AttackRow, ...]


def property_titles(properties: Sequence[Property]) -> dict[Property, str]:
    """What each property is called: with its dataset where there are several."""
    several = len({one.dataset for one in properties}) > 1
    return {one: f"{one.dataset or 'dataset not stated'}: {one.name}" if several else one.name for one in properties}


def group_titles(groups: Sequence[Group]) -> dict[Group, str]:
    """Title of each group with the parts of the setting in which the groups differ, the dataset apart."""
    differing = [name for name in varying(group.setting for group in groups) if name != "dataset"]
    return {group: " · ".join([group.title, *setting_words(group.setting, differing)]) for group in groups}


def error_tables(properties: Sequence[Property], redact: bool = False) -> tuple[PropertyTable, ...]:
    """One part of the table for each property that has a finished attack; ``redact`` leaves out what reads no exchange.

    Its error would tell the share: where own columns say nothing, their answer is known.
    """
    titles = property_titles(properties)
    found = []
    for one in properties:
        rows = [row for row in _attack_rows(one) if row.reads_exchange or not redact]
        if rows:
            ordered = sorted(rows, key=lambda row: (not row.reads_exchange, _least_error(row)))
            found.append(PropertyTable(titles[one], tuple(ordered)))
    return tuple(found)


def _attack_rows(one: Property) -> list[AttackRow]:
    """C1 and C2 share a row; variants do where each adversary has but one, such as LR+MR in C1 and MR in C2."""
    differing = [name for name in varying(group.setting for group in one.groups) if name != "dataset"]
    by_attack: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in one.groups:
        by_attack[group.attack, group.detail, *setting_words(group.setting, differing)].append(group)
    best = {
        name: min((group for group in attacks(one.of(name)) if group.error), key=_error, default=None)
        for name in one.adversaries
    }
    rows = []
    for (attack, detail, *setting), members in by_attack.items():
        shared = [members] if len({group.adversary for group in members}) == len(members) else _by_variant(members)
        for same in shared:
            title = _shared_title(attack, same) + (f" ({detail})" if detail else "")
            cells = {group.adversary: group for group in same}
            closest = frozenset(name for name, group in cells.items() if group is best.get(name))
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
class DefensePanel:
    """All defences against one adversary's attempt on one property; ``lines`` by name of the defence."""

    title: str
    lines: tuple[tuple[str, Line], ...]
    drawing: Markup | None
    styles: dict[str, Style]

    @property
    def changes_share(self) -> bool:
        """Whether, under some defence, it makes a difference to know it."""
        return any(line.group.unaware_error != line.group.error for _, line in self.lines)


def defense_panels(groups: Sequence[Group], redact: bool = False) -> tuple[DefensePanel, ...]:
    """One panel for each property and adversary that was attacked under some defence."""
    tried = attacks(groups)
    if all(group.setting.defense == NO_DEFENSE for group in tried):
        return ()
    families = dict.fromkeys(defense_parts(group.setting.defense)[0] for group in tried)
    families.pop(NO_DEFENSE, None)
    styles = {family: series_style(index) for index, family in enumerate(families)} | {NO_DEFENSE: UNDEFENDED_STYLE}
    reference = reference_of(tried)
    by_defense = {
        name: lines_of(tried, name) if name == reference else compared_lines(tried, reference, name)
        for name in dict.fromkeys((reference, *(group.setting.defense for group in tried)))
    }
    several = len({group.setting.dataset for group in tried}) > 1
    found = []
    for place in dict.fromkeys(map(place_of, tried)):
        dataset, name, adversary = place
        lines = tuple((defense, of[place]) for defense, of in by_defense.items() if place in of)
        if any(defense != NO_DEFENSE for defense, _ in lines):
            title = f"{name} · {adversary}"
            title = f"{dataset or 'dataset not stated'}: {title}" if several else title
            found.append(_panel(title, lines, styles, redact))
    return tuple(found)


def _panel(title: str, lines: tuple[tuple[str, Line], ...], styles: dict[str, Style], redact: bool) -> DefensePanel:
    traces = _traces([line.group for _, line in lines], styles)
    own = None if redact else lines[0][1].group.own_error
    drawing = scatter_chart(f"Error against AUC: {title}", traces, own.mean if own else None) if traces else None
    return DefensePanel(title, lines, drawing, {trace.label: trace.style for trace in traces})


def _error(group: Group) -> float:
    error = group.error
    return error.mean if error else 2.0


def _traces(groups: Sequence[Group], styles: dict[str, Style]) -> list[Trace]:
    by_family: dict[str, list[tuple[float, str, Estimate, Estimate]]] = defaultdict(list)
    for group in groups:
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
