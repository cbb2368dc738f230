"""What ``inversion.json`` adds to the numbers of an attack on a released model: a section for each of its parts."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.report import charts
from lightleak.report.blocks import Block, Cell, Column, Details, Heading, Legend, Line, Panels, Section, Table
from lightleak.report.compare import means_by
from lightleak.report.format import DASH, count, distance, joined, percent, with_interval
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.released_entries import Entry, Memorization, Nearest, PseudoLabel, is_missing
from lightleak.report.kinds.released_groups import HALF, Scenario
from lightleak.report.kinds.released_scores import ACCURACY, Attack
from lightleak.report.page import cells_table, fill, folded, line_of, names_table, table_of
from lightleak.report.plot.chart import Rule

KIND_TITLES = {"continuous": "contin\u00aduous", "categorical": "cate\u00adgorical"}
"""Where a long name may break."""

METRICS = {"KSComplement": "numbers", "TVComplement": "categories"}
LOSSES = {
    "generator": ("Generator loss", "how well it passes for real; no absolute meaning"),
    "discriminator": ("Discriminator loss", "how well made-up rows are distinguished from public ones"),
    "inversion": ("Inversion loss", "how far the model is from taking the rows for their class"),
    "conditioning": ("Conditioning loss", "how far the rows are from the class asked for"),
}
LOGARITHMIC = ("discriminator", "conditioning")
"""Drawn on a logarithmic scale in the thesis."""

HEAT_BOUNDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Where the shade changes: the color says which, the printed number says how much."""

words = partial(fill, "inversion")


def classes_section(scenario: Scenario | None, main: Attack | None, subjects: Sequence[Attack]) -> Section | None:
    """Draw how often rows are taken for each class, and how alike their values are; None where nothing is known."""
    blocks: list[Block] = []
    made = main.by_class(ACCURACY) if main else {}
    if scenario and main and made:
        real = {name: value for name, value in main.by_class("real_rows_accuracy_class").items() if name in made}
        n_above = sum(made[name] > value for name, value in real.items())
        name = f"Share of rows taken for each of {len(made)} classes, real and made up"
        drawn = charts.pairs_by_name(name, made, real, "real rows", "made-up rows")
        blocks = [words("classes", scenario.place(main.name), n_above, len(made), bool(real)), *drawn]
    maps = [(one.name, table) for one in subjects if (table := heat_map(one))]
    blocks += [words("heat", (0.0, *HEAT_BOUNDS))] if maps else []
    for index, (title, table) in enumerate(maps):
        blocks += folded(title, table, when=len(maps) > 1, is_open=not index)
    return Section("classes", "Class by class", tuple(blocks)) if blocks else None


def heat_map(topic: Attack) -> Table | None:
    """Draw how alike single columns are, by class and kind of column; means over seeds (thesis Fig. 5.3)."""
    shapes = [entry.class_shapes for entry in topic.entries]
    pairs = [(one.class_name, one.scores) for shape in shapes for one in shape.classes]
    known = dict.fromkeys(name for _, scores in pairs for name in scores)
    named = dict.fromkeys(name for shape in shapes for name in shape.groups)
    names = [name for name in named | known if name in known]
    sizes = {name: size for shape in shapes for name, size in shape.columns.items()}
    # The mean is over columns where their numbers are known, else over kinds.
    weights = {name: sizes[name] if all(sizes.get(one) for one in names) else 1.0 for name in names}

    def means(many: Iterable[Mapping[str, float]]) -> dict[str, float]:
        listed = list(many)
        return means_by((name, scores[name]) for name in names for scores in listed if name in scores)

    def drawn(title: str, shares: Mapping[str, float], css: str = "") -> Line:
        mean = statistics.fmean(shares.values(), [weights[name] for name in shares]) if shares else None
        return line_of(title, *(_heat_cell(shares.get(name)) for name in names), _heat_cell(mean), css=css)

    by_class = {name: means(scores for _, scores in same) for name, same in by_key(pairs, lambda one: one[0]).items()}
    head = {name: KIND_TITLES.get(name, name) for name in names}
    head |= {name: words("kind", head[name], int(size)) for name, size in sizes.items() if name in head}
    foot = drawn("All classes", means(by_class.values()), "foot")
    groups = [("", [drawn(name, shares) for name, shares in by_class.items()]), ("", [foot])]
    label = f"Column shapes by class and kind of column, {topic.name}"
    return cells_table(label, ("Class", *head.values(), "mean"), groups, box="heat-map") if names else None


