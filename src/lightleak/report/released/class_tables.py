"""Single classes and single columns: what the generator got right of each."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from markupsafe import Markup

from lightleak.report.charts import Bar, Pair, bar_chart, pair_chart, series_style
from lightleak.report.estimate import Estimate
from lightleak.report.released.entries import Entry, PseudoLabel
from lightleak.report.released.group import ACCURACY, Group
from lightleak.report.released.topics import Topic
from lightleak.report.wording import points

HEAT_BOUNDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Where the shade of the heat map changes: the colour says which, the printed number says how much."""

MOST_DRAWN = 60
KIND_TITLES = {"continuous": "contin\u00aduous", "categorical": "cate\u00adgorical"}
"""Where a long name may break."""

METRICS = {"KSComplement": "numbers", "TVComplement": "categories"}


@dataclass(frozen=True)
class ClassAccuracy:
    """Attack accuracy by class beside that of real rows, the highest first.

    Attributes:
        drawing: the chart of the first `MOST_DRAWN` classes.
        n_classes: number of classes measured.
        n_above: number of classes whose made-up rows are recognised more often than real ones; None where unknown.
        has_real: whether the accuracy of real rows is known.
    """

    drawing: Markup
    n_classes: int
    n_above: int | None
    has_real: bool


def class_accuracy(group: Group) -> ClassAccuracy | None:
    """None where no single class was measured."""
    made, real = group.by_class(ACCURACY), group.by_class("real_rows_accuracy_class")
    if not made:
        return None
    pairs = [
        Pair(name, start, made[name].mean, "" if start is None else points(made[name].mean - start))
        for name in sorted(made, key=lambda name: -made[name].mean)
        for start in [real[name].mean if name in real else None]
    ]
    known = [pair for pair in pairs if pair.start is not None]
    name = f"Share of rows taken for each of {len(pairs)} classes, real and made up"
    return ClassAccuracy(
        drawing=pair_chart(name, pairs[:MOST_DRAWN], "real rows", "made-up rows"),
        n_classes=len(pairs),
        n_above=sum(pair.end > pair.start for pair in known if pair.start is not None) if known else None,
        has_real=bool(known),
    )


@dataclass(frozen=True)
class HeatRow:
    """One class: mean score of its columns of each kind, and of all of them."""

    title: str
    scores: Mapping[str, float]
    mean: float | None


@dataclass(frozen=True)
class HeatMap:
    """How alike single columns are, by class and kind of column (thesis Fig. 5.3).

    Attributes:
        title: attack and setting.
        groups: kinds of column, with the number of columns where it is known.
        rows: one per class, in their order.
        foot: mean over the classes.
    """

    title: str
    groups: Mapping[str, int | None]
    rows: tuple[HeatRow, ...]
    foot: HeatRow


def heat_maps(topics: Sequence[Topic]) -> tuple[HeatMap, ...]:
    """One for each topic that has scores by class; means over seeds."""
    found = ((topic, _heat_map(topic)) for topic in topics)
    return tuple(one for _, one in found if one is not None)


def _heat_map(topic: Topic) -> HeatMap | None:
    shapes = [entry.class_shapes for entry in topic.entries if entry.class_shapes is not None]
    if not shapes:
        return None
    columns = {name: size for one in shapes for name, size in one.columns.items()}
    names = dict.fromkeys(name for one in shapes for name in one.groups)
    groups = {name: int(columns[name]) if name in columns else None for name in names}
    by_class: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in shapes:
        for class_name, scores in one.classes.items():
            for name, score in scores.items():
                by_class[class_name][name].append(score)
    rows = tuple(_heat_row(name, _means(scores), groups) for name, scores in by_class.items())
    over: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, score in row.scores.items():
            over[name].append(score)
    return HeatMap(topic.title, groups, rows, _heat_row("All classes", _means(over), groups))


def _means(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.fmean(values) for name, values in scores.items()}


