"""Attacks on released models: what their page shows of what a model gives away of the rows it was trained on."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.core.results import ReleasedRow
from lightleak.report.charts import (
    BASELINE_STYLE,
    SHARES,
    Bar,
    EstimateRow,
    bar_chart,
    estimate_chart,
    legend_mark,
    series_style,
)
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
    HALF,
    SEARCHES,
    UNLED,
    Attack,
    Entry,
    Measure,
    Memorization,
    PseudoLabel,
    Scenario,
    Topic,
    compare,
    entries_of,
    model_name,
    most_telling,
    pooled,
    search_name,
    title_of,
    topics,
)
from lightleak.report.kinds.released_summary import equal_records, outcomes, summary
from lightleak.report.page import (
    Block,
    Cell,
    Column,
    Details,
    Facts,
    Figure,
    Heading,
    Legend,
    Line,
    Lines,
    Page,
    Panels,
    Paragraph,
    Section,
    Table,
    figures,
    folded,
    names_table,
    table_of,
    text,
)
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Rule
from lightleak.report.read import Run
from lightleak.report.sections.columns import pairs_by_name
from lightleak.report.sections.curves import curve_figure
from lightleak.report.sections.heat_map import HeatLine, heat_legend, heat_map
from lightleak.report.sections.pairs import PairOfRows, columns_of, pairs_legend, pairs_table
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
KIND_TITLES = {"continuous": "contin\u00aduous", "categorical": "cate\u00adgorical"}
"""Where a long name may break."""

METRICS = {"KSComplement": "numbers", "TVComplement": "categories"}
LOSSES = {
    "generator": ("Generator loss", "how well it passes for real; no absolute meaning"),
    "discriminator": ("Discriminator loss", "how well made-up rows are told from public ones"),
    "inversion": ("Inversion loss", "how far the model is from taking the rows for their class"),
    "conditioning": ("Conditioning loss", "how far the rows are from the class asked for"),
}
LOGARITHMIC = ("discriminator", "conditioning")
"""Drawn on a logarithmic scale in the thesis."""


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
    nearest = () if redact else next((found for one in subjects if (found := _pairs(one))), ())
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
            _classes(scenario, main, subjects),
            _columns(subjects, seeds),
            pictures_section(grids, _grid_title),
            _nearest(subjects, nearest, seeds),
            _memorization(subjects),
            _losses(subjects, seeds),
            _labels(subjects, seeds),
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
    table = Table("Settings side by side", head, (Lines(lines),), css="plain facts-table")
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
    return Figure(_shares(name, dots, lines), scenario.title, plot="bars") if dots else None


def _shares(
    name: str,
    dots: Iterable[tuple[str, Estimate, Sequence[tuple[float, str]], bool]],
    rules: Sequence[Rule],
    x: Axis = SHARES,
) -> Markup:
    """Shares along one axis: name, mean, single values if several, and whether it is a baseline."""
    rows = [
        EstimateRow(
            title,
            value,
            tuple(singles) if len(singles) > 1 else (),
            BASELINE_STYLE if is_baseline else series_style(0),
            percent(value),
        )
        for title, value, singles, is_baseline in dots
    ]
    return estimate_chart(name, rows, rules, x)


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
        *([Paragraph(f"{main.name}: {each}", "verdict")] if main and each else []),
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


def _classes(scenario: Scenario | None, main: Attack | None, subjects: Sequence[Topic]) -> Section | None:
    blocks: list[Block] = []
    made = main.by_class(ACCURACY) if main else {}
    if scenario and main and made:
        real = {name: value for name, value in main.by_class("real_rows_accuracy_class").items() if name in made}
        above = sum(made[name] > value for name, value in real.items())
        words = f"{scenario.place(main.name)}: share of rows that the evaluation model takes for their class."
        if real:
            words += f" In {above} of {len(made)} classes made-up rows are recognized more often than real ones."
        name = f"Share of rows taken for each of {len(made)} classes, real and made up"
        blocks = [Paragraph(words), *pairs_by_name(name, made, real, "real rows", "made-up rows")]
    maps = [(one.title, table) for one in subjects if (table := _heat_map(one))]
    if maps:
        blocks += [
            Heading("How alike the values are, by kind of column"),
            Paragraph(
                "For each class, how alike made-up and private values are spread, in percent: mean over the columns of "
                "one kind. The deeper the color, the closer the made-up rows come to the private ones. The fewer rows "
                "a class has, the lower its scores by chance alone."
            ),
            heat_legend(),
        ]
    for index, (title, table) in enumerate(maps):
        blocks += folded(title, table, when=len(maps) > 1, is_open=not index)
    return Section("classes", "Class by class", tuple(blocks)) if blocks else None


def _heat_map(topic: Topic) -> Table | None:
    """How alike single columns are, by class and kind of column; means over seeds (thesis Fig. 5.3)."""
    shapes = [entry.class_shapes for entry in topic.entries]
    pairs = [(one.class_name, one.scores) for shape in shapes for one in shape.classes]
    named = dict.fromkeys(name for shape in shapes for name in shape.groups)
    known = {name for _, scores in pairs for name in scores}
    names = [name for name in named | dict.fromkeys(known) if name in known]
    sizes = {name: size for shape in shapes for name, size in shape.columns.items()}
    # The mean is over columns where their numbers are known, else over kinds.
    weights = {name: sizes[name] if all(sizes.get(one) for one in names) else 1.0 for name in names}

    def line(title: str, many: Sequence[Mapping[str, float]]) -> HeatLine:
        found = {name: [scores[name] for scores in many if name in scores] for name in names}
        means = {name: statistics.fmean(values) for name, values in found.items() if values}
        mean = statistics.fmean(means.values(), [weights[name] for name in means]) if means else None
        return title, means, mean

    lines = [line(name, [scores for _, scores in same]) for name, same in by_key(pairs, lambda one: one[0]).items()]
    foot = line("All classes", [scores for _, scores, _ in lines])
    head = {
        name: text("{}<small>{}</small>", KIND_TITLES.get(name, name), counted(int(sizes[name]), "column"))
        if name in sizes
        else KIND_TITLES.get(name, name)
        for name in names
    }
    label = f"Column shapes by class and kind of column, {topic.title}"
    return heat_map(label, "Class", head, lines, foot) if names else None


def _columns(subjects: Sequence[Topic], seeds: bool) -> Section | None:
    """The columns that are least alike, of the first seed of each attack that names some (thesis Fig. 5.5)."""
    styles = {name: series_style(index) for index, name in enumerate(METRICS)}
    blocks: list[Block] = []
    for topic, entry in _first(subjects, lambda entry: bool(entry.lowest)):
        low = sorted(((one, one.score) for one in entry.lowest if one.score is not None), key=lambda pair: pair[1])
        if topic.is_baseline or not low:
            continue
        bars = [
            Bar(
                f"{one.column} ({one.kind})" if one.kind else one.column,
                Estimate(score),
                styles.get(one.metric, series_style(0)),
            )
            for one, score in low
        ]
        mean = statistics.fmean(score for _, score in low)
        drawn: list[Block] = [
            Figure(bar_chart(f"The {len(bars)} columns of {topic.title} that are least alike", bars, None), plot="bars")
        ]
        if entry.column_shapes:
            every = sorted(entry.column_shapes.items(), key=lambda pair: pair[1])
            table = names_table("All columns", ((name, percent(score)) for name, score in every), box="tall")
            drawn.append(Details(f"All {len(every)} columns", (table,), css="plain"))
        words = f"{_with_seed(topic.title, entry, seeds)}: the {len(bars)} lowest, {percent(mean)} on average"
        blocks.append(Details(words, tuple(drawn), is_open=not blocks))
    legend = Legend(tuple((legend_mark(styles[name]), words) for name, words in METRICS.items()))
    words = (
        "What the generator got right least: 100% would mean that made-up and private values are spread alike over all "
        "classes."
    )
    note = "Numbers: one minus the Kolmogorov-Smirnov statistic. Categories: one minus the total variation distance."
    told = (Paragraph(words), legend, *blocks, Paragraph(note, "note"))
    return Section("columns", "Columns that are least alike", told) if blocks else None


def _first(subjects: Sequence[Topic], has: Callable[[Entry], bool]) -> Iterator[tuple[Topic, Entry]]:
    """The first entry of each topic that has something."""
    for topic in subjects:
        if (entry := next(filter(has, topic.entries), None)) is not None:
            yield topic, entry


def _with_seed(title: str, entry: Entry, seeds: bool) -> str:
    return f"{title}, seed {entry.seed}" if seeds else title


def _grid_title(grid: PictureGrid) -> str:
    return " · ".join([attack_title(grid.attack), search_name(grid.search), f"target {model_name(grid.target)}"])


def _pairs(topic: Topic) -> tuple[PairOfRows, ...]:
    """The closest pairs of an attack, of its first seed that has some, the closest first."""
    entry = next((entry for entry in topic.entries if entry.pairs), None)
    if entry is None or topic.is_baseline:
        return ()
    found = (PairOfRows(one.class_name, one.distance, one.private, one.reconstructed) for one in entry.pairs)
    return tuple(sorted(found, key=lambda pair: (pair.distance is None, pair.distance or 0.0)))


def _nearest(subjects: Sequence[Topic], pairs: Sequence[PairOfRows], seeds: bool) -> Section | None:
    """The closest made-up and private row of each class side by side (thesis Table A.2)."""
    if not pairs:
        return None
    topic, entry = next(found for found in _first(subjects, lambda one: bool(one.pairs)) if not found[0].is_baseline)
    columns, same = columns_of(pairs)
    equal = sum(all(pair.agrees(name) for name in columns) for pair in pairs)
    mean, others = (
        _mean_distance(entry),
        [
            f"{one.title} {distance(value)}"
            for one, of in _first(subjects, lambda entry: bool(entry.pairs))
            if one.is_baseline and (value := _mean_distance(of)) is not None
        ],
    )
    words = [
        f"{_with_seed(topic.title, entry, seeds)}: of each class the private row and the made-up row that are most "
        f"alike, out of all pairs. {equal} of {len(pairs)} pairs agree in every column."
    ]
    words += [f"Their mean distance is {distance(mean)}."] if mean is not None else []
    words += [f"The closest pairs of the baselines: {', '.join(others)}."] if others and mean is not None else []
    words.append("An attacker cannot tell which of the made-up rows these are.")
    hidden = f"{'Left out: ' * bool(columns)}{counted(len(same), 'column')} in which every pair agrees: "
    note = (
        "The pairs were chosen because they are alike: with many rows on both sides some come close by chance, as the "
        "baselines show."
    )
    return Section(
        "rows",
        "Nearest private and made-up rows",
        (
            Paragraph(" ".join(words)),
            pairs_legend(),
            pairs_table("Nearest private and made-up rows", "Class", pairs, columns),
            Paragraph(f"{hidden}{', '.join(same)}. {note}" if same else note, "note"),
        ),
    )


def _mean_distance(entry: Entry) -> float | None:
    known = [pair.distance for pair in entry.pairs if pair.distance is not None]
    return statistics.fmean(known) if known else None


_Memory = tuple[Topic, Memorization]


def _memorization(subjects: Sequence[Topic]) -> Section | None:
    """Whether made-up rows lie nearer to rows the target was trained on than to private rows it never saw."""
    found: list[_Memory] = [(topic, one) for topic in subjects if (one := pooled(topic.entries)) != Memorization()]
    if not found:
        return None
    dots = [(topic.title, share, (), topic.is_baseline) for topic, one in found if (share := one.value)]
    ends = [end for _, one, *_ in dots for end in (one.mean, one.low, one.high) if end is not None]
    x = axis([min(max(end, 0.0), 1.0) for end in (*ends, 0.45, 0.55)], ends="round", percent=True)
    name = "Share of made-up rows that lie nearer to a training row than to a held-out one"
    drawn = [Figure(_shares(name, dots, [Rule(HALF, "guess", "chance 50%")], x), plot="bars")] if dots else []
    words = (
        "If the released model had learned single rows by heart and gave them away, made-up rows would lie nearer to "
        "the rows it was trained on than to private rows it never saw. Without that, half of them do."
    )
    note = (
        "The share is what it would be with as many held-out rows as training rows of each class. “Rows” counts the "
        "made-up ones; the interval allows for many of them being near to the same private row."
    )
    table = table_of(
        "Distances to training rows and to held-out rows",
        _MEMORY_COLUMNS,
        [("", found)],
        css="wrap",
        line_css=lambda pair: "baseline" if pair[0].is_baseline else "",
    )
    return Section("memorization", "Copies of single rows", (Paragraph(words), *drawn, table, Paragraph(note, "note")))


_MEMORY_COLUMNS: tuple[Column[_Memory], ...] = (
    Column("Made by", lambda pair: pair[0].title),
    Column("Nearest training row, mean distance", lambda pair: distance(pair[1].train_mean, 4)),
    Column("Nearest held-out row, mean distance", lambda pair: distance(pair[1].heldout_mean, 4)),
    Column("Nearer to a training row (95% interval)", lambda pair: percent(pair[1].value) + in_brackets(pair[1].value)),
    Column("Rows", lambda pair: count(pair[1].n)),
)


def _losses(subjects: Sequence[Topic], seeds: bool) -> Section | None:
    """The curves of each training, of its first seed that has some; searches share their training."""
    found: dict[str, Details] = {}
    for topic in subjects:
        for entry in topic.entries if topic.fit_title not in found else ():
            steps = entry.losses.get("iteration", ())
            curves = tuple(
                figure
                for name, (title, note) in LOSSES.items()
                if (
                    figure := curve_figure(
                        title, note, topic.fit_title, steps, entry.losses.get(name, ()), name in LOGARITHMIC
                    )
                )
            )
            if curves:
                title = _with_seed(topic.fit_title, entry, seeds)
                found[topic.fit_title] = Details(title, (Panels(curves, "curves"),), is_open=not found)
                break
    words = (
        "Losses by iteration. Flat ends mean that more training would change little; a curve that still moves at its "
        "end was stopped early."
    )
    note = "Lines are means over stretches of iterations, bands the lowest and highest value in each."
    blocks: list[Block] = [Paragraph(words), *found.values(), Paragraph(note, "note")]
    return Section("losses", "Training curves of the generator", tuple(blocks)) if found else None


def _labels(subjects: Sequence[Topic], seeds: bool) -> Section | None:
    """How the public rows were sorted; attacks and searches of one target share a sorting."""
    first = _first(subjects, lambda entry: bool(entry.pseudo_labels))
    found = by_key(first, lambda pair: pair[1].pseudo_labels)
    blocks: list[Block] = []
    for rows, ((topic, entry), *_) in found.items():
        left_out = [f"{one.class_name} ({one.excluded})" for one in rows if one.excluded]
        used, n = count(sum(one.used or 0 for one in rows)), len(rows)
        blocks += [Heading(_with_seed(topic.fit_title, entry, seeds))] if len(found) > 1 else []
        words = text("<strong>Left out:</strong> {}.", "; ".join(left_out)) if left_out else "No class is left out."
        told = text("{} public rows are used in {} of {} classes. {}", used, n - len(left_out), n, words)
        table = table_of("Public rows by class", _LABEL_COLUMNS, [("", rows)], css="wrap")
        blocks += [Paragraph(told), Details("Public rows of each class", (table,))]
    words = (
        "The released model sorts the public rows into its classes; those it is surest of teach the generator. A class "
        "for which there are too few cannot be attacked and is left out."
    )
    return Section("labels", "Public rows by class", (Paragraph(words), *blocks)) if blocks else None


_LABEL_COLUMNS: tuple[Column[PseudoLabel], ...] = (
    Column("Class", lambda one: one.class_name),
    Column("Public rows sorted into it", lambda one: count(one.public_rows)),
    Column("Rows used", lambda one: count(one.used)),
    Column("Left out because", lambda one: one.excluded or "", css="words"),
)


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
