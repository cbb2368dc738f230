"""Attacks on released models compared: with their baselines, measure by measure with public rows, and by search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lightleak.core.grouping import by_key
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Cell, Column, Figure, Legend, Section
from lightleak.report.charts import BASELINE_STYLE, Style, estimate_figure, series_style
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.released_entries import SEARCHES, search_name
from lightleak.report.kinds.released_groups import Scenario
from lightleak.report.kinds.released_scores import ACCURACY, Attack
from lightleak.report.page import figures, fill, table_of
from lightleak.report.plot.chart import Rule
from lightleak.report.sections.inversion import share_row
from lightleak.report.sections.summary import below, interval_cell

words = partial(fill, "released")
SORTED_ROWS = "public_pseudo_labeled"
"""The public rows that every measure compares an attack with."""

MEASURE_TITLES = {
    "attack_accuracy": "Taken for their class",
    "disjoint_accuracy": "Taken for it by a second judge",
    "class_shapes_score": "Class shapes",
    "distinct_nearest_rows": "Distinct nearest rows",
    "nearer_to_train": "Nearer to a training row",
}


@dataclass(frozen=True)
class Judged:
    """One line of the comparison; real rows and chance are no group."""

    title: str
    value: Estimate | None
    group: Attack | None = None
    gain: Estimate | None = None

    def mean(self, name: str) -> Estimate | None:
        """Mean of another score."""
        return self.group.value(name) if self.group else None


def attacks_section(scenarios: Sequence[Scenario], main: Attack | None) -> Section | None:
    """Draw the attacks next to their baselines, with charts and every measure; None where nothing was attacked."""
    if not scenarios:
        return None
    groups = [group for one in scenarios for group in one.groups]
    drawn = [figure for one in scenarios if (figure := _chart(one))]
    marks: list[tuple[Style | str, str]] = [
        (series_style(0), "attack on the model"),
        (BASELINE_STYLE, "baseline from public data"),
    ]
    if any(value.has_interval for group in groups if (value := group.value())):
        marks.append(("", "bars: 95% intervals over trainings, each with its own models and generator"))
    title, lines = "Attacks and their baselines", [(one.title, _lines(one)) for one in scenarios]
    table = table_of(title, _COLUMNS, lines, css="wrap tight below", line_css=lambda one: _line_css(main, one.group))
    named = [same[0] for same in by_key(groups, lambda one: one.attack).values()]
    further = (words("attacks_note"), *_measures(scenarios, main), words("compared", named))
    blocks = (words("attacks"), Legend(marks), *figures(drawn), table, *further)
    return Section("attacks", "Attack and baselines", blocks)


def _line_css(main: Attack | None, group: Attack | None) -> str:
    return "baseline" if group is None or group.is_baseline else "best" if group is main else ""


def _lines(scenario: Scenario) -> Iterator[Judged]:
    for group in scenario.groups:
        yield Judged(group.name, group.value(), group, scenario.gain(group))
    if scenario.real_rows is not None:
        yield Judged("Real private rows, held out", scenario.real_rows)
    if scenario.chance is not None:
        yield Judged("Naming a class at random", scenario.chance)


_COLUMNS: tuple[Column[Judged], ...] = (
    Column("Attack", lambda one: one.title),
    Column("Taken for its class", lambda one: interval_cell(one.value)),
    Column("Over the best baseline, points", lambda one: interval_cell(one.gain, fmt.points)),
    Column("Column shapes", lambda one: fmt.percent(one.mean("shapes_score"))),
    Column("Pair trends", lambda one: fmt.percent(one.mean("pair_trends_score"))),
    Column("Inversion loss, nats", lambda one: fmt.nats(one.mean("inversion_loss"))),
    Column("Distance to nearest", lambda one: fmt.distance(one.mean("gower_distance"))),
    Column("Equal rows", lambda one: interval_cell(one.group.equal_rows if one.group else None)),
    Column("Generator trained in", lambda one: fmt.duration(one.mean("fit_seconds")), optional=True),
    Column("Trainings", lambda one: _trainings(one.group) if one.group else fmt.DASH),
)


def _trainings(group: Attack) -> Cell:
    evaluated = fmt.counted(len(group.evaluations), "evaluation")
    return Cell(str(group.n_trainings), (evaluated + (f" of {group.samples:,} rows" if group.samples else ""),))


def _chart(scenario: Scenario) -> Figure | None:
    dots = [
        share_row(group.name, value, group.is_baseline, group.singles())
        for group in scenario.groups
        if (value := group.value())
    ]
    rules = [("real rows", scenario.real_rows, "truth"), ("chance", scenario.chance, "guess")]
    lines = [Rule(value.mean, css, f"{said} {fmt.percent(value)}") for said, value, css in rules if value]
    name = f"Share of rows taken for their class by {len(dots)} of the attacks and baselines"
    return estimate_figure(name, dots, lines, title=scenario.title) if dots else None


def _measures(scenarios: Sequence[Scenario], main: Attack | None) -> tuple[Block, ...]:
    """Every measure of what was compared with the public rows that the model sorted, and is not these rows."""
    groups = [
        (one.title, [group for group in one.groups if group.attack != SORTED_ROWS and _is_compared(group)])
        for one in scenarios
    ]
    if not any(found for _, found in groups):
        return ()
    measures = (Column(title, partial(_measure, index)) for index, title in enumerate(MEASURE_TITLES.values()))
    columns = [Column[Attack]("Attack", lambda group: group.name), *measures, Column("Condition learned", _condition)]
    title, marked = "Attacks compared with public rows, measure by measure", partial(_line_css, main)
    table = table_of(title, columns, groups, css="wrap snug dense", line_css=marked)
    return words("measures_words"), table, words("measures_note")


def _is_compared(group: Attack) -> bool:
    return any(one.gain is not None for one in group.measures)


def _measure(index: int, group: Attack) -> Cell:
    one = group.measures[index]
    public = (f" of {one.shown(one.public)}",) if one.public else ()
    return Cell(one.shown(one.value), (*public, f" {one.difference}"))


def _condition(group: Attack) -> Cell:
    public = group.value("public_condition_accuracy")
    return Cell(fmt.percent(group.value("condition_accuracy")), (f" of {fmt.percent(public)}",) if public else ())


def searches_section(scenarios: Sequence[Scenario]) -> Section | None:
    """Draw a line for each latent search of the attacks that were measured with several."""
    found = [
        (scenario.place(name), sorted(groups, key=_search_order))
        for scenario in scenarios
        for name, groups in by_key(scenario.groups, lambda group: group.fit_name).items()
        if len({group.search for group in groups}) > 1
    ]
    if not found:
        return None
    start = {id(group): _start(groups) for _, groups in found for group in groups}
    columns: list[Column[Attack]] = [
        Column("Search", lambda group: search_name(group.search)),
        Column("Attack accuracy, %", partial(_deviating, ACCURACY)),
        Column("Change, points", lambda group: below(_changed(group, start[id(group)])), optional=True),
        Column("Inversion loss at z*, nats", partial(_loss, "inversion_loss_searched"), optional=True),
        Column("Inversion loss of the rows, nats", partial(_loss, "inversion_loss"), optional=True),
        Column("Column shapes, %", partial(_deviating, "shapes_score"), optional=True),
        Column("Distance to nearest", lambda group: fmt.distance(group.value("gower_distance")), optional=True),
        Column("Seconds to make the rows", lambda group: fmt.duration(group.value("seconds")), optional=True),
        Column("Trainings", _trainings),
    ]
    table = table_of("Latent searches", columns, found, css="wrap tight below")
    return Section("searches", "Latent searches compared", (words("searches"), table, words("searches_note")))


def _search_order(group: Attack) -> int:
    return list(SEARCHES).index(group.search) if group.search in SEARCHES else len(SEARCHES)


def _start(groups: Sequence[Attack]) -> Attack | None:
    """Where the searches start, else random z; None where neither was measured."""
    by_search = {group.search: group for group in groups}
    return by_search.get("softmax", by_search.get("random"))


def _changed(group: Attack, start: Attack | None) -> str:
    return fmt.DASH if start is None or group is start else fmt.with_interval(group.change(start), fmt.points)


def _deviating(name: str, group: Attack) -> str:
    return fmt.plus_minus(group.value(name), group.deviation(name))


def _loss(name: str, group: Attack) -> str:
    shown = fmt.nats(value := group.value(name))
    return shown if "e" in shown else fmt.plus_minus(value, group.deviation(name), 2, 1)