def _heat_row(title: str, scores: Mapping[str, float], groups: Mapping[str, int | None]) -> HeatRow:
    """The mean is over columns where their numbers are known, else over kinds."""
    weights = [groups[name] or 0 for name in scores] if all(groups.values()) else [1] * len(scores)
    mean = statistics.fmean(scores.values(), weights) if scores else None
    return HeatRow(title, scores, mean)


def shade(score: float | None) -> int:
    """Step of colour of a score, from 0 to `len(HEAT_BOUNDS)`; the deeper, the closer to the private rows.

    >>> shade(0.42), shade(0.9), shade(1.0), shade(None)
    (0, 5, 6, 0)
    """
    return sum(score >= bound for bound in HEAT_BOUNDS) if score is not None else 0


def heat_legend() -> list[tuple[int, str]]:
    """Each shade with the scores it stands for, in percent."""
    inner = pairwise(HEAT_BOUNDS)
    named = [f"below {HEAT_BOUNDS[0]:.0%}", *(f"{100 * a:.0f} to {b:.0%}" for a, b in inner)]
    return list(enumerate([*named, f"{HEAT_BOUNDS[-1]:.0%} and above"]))


@dataclass(frozen=True)
class LowestColumns:
    """The columns that are least alike (thesis Fig. 5.5), and all of them as a list.

    Attributes:
        title: attack and setting.
        seed: the training they belong to.
        n: number of columns drawn.
        mean: their mean score.
        drawing: the bars.
        every: all columns with their scores, the lowest first.
    """

    title: str
    seed: str
    n: int
    mean: float
    drawing: Markup
    every: tuple[tuple[str, float], ...]


def lowest_columns(topics: Sequence[Topic]) -> tuple[LowestColumns, ...]:
    """One for each attack that names its lowest columns, of its first seed that does."""
    found = []
    for topic in topics:
        entry = next((entry for entry in topic.entries if entry.lowest), None)
        if entry is not None and not topic.is_baseline:
            found.append(_lowest(topic, entry))
    return tuple(found)


def _lowest(topic: Topic, entry: Entry) -> LowestColumns:
    styles = {name: series_style(index) for index, name in enumerate(METRICS)}
    ordered = sorted(entry.lowest, key=lambda one: one.score)
    bars = [
        Bar(
            f"{one.column} ({one.kind})" if one.kind else one.column,
            Estimate(one.score),
            styles.get(one.metric, series_style(0)),
        )
        for one in ordered
    ]
    drawing = bar_chart(f"The {len(bars)} columns of {topic.title} that are least alike", bars, None)
    every = tuple(sorted(entry.column_shapes.items(), key=lambda pair: pair[1]))
    mean = statistics.fmean(one.score for one in ordered)
    return LowestColumns(topic.title, str(entry.seed), len(bars), mean, drawing, every)


@dataclass(frozen=True)
class PseudoLabels:
    """How the public rows were sorted into classes.

    Attributes:
        title: attack and setting.
        seed: of the training of the target.
        rows: one per class.
        used: public rows kept in all classes.
        excluded: the classes left out.
    """

    title: str
    seed: str
    rows: tuple[PseudoLabel, ...]
    used: float
    excluded: tuple[PseudoLabel, ...]


def pseudo_labels(topics: Sequence[Topic]) -> tuple[PseudoLabels, ...]:
    """One for each distinct sorting, of its first seed; attacks and searches of one target share theirs."""
    found: dict[tuple[PseudoLabel, ...], PseudoLabels] = {}
    for topic in topics:
        for entry in islice((entry for entry in topic.entries if entry.pseudo_labels), 1):
            rows = entry.pseudo_labels
            excluded = tuple(one for one in rows if one.excluded)
            used = sum(one.used or 0 for one in rows)
            found.setdefault(rows, PseudoLabels(topic.fit_title, str(entry.seed), rows, used, excluded))
    return tuple(found.values())
