"""Attacks beside their baselines, and latent searches beside each other."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.estimate import Estimate
from lightleak.report.released.charts import Dot, Reference, dot_chart
from lightleak.report.released.comparison import Scenario
from lightleak.report.released.group import ACCURACY, UNLED, Group
from lightleak.report.released.verdict import Measure, measures_of
from lightleak.report.released.wording import (
    SEARCHES,
    SHOWN_LOSS,
    count,
    distance,
    group_titles,
    nats,
    plus_minus,
    scenario_titles,
    search_name,
)
from lightleak.report.wording import duration, percent, points


@dataclass(frozen=True)
class AttackRow:
    """One attack or baseline with all its metrics."""

    title: str
    group: Group
    gain: Estimate | None

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Its measures beside public rows."""
        return measures_of(self.group)

    @property
    def is_compared(self) -> bool:
        """Whether it was compared with public rows, and is not these rows themselves."""
        itself = self.group.attack == "public_pseudo_labelled"
        return not itself and any(one.gain is not None for one in self.measures)


@dataclass(frozen=True)
class AttackPanel:
    """One scenario: its title (empty where there is one), its chart and its table."""

    title: str
    drawing: Markup | None
    rows: tuple[AttackRow, ...]
    real_rows_accuracy: float | None
    chance: float | None


def attack_panels(scenarios: Sequence[Scenario]) -> tuple[AttackPanel, ...]:
    """One for each scenario, in their order."""
    where = scenario_titles(scenarios)
    return tuple(_attack_panel(scenario, where[scenario.setting]) for scenario in scenarios)


def _attack_panel(scenario: Scenario, title: str) -> AttackPanel:
    titles = group_titles(scenario)
    dots = []
    for group in scenario.groups:
        value = group.value()
        if value is not None:
            singles = tuple((one, f"{name}: {percent(one)}") for name, one in group.singles())
            dots.append(Dot(titles[group], value, singles if len(singles) > 1 else (), group.is_baseline))
    references = []
    if scenario.real_rows_accuracy is not None:
        references.append(
            Reference(f"real rows {percent(scenario.real_rows_accuracy)}", scenario.real_rows_accuracy, "truth")
        )
    if scenario.chance is not None:
        references.append(Reference(f"chance {percent(scenario.chance)}", scenario.chance, "guess"))
    name = f"Share of rows taken for their class by {len(dots)} of the attacks and baselines"
    rows = tuple(AttackRow(titles[group], group, scenario.gain(group)) for group in scenario.groups)
    drawing = dot_chart(name, dots, references) if dots else None
    return AttackPanel(title, drawing, rows, scenario.real_rows_accuracy, scenario.chance)


@dataclass(frozen=True)
class SearchTable:
    """Latent searches of one attack side by side, as in thesis Table 5.6.

    Attributes:
        title: the attack.
        searches: their names, in the order of the columns.
        rows: name of the metric and a text for each search.
        line: what the searches changed, in words.
    """

    title: str
    searches: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    line: str


def search_tables(scenarios: Sequence[Scenario]) -> tuple[SearchTable, ...]:
    """One for each attack that was measured with several searches."""
    where = scenario_titles(scenarios)
    found = []
    for scenario in scenarios:
        titles = group_titles(scenario, searches=False)
        by_title: dict[str, list[Group]] = defaultdict(list)
        for group in scenario.groups:
            by_title[titles[group]].append(group)
        for title, groups in by_title.items():
            if len({group.search for group in groups}) > 1:
                name = " · ".join(part for part in (title, where[scenario.setting]) if part)
                found.append(_search_table(name, sorted(groups, key=_search_order)))
    return tuple(found)


def _search_order(group: Group) -> int:
    return list(SEARCHES).index(group.search) if group.search in SEARCHES else len(SEARCHES)


def _search_table(title: str, groups: Sequence[Group]) -> SearchTable:
    def cells(name: str, digits: int, scale: float) -> tuple[str, ...]:
        return tuple(plus_minus(group.value(name), group.deviation(name), digits, scale) for group in groups)

    def losses(name: str) -> tuple[str, ...]:
        found = (group.value(name) for group in groups)
        small = [value is not None and abs(value.mean) < SHOWN_LOSS for value in found]
        told = cells(name, 2, 1)
        means = (nats(value.mean if (value := group.value(name)) else None) for group in groups)
        return tuple(mean if tiny else text for mean, text, tiny in zip(means, told, small, strict=True))

    seconds = [group.value("seconds") for group in groups]
    rows = (
        ("Attack accuracy, %", cells(ACCURACY, 1, 100)),
        ("Inversion loss at z*, nats", losses("inversion_loss_searched")),
        ("Inversion loss of the rows, nats", losses("inversion_loss")),
        ("Column shapes, %", cells("shapes_score", 1, 100)),
        (
            "Distance to the nearest private row",
            tuple(distance(value.mean if (value := group.value("gower_distance")) else None) for group in groups),
        ),
        ("Seconds to make the rows", tuple(duration(value.mean if value else None) for value in seconds)),
        ("Trainings", tuple(str(group.n_seeds) for group in groups)),
        ("Evaluations", tuple(str(len(group.evaluations)) for group in groups)),
        ("Rows of each", tuple(count(group.samples) for group in groups)),
    )
    kept = tuple(row for row in rows if set(row[1]) != {"–"})
    return SearchTable(title, tuple(search_name(group.search) for group in groups), kept, _search_line(groups))


def _search_line(groups: Sequence[Group]) -> str:
    """What each search changed beside where it started, else beside random z; empty without either."""
    by_search = {group.search: group for group in groups}
    plain = by_search.get("softmax", by_search.get("random"))
    if plain is None:
        return ""
    lines = []
    for group in groups:
        before, after = plain.value("inversion_loss"), group.value("inversion_loss")
        change = group.change(plain)
        if group.search in UNLED or before is None or after is None or change is None:
            continue
        name = search_name(group.search)
        if change.low is None or change.high is None:
            effect = f"changed attack accuracy by {points(change.mean)} points"
        elif change.low > 0:
            effect = f"raised attack accuracy by {points(change.mean).lstrip('+')} points"
        elif change.high < 0:
            effect = f"lowered attack accuracy by {points(change.mean).lstrip('−')} points"
        else:
            effect = f"did not measurably change attack accuracy ({points(change.mean)} points)"
        losses = list(dict.fromkeys((nats(before.mean), nats(after.mean))))
        verb = "left" if len(losses) == 1 else "lowered" if after.mean < before.mean else "did not lower"
        loss = f"{verb} the inversion loss " + (f"at {losses[0]}" if verb == "left" else f"({' to '.join(losses)})")
        lines.append(f"{name[0].upper()}{name[1:]} {loss} and {effect}.")
    return " ".join(lines)
