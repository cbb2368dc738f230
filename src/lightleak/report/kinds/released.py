"""The page of attacks on released models: what a model reveals about the rows it was trained on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lightleak.core.results import ReleasedRow
from lightleak.core.threat_model import Aim
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Cell, Column, Figure, Legend, Page, Section
from lightleak.report.budget import budget
from lightleak.report.charts import BASELINE_STYLE, estimate_figure, legend_mark, series_style
from lightleak.report.compare import by_key
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.released_entries import entries_of
from lightleak.report.kinds.released_groups import (
    ACCURACY,
    SEARCHES,
    Attack,
    Scenario,
    compare,
    model_name,
    most_telling,
    search_name,
    title_of,
    topics,
)
from lightleak.report.page import cells_table, figures, fill, table_of
from lightleak.report.plot.chart import Rule
from lightleak.report.read import Run
from lightleak.report.sections.inversion import (
    classes_section,
    closest_pairs,
    labels_section,
    losses_section,
    lowest_section,
    memorization_section,
    nearest_section,
    share_row,
)
from lightleak.report.sections.pictures import PictureGrid, load_pictures, pictures_section
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.subject import subject_of, subject_section
from lightleak.report.sections.subject import title_of as title_of_runs
from lightleak.report.sections.summary import RiskLine, first_page, risks_table
from lightleak.report.sections.tested import evidence_section, untested
from lightleak.report.sections.warnings import warnings_section

TEMPLATE = "released"
SORTED_ROWS = "public_pseudo_labeled"
"""The public rows that every measure compares an attack with."""

MEASURE_TITLES = {
    "attack_accuracy": "Taken for their class",
    "disjoint_accuracy": "Taken for it by a second judge",
    "class_shapes_score": "Class shapes",
    "distinct_nearest_rows": "Distinct nearest rows",
    "nearer_to_train": "Nearer to a training row",
}
TASK_FACTS = {
    "Private classes": "classes",
    "Columns": "features",
    "Private rows": "private_rows",
    "Held-out private rows": "private_test_rows",
    "Public rows of the attacker": "public_rows",
    "Rows dropped (group on both sides)": "dropped_rows",
}
ACCURACIES = {"train_accuracy": "on training rows", "test_accuracy": "on held-out ones"}


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


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked released models."""
    rows, entries = [row for run in runs for row in run.of(ReleasedRow)], entries_of(runs)
    scenarios = compare(rows, entries)
    found = most_telling(scenarios)
    scenario, main = found or (None, None)
    subjects = topics(scenarios, entries, main)
    seeds = len({(entry.run, str(entry.seed)) for entry in entries}) > 1
    nearest = () if redact else next((pairs for one in subjects if (pairs := closest_pairs(one))), ())
    grids = [grid for run in runs for grid in load_pictures(run, redact)]
    placed = [(one.place(group.name), group.rows) for one in scenarios for group in one.groups]
    private = fill(TEMPLATE, "private", len(nearest)) if nearest or grids else ""
    contents = fill(TEMPLATE, "contents", len(nearest), bool(grids))
    return Page(
        title=title_of_runs(runs, "What the released model gives away"),
        subject=subject_of(runs),
        private=fill(TEMPLATE, "redacted") if redact and scenarios else private,
        sections=[
            summary_section(scenarios),
            _tested(runs, rows, scenarios),
            _subject(runs, scenarios),
            _attacks(scenarios, main),
            _searches(scenarios),
            classes_section(scenario, main, subjects),
            lowest_section(subjects, seeds),
            pictures_section(grids, _grid_title),
            nearest_section(subjects, nearest, seeds),
            memorization_section(subjects),
            losses_section(subjects, seeds),
            labels_section(subjects, seeds),
            warnings_section(placed, "result"),
            run_section(runs, rows, contents, unit=("evaluation", "evaluations"), title=title_of),
        ],
    )


