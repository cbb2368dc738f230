"""Attacks on released models: what their page shows of what a model gives away of the rows it was trained on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lightleak.core.results import ReleasedRow
from lightleak.report.charts import BASELINE_STYLE, legend_mark, series_style
from lightleak.report.compare import by_key
from lightleak.report.format import (
    DASH,
    attack_title,
    capital,
    count,
    counted,
    distance,
    duration,
    in_brackets,
    nats,
    percent,
    plus_minus,
    points,
    unsigned_points,
)
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.released_groups import (
    ACCURACY,
    SEARCHES,
    UNLED,
    Attack,
    Measure,
    Scenario,
    compare,
    entries_of,
    model_name,
    most_telling,
    search_name,
    title_of,
    topics,
)
from lightleak.report.kinds.released_summary import equal_records, outcomes, summary
from lightleak.report.page import (
    Block,
    Cell,
    Column,
    Facts,
    Figure,
    Heading,
    Legend,
    Line,
    Lines,
    Page,
    Paragraph,
    Section,
    Table,
    figures,
    table_of,
    text,
)
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
    share_chart,
)
from lightleak.report.sections.pictures import PictureGrid, load_pictures, pictures_section
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.subject import subject_of, subject_section
from lightleak.report.sections.subject import title_of as title_of_runs
from lightleak.report.sections.summary import summary_section
from lightleak.report.sections.warnings import warnings_section

SORTED_ROWS = "public_pseudo_labelled"
"""The public rows that every measure compares an attack with."""

RELEASED = (
    "A model was trained on private rows to name the class of each, and was then released. Whoever holds it can ask it "
    "of any row: how sure are you that this belongs to class A? Model inversion turns that around. It makes up rows "
    "until the model is sure, to learn what the private rows of class A look like."
)
DETAILS = {
    "plgmi": "A generator learns to make rows that look like the public ones and that the released model takes for the "
    "class asked for.",
    "plgmi_black_box": "The same generator where only the model's answers can be had: the search alone asks the model.",
    "gan_without_target": "The same generator, taught on public rows alone: the released model only says which class a "
    "public row is most like.",
    SORTED_ROWS: "Nothing is made up: public rows of which the released model is surest that they belong to the class.",
    "public_random": "Nothing is made up and the model is not asked: any public rows.",
}
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
    scenario, main = most_telling(scenarios) or (None, None)
    subjects = topics(scenarios, entries, main)
    seeds = len({(entry.run, str(entry.seed)) for entry in entries}) > 1
    nearest = () if redact else next((found for one in subjects if (found := closest_pairs(one))), ())
    grids = [grid for run in runs for grid in load_pictures(run, redact)]
    return Page(
        title=title_of_runs(runs, "What the released model gives away"),
        subject=subject_of(runs),
        private=_private(redact and bool(scenarios), len(nearest), bool(grids)),
        sections=[
            summary_section(summary(scenarios)),
            _subject(runs, scenarios),
            _attacks(scenarios, scenario, main),
            _searches(scenarios),
            classes_section(scenario, main, subjects),
            lowest_section(subjects, seeds),
            pictures_section(grids, _grid_title),
            nearest_section(subjects, nearest, seeds),
            memorization_section(subjects),
            losses_section(subjects, seeds),
            labels_section(subjects, seeds),
            warnings_section(_warnings(scenarios)),
            run_section(runs, rows, _contents(len(nearest), bool(grids)), title=title_of, time=_seconds(scenarios)),
        ],
    )


def _private(redacted: bool, n_nearest: int, has_pictures: bool) -> str:
    if redacted:
        return text(
            "<strong>Redacted.</strong> Private and made-up rows are left out of this file; names of columns and "
            "classes, scores and distances are not."
        )
    if not n_nearest and not has_pictures:
        return ""
    shown = f"{counted(n_nearest, 'private row')} beside the made-up rows that come closest to them"
    return text(
        "<strong>This file contains private data.</strong> It shows {}. Treat it like the data itself, or build it "
        "again with <code>--redact</code> before you pass it on.",
        shown if n_nearest else "private images below made-up ones",
    )


def _contents(n_nearest: int, has_pictures: bool) -> str:
    others = "ames of columns and classes, scores, distances, and the settings of the run."
    images = "Private and made-up images. " if has_pictures else ""
    if not n_nearest:
        return f"{images or 'No private and no made-up row. '}N{others}"
    return text(
        "{}{} and as many made-up ones in the columns in which some pair differs, n{} With <code>--redact</code> the "
        "rows are left out.",
        images,
        counted(n_nearest, "private row"),
        others,
    )


def _subject(runs: Sequence[Run], scenarios: Sequence[Scenario]) -> Section:
    found = [_facts(scenario) for scenario in scenarios]
    groups = [group for scenario in scenarios for group in scenario.groups]
    if len(found) == 1:
        return subject_section(runs, found[0].items(), groups, before=[Paragraph(RELEASED)])
    names = dict.fromkeys(name for facts in found for name, values in facts.items() if any(values))
    lines = tuple(
        Line((Cell(name), *(Cell("; ".join(dict.fromkeys(facts[name])) or DASH) for facts in found))) for name in names
    )
    head = ("", *(scenario.title for scenario in scenarios))
    table = Table("Settings side by side", head, (Lines(lines),), css="plain wrap facts-table")
    return subject_section(runs, (), groups, before=[Paragraph(RELEASED), table])


def _facts(scenario: Scenario) -> dict[str, list[str]]:
    """What was attacked: values by name, empty where nothing is known."""
    row, entries = scenario.first, scenario.entries
    own = _accuracies(entry.target_scores for entry in entries) or [
        f"{percent(value)} on held-out rows"
        for group in scenario.groups
        for value in group.values("target_test_accuracy")
    ]
    sizes = {
        name: [count(n) for one in entries if (n := one.size(key)) is not None] for name, key in TASK_FACTS.items()
    }
    return {
        "Dataset": [row.dataset or "not stated"],
        "Setting": [row.setting] if row.setting else [],
        "Released model": [model_name(row.target)],
        "Its accuracy": own,
        "Evaluation model": [model_name(row.evaluation)],
        "Accuracy of the evaluation model": _accuracies(entry.evaluation_scores for entry in entries),
        "Accuracy of the second one": _accuracies(entry.disjoint_scores for entry in entries),
    } | sizes


def _accuracies(scores: Iterable[Mapping[str, float]]) -> list[str]:
    parts = {"train_accuracy": "on training rows", "test_accuracy": "on held-out ones"}
    found = []
    for one in scores:
        words = [f"{percent(one[name])} {where}" for name, where in parts.items() if name in one]
        if words and "epochs" in one:
            words.append(f"after {count(one['epochs'])} epochs")
        found.append(", ".join(words))
    return [words for words in found if words]


def _attacks(scenarios: Sequence[Scenario], scenario: Scenario | None, main: Attack | None) -> Section | None:
    if not scenarios:
        return None
    groups = [group for one in scenarios for group in one.groups]
    drawn = [figure for one in scenarios if (figure := _chart(one))]
    equal = equal_records(scenario, main) if scenario and main else ""
    marks: list[tuple[str, str]] = [
        (legend_mark(series_style(0)), "attack on the model"),
        (legend_mark(BASELINE_STYLE), "baseline from public data"),
    ]
    if any(value.has_interval for group in groups if (value := group.value())):
        marks.append(("", "bars: 95% intervals over trainings, each with its own models and generator"))
    table = table_of(
        "Attacks beside their baselines",
        _COLUMNS,
        [(one.title, _lines(one)) for one in scenarios],
        css="wrap tight",
        line_css=lambda one: _line_css(one.group, main),
    )
    known = {attack_title(name): DETAILS[name] for name in by_key(groups, lambda one: one.attack) if name in DETAILS}
    return Section(
        "attacks",
        "Attack and baselines",
        (
            Paragraph(
                "How many of 100 rows made for a class the evaluation model takes for that class. It never took part "
                "in the attack, and was trained on the same private rows as the released model. Gray diamonds are "
                "baselines from public data: what does not stand to the right of all of them shows nothing of the "
                "model. The solid line is how often the evaluation model is right on real private rows that no model "
                "was trained on; typical rows are recognized more often, so it bounds no attack."
            ),
            Legend(tuple(marks)),
            *figures(drawn),
            table,
            *([Paragraph(equal)] if equal else []),
            Paragraph(
                "“Column shapes”: how alike made-up and private values of a column are spread, mean over all columns; "
                "“pair trends”: the same for pairs of columns; 100% is alike. “Inversion loss”: how far the released "
                "model is from taking the row for its class; 0 is certain. “Distance to nearest”: Gower distance of a "
                "made-up row to the private row of its class that is most like it, 0 is equal, 1 differs in "
                "everything. “Equal rows”: share of made-up rows that equal a private training row in every column. A "
                "dash marks what was not measured; what was trained once has no interval.",
                "note",
            ),
            *_measures(scenarios, main),
            *((Heading("What is compared"), Facts(tuple(known.items()))) if known else ()),
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
    Column("Taken for its class (95% interval)", lambda one: percent(one.value) + in_brackets(one.value)),
    Column("Over the best baseline, points (95% interval)", lambda one: points(one.gain) + in_brackets(one.gain, -1.0)),
    Column("Column shapes", lambda one: percent(one.mean("shapes_score"))),
    Column("Pair trends", lambda one: percent(one.mean("pair_trends_score"))),
    Column("Inversion loss, nats", lambda one: nats(one.mean("inversion_loss"))),
    Column("Distance to nearest", lambda one: distance(one.mean("gower_distance"))),
    Column("Equal rows", lambda one: percent(one.mean("exact_match_rate"))),
    Column("Trainings", lambda one: str(one.group.n_trainings) if one.group else DASH),
)


def _chart(scenario: Scenario) -> Figure | None:
    dots = [
        (group.name, value, group.singles(), group.is_baseline) for group in scenario.groups if (value := group.value())
    ]
    rules = [("real rows", scenario.real_rows, "truth"), ("chance", scenario.chance, "guess")]
    lines = [Rule(value.mean, css, f"{words} {percent(value)}") for words, value, css in rules if value]
    name = f"Share of rows taken for their class by {len(dots)} of the attacks and baselines"
    return Figure(share_chart(name, dots, lines), scenario.title, plot="bars") if dots else None


def _measures(scenarios: Sequence[Scenario], main: Attack | None) -> tuple[Block, ...]:
    """Every measure of what was compared with the public rows that the model sorted, and is not these rows."""
    groups = [
        (one.title, [group for group in one.groups if group.attack != SORTED_ROWS and _is_compared(group)])
        for one in scenarios
    ]
    if not any(found for _, found in groups):
        return ()
    each = outcomes(main) if main else ""
    columns = [Column[Attack]("Attack", lambda group: group.name)]
    columns += [Column(title, _measure(index)) for index, title in enumerate(MEASURE_TITLES.values())]
    columns.append(Column("Condition learned", _condition))
    return (
        Heading("Measure by measure, beside public rows"),
        Paragraph(
            "Each attack's figure and, small, that of as many public rows of the same classes that the released model "
            "merely sorted, and the difference with its 95% interval over trainings. That the model gives away what "
            "its classes look like is concluded only where all five differences are above zero."
        ),
        *([Paragraph(f"{main.name} beside public rows: {each}", "verdict")] if main and each else []),
        table_of(
            "Attacks beside public rows, measure by measure",
            columns,
            groups,
            css="wrap snug",
            line_css=lambda group: _line_css(group, main),
        ),
        Paragraph(
            "“Second judge”: an evaluation model that was trained on private rows which the released model never saw. "
            "“Class shapes”: as column shapes, within each class. “Distinct nearest rows”: the effective number of "
            "private rows of a class that the made-up ones come nearest to; few means that the rows vary little. "
            "“Nearer to a training row”: one half is chance. “Condition learned”: how often a classifier that learned "
            "from public rows alone takes a row for the class that was asked for, of what it reaches on public rows "
            "that it did not learn from; a generator far below never learned what it was asked.",
            "note",
        ),
    )


def _is_compared(group: Attack) -> bool:
    return any(one.gain is not None for one in group.measures)


def _measure(index: int) -> Callable[[Attack], Cell]:
    def cell(group: Attack) -> Cell:
        one: Measure = group.measures[index]
        public = (f" of {one.shown(one.public)}",) if one.public else ()
        return Cell(one.shown(one.value), (*public, f" {one.difference}"))

    return cell


def _condition(group: Attack) -> Cell:
    public = group.value("public_condition_accuracy")
    return Cell(percent(group.value("condition_accuracy")), (f" of {percent(public)}",) if public else ())


def _searches(scenarios: Sequence[Scenario]) -> Section | None:
    """One table for each attack that was measured with several latent searches."""
    found = [
        (scenario.place(name), sorted(groups, key=_search_order))
        for scenario in scenarios
        for name, groups in by_key(scenario.groups, lambda group: group.fit_name).items()
        if len({group.search for group in groups}) > 1
    ]
    blocks: list[Block] = []
    for title, groups in found:
        rows = [(name, tuple(map(cell, groups))) for name, cell in _SEARCH_ROWS.items()]
        lines = [Line((Cell(name), *map(Cell, cells))) for name, cells in rows if {*cells} != {DASH}]
        head = (title if len(found) > 1 else "Mean ± deviation", *(search_name(group.search) for group in groups))
        blocks.append(Table(f"Latent searches of {title}", head, (Lines(tuple(lines)),), css="wrap"))
        blocks += [Paragraph(words)] if (words := " ".join(_effects(groups))) else []
    if not blocks:
        return None
    words = (
        "A generator turns random numbers z into rows. An attacker can take z as it comes, or search for a z that "
        "makes the released model surer of the class. A lower inversion loss only says that this model is surer; "
        "whether the rows are more typical of the class is for the evaluation model to say."
    )
    note = (
        "Means ± sample standard deviations over trainings, or over evaluations of the only one. “random z” draws "
        "categories at random, too, as the generator was trained to; “likeliest categories” takes the likeliest ones, "
        "and is where the searches start. Changes are measured against that where it was measured, training by "
        "training."
    )
    return Section("searches", "Latent searches compared", (Paragraph(words), *blocks, Paragraph(note, "note")))


def _search_order(group: Attack) -> int:
    return list(SEARCHES).index(group.search) if group.search in SEARCHES else len(SEARCHES)


def _share(name: str) -> Callable[[Attack], str]:
    return lambda group: plus_minus(group.value(name), group.deviation(name))


def _loss(name: str) -> Callable[[Attack], str]:
    def cell(group: Attack) -> str:
        shown = nats(value := group.value(name))
        return shown if "e" in shown else plus_minus(value, group.deviation(name), 2, 1)

    return cell


_SEARCH_ROWS: Mapping[str, Callable[[Attack], str]] = {
    "Attack accuracy, %": _share(ACCURACY),
    "Inversion loss at z*, nats": _loss("inversion_loss_searched"),
    "Inversion loss of the rows, nats": _loss("inversion_loss"),
    "Column shapes, %": _share("shapes_score"),
    "Distance to the nearest private row": lambda group: distance(group.value("gower_distance")),
    "Seconds to make the rows": lambda group: duration(group.value("seconds")),
    "Trainings": lambda group: str(group.n_trainings),
    "Evaluations": lambda group: str(len(group.evaluations)),
    "Rows of each": lambda group: count(group.samples),
}


def _effects(groups: Sequence[Attack]) -> Iterator[str]:
    """What each search changed beside where it started, else beside random z; nothing without either."""
    by_search = {group.search: group for group in groups}
    plain = by_search.get("softmax", by_search.get("random"))
    for group in groups if plain else ():
        assert plain is not None
        before, after, change = plain.value("inversion_loss"), group.value("inversion_loss"), group.change(plain)
        if group.search in UNLED or before is None or after is None or change is None:
            continue
        if change.low is None or change.high is None:
            effect = f"changed attack accuracy by {points(change)} points"
        elif change.low > 0 or change.high < 0:
            effect = f"{'raised' if change.low > 0 else 'lowered'} attack accuracy by {unsigned_points(change)} points"
        else:
            effect = f"did not measurably change attack accuracy ({points(change)} points)"
        if nats(before) == nats(after):
            loss = f"left the inversion loss at {nats(after)}"
        else:
            verb = "lowered" if after.mean < before.mean else "did not lower"
            loss = f"{verb} the inversion loss ({nats(before)} to {nats(after)})"
        yield f"{capital(search_name(group.search))} {loss} and {effect}."


def _grid_title(grid: PictureGrid) -> str:
    return " · ".join([attack_title(grid.attack), search_name(grid.search), f"target {model_name(grid.target)}"])


def _warnings(scenarios: Sequence[Scenario]) -> list[tuple[str, list[str]]]:
    """What attacks warned of, each text once with the attacks that gave it."""
    found: dict[str, dict[str, None]] = {}
    for scenario in scenarios:
        for group in scenario.groups:
            for warning in (warning for row in group.rows for warning in row.warnings):
                found.setdefault(warning, {})[scenario.place(group.name)] = None
    return [(warning, list(places)) for warning, places in found.items()]


def _seconds(scenarios: Sequence[Scenario]) -> tuple[Block, ...]:
    """Mean time to train each generator, and to make the rows of one evaluation."""
    found = [(one.place(group.name), group) for one in scenarios for group in one.groups]
    timed = [pair for pair in found if pair[1].value("fit_seconds") or pair[1].value("seconds")]
    return (table_of("Time", _TIME_COLUMNS, [("", timed)], css="wrap"),) if timed else ()


_TIME_COLUMNS: tuple[Column[tuple[str, Attack]], ...] = (
    Column("Time", lambda pair: pair[0]),
    Column("Training the generator", lambda pair: duration(pair[1].value("fit_seconds"))),
    Column("Making the rows of one evaluation", lambda pair: duration(pair[1].value("seconds"))),
)