def lowest_section(subjects: Sequence[Attack], seeds: bool) -> Section | None:
    """Draw the columns that are least alike, of the first seed of each attack that names some (thesis Fig. 5.5)."""
    blocks: list[Block] = []
    for topic, entry in _first(subjects, lambda entry: bool(entry.lowest)):
        low = sorted(((one, one.score) for one in entry.lowest if one.score is not None), key=lambda pair: pair[1])
        if topic.is_baseline or not low:
            continue
        named = [(joined(one.column, one.kind and f"({one.kind})", by=" "), one.metric, score) for one, score in low]
        bars = [charts.EstimateRow(name, Estimate(score), _style(metric)) for name, metric, score in named]
        drawn: list[Block] = [charts.bar_figure(f"The {len(bars)} columns of {topic.name} that are least alike", bars)]
        if entry.column_shapes:
            every = sorted(entry.column_shapes.items(), key=lambda pair: pair[1])
            table = names_table("All columns", ((name, percent(score)) for name, score in every), box="tall")
            drawn.append(Details(f"All {len(every)} columns", (table,), css="plain"))
        mean = statistics.fmean(score for _, score in low)
        title = f"{_with_seed(topic.name, entry, seeds)}: the {len(bars)} lowest, {percent(mean)} on average"
        blocks.append(Details(title, tuple(drawn), is_open=not blocks))
    legend = Legend([(_style(name), said) for name, said in METRICS.items()])
    return Section("columns", "Columns that are least alike", (words("lowest"), legend, *blocks)) if blocks else None


def _style(metric: str) -> charts.Style:
    return charts.series_style(list(METRICS).index(metric) if metric in METRICS else 0)


def _first(subjects: Sequence[Attack], has: Callable[[Entry], bool]) -> Iterator[tuple[Attack, Entry]]:
    """The first entry of each topic that has something."""
    for topic in subjects:
        if (entry := next(filter(has, topic.entries), None)) is not None:
            yield topic, entry


def _with_seed(title: str, entry: Entry, seeds: bool) -> str:
    return f"{title}, seed {entry.seed}" if seeds else title


def closest_pairs(topic: Attack) -> tuple[Nearest, ...]:
    """Return the closest pairs of an attack, of its first seed that has some, the closest first."""
    entry = next((entry for entry in topic.entries if entry.pairs), None)
    if entry is None or topic.is_baseline:
        return ()
    return tuple(sorted(entry.pairs, key=lambda pair: (pair.distance is None, pair.distance or 0.0)))


def nearest_section(subjects: Sequence[Attack], pairs: Sequence[Nearest], seeds: bool) -> Section | None:
    """Draw the closest made-up and private row of each class side by side (thesis Table A.2)."""
    if not pairs:
        return None
    known = [(topic, entry, _mean_distance(entry)) for topic, entry in _first(subjects, lambda one: bool(one.pairs))]
    topic, entry, mean = next(found for found in known if not found[0].is_baseline)
    columns, same = columns_of(pairs)
    n_equal = sum(all(pair.agrees(name) for name in columns) for pair in pairs)
    others = [(one.name, value) for one, _, value in known if one.is_baseline and value is not None]
    title = "Nearest private and made-up rows"
    said = words("nearest", _with_seed(topic.name, entry, seeds), pairs, n_equal, mean, others)
    table = pairs_table(title, pairs, columns)
    return Section("rows", title, (said, table, words("hidden", same, bool(columns))))


def _mean_distance(entry: Entry) -> float | None:
    known = [pair.distance for pair in entry.pairs if pair.distance is not None]
    return statistics.fmean(known) if known else None


def memorization_section(subjects: Sequence[Attack]) -> Section | None:
    """Draw whether made-up rows lie nearer to rows the target was trained on than to private rows it never saw."""
    found = [topic for topic in subjects if topic.memory != Memorization()]
    dots = [share_row(topic.name, share, topic.is_baseline) for topic in found if (share := topic.memory.value)]
    x = charts.share_axis((*(end for one in dots for end in (one.value.mean, *one.value.ends)), 0.45, 0.55))
    name = "Share of made-up rows that lie nearer to a training row than to a held-out one"
    drawn = [charts.estimate_figure(name, dots, [Rule(HALF, "guess", "chance 50%")], x)] if dots else []
    title = "Distances to training rows and to held-out rows"
    table = table_of(title, _MEMORY_COLUMNS, [("", found)], css="wrap", line_css=lambda one: one.css)
    blocks: list[Block] = [words("memorization"), *drawn, table, words("memorized")]
    return Section("memorization", "Copies of single rows", blocks) if found else None


_MEMORY_COLUMNS: tuple[Column[Attack], ...] = (
    Column("Made by", lambda topic: topic.name),
    Column("Nearest training row, mean distance", lambda topic: distance(topic.memory.train_mean, 4)),
    Column("Nearest held-out row, mean distance", lambda topic: distance(topic.memory.heldout_mean, 4)),
    Column("Nearer to a training row (95% interval)", lambda topic: with_interval(topic.memory.value)),
    Column("Made-up rows", lambda topic: count(topic.memory.n)),
)


def share_row(
    title: str, value: Estimate, is_baseline: bool, singles: Sequence[tuple[float, str]] = ()
) -> charts.EstimateRow:
    """Return the row of a chart with the look of an attack or a baseline; single values are shown where several are."""
    style = charts.BASELINE_STYLE if is_baseline else charts.series_style(0)
    return charts.EstimateRow(title, value, style, tuple(singles) if len(singles) > 1 else (), percent(value))