def summary_section(scenarios: Sequence[Scenario]) -> Section:
    """Summarize in plain language what these runs measured."""
    tried = [group for scenario in scenarios for group in scenario.attacks]
    rows = [row for scenario in scenarios for group in scenario.groups for row in group.rows]
    found = most_telling(scenarios)
    if not found:
        return first_page((fill(TEMPLATE, "nothing", bool(tried)),), (), untested(rows))
    n_measured = sum(group.value() is not None for group in tried)
    facts = [
        ("Groups", fill(TEMPLATE, "shown", *found)),
        ("Single records", fill(TEMPLATE, "copies", *found)),
        ("What would help", fill(TEMPLATE, "help", found[0])),
        ("Limits", fill(TEMPLATE, "limits", found[1], n_measured, budget(rows).caution)),
    ]
    risks = risks_table(_risks(*found), "made-up records", "By public data", "Made-up records")
    return first_page((fill(TEMPLATE, "lead", *found), _picture(*found), risks), facts, untested(rows))


def _picture(scenario: Scenario, main: Attack) -> Figure:
    """The attack next to what can be had without opening the model, and to real rows."""
    public = scenario.reference and scenario.reference.value()
    known = [("by attack", main.value(), False), ("by public data", public, True)]
    dots = [share_row(words, value, is_baseline) for words, value, is_baseline in known if value]
    real = [Rule(value.mean, "truth", f"real records {fmt.percent(value)}")] if (value := scenario.real_rows) else []
    name = "Records recognized as those of their group"
    return estimate_figure(name, dots, real, title=name)


def _risks(scenario: Scenario, main: Attack) -> list[RiskLine]:
    public = scenario.reference.value() if scenario.reference else None
    copied = main.memory.value
    return [
        RiskLine("Recognized", "as a record of the group it was made for", main.value(), None, public),
        RiskLine(
            "Like a training record", "nearer to one than to one never seen", copied, None, scenario.nearest_public
        ),
        RiskLine("Equal", "to a private record", main.value("exact_match_rate"), None, scenario.most_equal_public),
    ]


def _tested(runs: Sequence[Run], rows: Sequence[ReleasedRow], scenarios: Sequence[Scenario]) -> Section:
    telling = most_telling(scenarios)
    found: dict[Aim, str] = {}
    if telling:
        scenario, main = telling
        public = scenario.reference.value() if scenario.reference else None
        found["model_inversion"] = fill(TEMPLATE, "found", main.value(), public)
    reading = (fill(TEMPLATE, "reading_released"),) if scenarios else ()
    return evidence_section(runs, rows, found, unit="evaluation", title=title_of, reading=reading)


def _subject(runs: Sequence[Run], scenarios: Sequence[Scenario]) -> Section:
    found = [_facts(scenario) for scenario in scenarios]
    before: list[Block] = [fill(TEMPLATE, "setting")]
    if len(found) == 1:
        return subject_section(runs, found[0].items(), before=before)
    names = dict.fromkeys(name for facts in found for name, values in facts.items() if any(values))
    head = ("", *(one.title for one in scenarios))
    lines = [(name, *("; ".join(dict.fromkeys(facts[name])) or fmt.DASH for facts in found)) for name in names]
    table = cells_table("Settings side by side", head, [("", lines)], css="stack plain wrap facts-table")
    return subject_section(runs, (), before=[*before, table])


def _facts(scenario: Scenario) -> dict[str, list[str]]:
    """What was attacked: values by name, empty where nothing is known."""
    row, entries = scenario.first, scenario.entries
    tested = [value for group in scenario.groups for value in group.values("target_test_accuracy")]
    return {
        "Dataset": [row.dataset or "not stated"],
        "Setting": [row.setting] if row.setting else [],
        "Released model": [model_name(row.target)],
        "Its accuracy": _accuracies(entry.target_scores for entry in entries)
        or [f"{fmt.percent(value)} on held-out rows" for value in tested],
        "Evaluation model": [model_name(row.evaluation)],
        "Accuracy of the evaluation model": _accuracies(entry.evaluation_scores for entry in entries),
        "Accuracy of the second one": _accuracies(entry.disjoint_scores for entry in entries),
    } | {
        name: [fmt.count(n) for one in entries if (n := one.size(key)) is not None] for name, key in TASK_FACTS.items()
    }


def _accuracies(scores: Iterable[Mapping[str, float]]) -> list[str]:
    found = []
    for one in scores:
        words = [f"{fmt.percent(one[name])} {where}" for name, where in ACCURACIES.items() if name in one]
        if words:
            found.append(
                ", ".join([*words, *([f"after {fmt.count(one['epochs'])} epochs"] if "epochs" in one else [])])
            )
    return found


def _attacks(scenarios: Sequence[Scenario], main: Attack | None) -> Section | None:
    if not scenarios:
        return None
    groups = [group for one in scenarios for group in one.groups]
    drawn = [figure for one in scenarios if (figure := _chart(one))]
    marks: list[tuple[str, str]] = [
        (legend_mark(series_style(0)), "attack on the model"),
        (legend_mark(BASELINE_STYLE), "baseline from public data"),
    ]
    if any(value.has_interval for group in groups if (value := group.value())):
        marks.append(("", "bars: 95% intervals over trainings, each with its own models and generator"))
    table = table_of(
        "Attacks and their baselines",
        _COLUMNS,
        [(one.title, _lines(one)) for one in scenarios],
        css="wrap tight",
        line_css=lambda one: _line_css(one.group, main),
    )
    named = [same[0] for same in by_key(groups, lambda one: one.attack).values()]
    return Section(
        "attacks",
        "Attack and baselines",
        (
            fill(TEMPLATE, "attacks"),
            Legend(tuple(marks)),
            *figures(drawn),
            table,
            fill(TEMPLATE, "attacks_note"),
            *_measures(scenarios, main),
            fill(TEMPLATE, "compared", named),
        ),
    )


def _line_css(group: Attack | None, main: Attack | None) -> str:
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
    Column("Taken for its class (95% interval)", lambda one: fmt.with_interval(one.value)),
    Column("Over the best baseline, points (95% interval)", lambda one: fmt.with_interval(one.gain, fmt.points)),
    Column("Column shapes", lambda one: fmt.percent(one.mean("shapes_score"))),
    Column("Pair trends", lambda one: fmt.percent(one.mean("pair_trends_score"))),
    Column("Inversion loss, nats", lambda one: fmt.nats(one.mean("inversion_loss"))),
    Column("Distance to nearest", lambda one: fmt.distance(one.mean("gower_distance"))),
    Column("Equal rows (95% interval)", lambda one: fmt.with_interval(one.group.equal_rows if one.group else None)),
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
    lines = [Rule(value.mean, css, f"{words} {fmt.percent(value)}") for words, value, css in rules if value]
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
    table = table_of(
        "Attacks compared with public rows, measure by measure",
        [
            Column[Attack]("Attack", lambda group: group.name),
            *(Column(title, partial(_measure, index)) for index, title in enumerate(MEASURE_TITLES.values())),
            Column("Condition learned", _condition),
        ],
        groups,
        css="wrap snug",
        line_css=lambda group: _line_css(group, main),
    )
    return fill(TEMPLATE, "measures_words"), table, fill(TEMPLATE, "measures_note")


def _is_compared(group: Attack) -> bool:
    return any(one.gain is not None for one in group.measures)


def _measure(index: int, group: Attack) -> Cell:
    one = group.measures[index]
    public = (f" of {one.shown(one.public)}",) if one.public else ()
    return Cell(one.shown(one.value), (*public, f" {one.difference}"))


def _condition(group: Attack) -> Cell:
    public = group.value("public_condition_accuracy")
    return Cell(fmt.percent(group.value("condition_accuracy")), (f" of {fmt.percent(public)}",) if public else ())


def _searches(scenarios: Sequence[Scenario]) -> Section | None:
    """A line for each latent search of the attacks that were measured with several."""
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
        Column("Change, points (95% interval)", lambda group: _changed(group, start[id(group)]), optional=True),
        Column("Inversion loss at z*, nats", partial(_loss, "inversion_loss_searched"), optional=True),
        Column("Inversion loss of the rows, nats", partial(_loss, "inversion_loss"), optional=True),
        Column("Column shapes, %", partial(_deviating, "shapes_score"), optional=True),
        Column("Distance to nearest", lambda group: fmt.distance(group.value("gower_distance")), optional=True),
        Column("Seconds to make the rows", lambda group: fmt.duration(group.value("seconds")), optional=True),
        Column("Trainings", _trainings),
    ]
    table = table_of("Latent searches", columns, found, css="wrap tight")
    return Section(
        "searches", "Latent searches compared", (fill(TEMPLATE, "searches"), table, fill(TEMPLATE, "searches_note"))
    )


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


def _grid_title(grid: PictureGrid) -> str:
    return " · ".join([fmt.attack_title(grid.attack), search_name(grid.search), f"target {model_name(grid.target)}"])