def losses_section(subjects: Sequence[Attack], seeds: bool) -> Section | None:
    """Draw the curves of each training, of its first seed that has some; searches share their training."""
    found: dict[str, Details] = {}
    for topic in subjects:
        for entry in topic.entries if topic.fit_name not in found else ():
            known, steps = entry.losses, entry.losses.get("iteration", ())
            drawn = (
                charts.curve_figure(title, note, topic.fit_name, steps, known.get(name, ()), name in LOGARITHMIC)
                for name, (title, note) in LOSSES.items()
            )
            if curves := tuple(filter(None, drawn)):
                title = _with_seed(topic.fit_name, entry, seeds)
                found[topic.fit_name] = Details(title, (Panels(curves, "curves"),), is_open=not found)
                break
    blocks: list[Block] = [words("losses"), *found.values()]
    return Section("losses", "Training curves of the generator", blocks) if found else None


def labels_section(subjects: Sequence[Attack], seeds: bool) -> Section | None:
    """Draw how the public rows were sorted, by the first seed; attacks and searches of one target share a sorting."""
    first = _first(subjects, lambda entry: bool(entry.pseudo_labels))
    found = by_key(first, lambda pair: pair[1].pseudo_labels)
    blocks: list[Block] = [words("labels")]
    for rows, ((topic, entry), *_) in found.items():
        blocks += [Heading(_with_seed(topic.fit_name, entry, seeds))] if seeds or len(found) > 1 else []
        left_out = [f"{one.class_name} ({one.excluded})" for one in rows if one.excluded]
        table = table_of("Public rows by class", _LABEL_COLUMNS, [("", rows)], css="wrap")
        said = words("sorted", sum(one.used or 0 for one in rows), len(rows), left_out)
        blocks += [said, Details("Public rows of each class", (table,))]
    return Section("labels", "Public rows by class", tuple(blocks)) if found else None


_LABEL_COLUMNS: tuple[Column[PseudoLabel], ...] = (
    Column("Class", lambda one: one.class_name),
    Column("Public rows sorted into it", lambda one: count(one.public_rows)),
    Column("Rows used", lambda one: count(one.used)),
    Column("Left out because", lambda one: one.excluded or "", css="words"),
)


def shade(score: float | None) -> int:
    """Step of color of a share, from 0 to `len(HEAT_BOUNDS)`.

    >>> shade(0.42), shade(0.9), shade(1.0), shade(None)
    (0, 5, 6, 0)
    """
    return sum(score >= bound for bound in HEAT_BOUNDS) if score is not None else 0


def _heat_cell(score: float | None) -> Cell:
    return Cell(DASH if score is None else f"{100 * score:.1f}", css=f"heat heat{shade(score)}")


def columns_of(pairs: Sequence[Nearest]) -> tuple[list[str], list[str]]:
    """Columns in which some pair does not agree, and those in which every pair does."""
    names = dict.fromkeys(name for pair in pairs for row in (pair.private, pair.reconstructed) for name in row)
    same = [name for name in names if all(pair.agrees(name) for pair in pairs)]
    return [name for name in names if name not in same], same


def pairs_table(label: str, pairs: Sequence[Nearest], columns: Sequence[str]) -> Table:
    """Draw each pair in two lines; numbers show their difference, categories whether they agree."""
    groups = []
    for pair in pairs:
        real = (Cell(value_words(pair.private.get(name)) or DASH, css="long") for name in columns)
        made = (Cell(_made_up_value(pair, name), css="long") for name in columns)
        first = line_of(words("pair", pair.class_name), *real, "", css="true")
        groups.append(("", [first, line_of("made up", *made, distance(pair.distance))]))
    return cells_table(label, ("Class", *columns, "distance"), groups, box="rows")


def value_words(value: Any) -> str | None:
    """A value as text; None where it is missing or no finite number.

    >>> value_words(20.5), value_words(-3), value_words("A"), value_words(float("nan"))
    ('20.5', '−3', 'A', None)
    """
    if is_missing(value):
        return None
    return f"{value:.6g}".replace("-", "−") if isinstance(value, int | float) else str(value)


def _made_up_value(pair: Nearest, column: str) -> str:
    real, made, agrees = pair.private.get(column), pair.reconstructed.get(column), pair.agrees(column)
    if (said := value_words(made)) is None:
        return DASH
    if agrees is None:
        return words("value", "unknown", 0, "?", "not comparable", said, "")
    if agrees:
        return words("value", "hit", 2, "✓", "equal", said, "")
    if isinstance(real, int | float) and isinstance(made, int | float):
        return words("value", "unknown", 1, "", "", said, f"{made - real:+.3g}".replace("-", "−"))
    return words("value", "miss", 2, "✗", "another category", said, "")
