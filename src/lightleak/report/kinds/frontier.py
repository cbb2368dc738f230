"""A defense frontier: what each defense keeps from being read, against what it costs in accuracy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lightleak.core.results import NONE, FrontierRow
from lightleak.report.charts import ends_of, series_style
from lightleak.report.compare import Group, by_key, differing
from lightleak.report.format import (
    DASH,
    attack_title,
    capital,
    counted,
    duration,
    in_brackets,
    interval,
    joined,
    labels_phrase,
    percent,
    points,
)
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_points import (
    SETTING,
    Frontier,
    Point,
    Standing,
    compare,
    curve_title,
    fullest,
    guarantee,
    most_accurate,
    named,
    short_name,
)
from lightleak.report.kinds.frontier_summary import summary
from lightleak.report.kinds.updates_words import source_phrase, what_travels
from lightleak.report.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Heading,
    Legend,
    Page,
    Paragraph,
    Section,
    Table,
    table_of,
    text,
)
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Rule, Style, draw, legend_key, stairs
from lightleak.report.read import Run
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.subject import subject_of, subject_section, title_of
from lightleak.report.sections.summary import points_cell, summary_section

PADDING = 0.06
"""Room around a single value."""

REACH = 0.5
"""How far the axes follow intervals beyond the outermost means, as a share of the means' range."""

UNDEFENDED = Style("validation", "diamond")

WHAT = (
    "In federated learning clients keep their rows and send updates, from which an honest but curious server can "
    "reconstruct rows. A client can change its update before it leaves. Each such defense was measured twice: in "
    "training, where it acts on the update of every step, and under attack."
)
READ = (
    "The further down a point lies, the less can be read from a client; the further right, the better the network it "
    "trains. A defense is worth having if it moves down and not to the left."
)
INTERVALS = (
    "Whiskers and small numbers are 95% intervals: of accuracy over trainings, of leakage over clients; a whisker that "
    "reaches the edge of the plot continues beyond it. Every defense trains from the same first weights and orders of "
    "rows (DP-SGD draws its own batches) and is attacked on the same clients, so that “accuracy lost” and “over "
    "guessing” are paired differences in points, with intervals narrower than those of the two numbers they come from. "
    "Of several attacks each point shows the one that recovers most. The dashed line is what guessing from the "
    "columns' marginals gets right: below it an attacker does better by guessing, so those points count as leaking "
    "nothing. Updates are those of the untrained network, from which most can be read. Intervals over trainings are "
    "over other first weights and orders of the same rows, not over other data. Among so many points a few measurable "
    "differences are chance."
)
PARETO = (
    "★ marks the Pareto-best, which the rings and the solid steps show too: no other point is at least as accurate, "
    "leaks no more, and is better in one of the two. This goes by the means. “Beaten by” names a point that is better "
    "in both, one of them by a difference whose interval excludes 0. “Not distinguishable from” says that the "
    "intervals do not support the verdict: of a point without a star, that the other is better but not measurably; of "
    "one with a star, that the other is measurably worse in neither accuracy nor leakage."
)
CONTENTS = "No record and no value of a record: accuracies, shares of cells, and the settings of the run."


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of frontiers; it holds no value of a row, so that ``redact`` changes nothing."""
    rows = [row for run in runs for row in run.of(FrontierRow)]
    attacks = [row for row in rows if not row.is_training]
    frontiers = compare(rows)
    return Page(
        title=title_of(runs, "What defenses buy and cost"),
        subject=subject_of(runs),
        sections=[
            replace(summary_section(summary(frontiers)), css="summary defenses"),
            _frontiers(frontiers),
            subject_section(runs, _facts(rows, attacks, frontiers), _attacks(attacks), before=(Paragraph(WHAT),)),
            run_section(runs, attacks, CONTENTS, time=_time(rows)),
        ],
    )


def _attacks(rows: Iterable[FrontierRow]) -> list[Group[FrontierRow]]:
    return [Group(tuple(same)) for same in by_key(rows, lambda row: row.attack).values()]


def _facts(
    rows: Sequence[FrontierRow], attacks: Sequence[FrontierRow], frontiers: Sequence[Frontier]
) -> list[tuple[str, list[str]]]:
    defended = [point.first for one in frontiers for point in one.points if not point.first.is_undefended]
    return [
        ("Dataset", [row.dataset for row in rows if row.dataset]),
        ("Target network", [row.target for row in rows if row.target]),
        ("What travels", [what_travels(row.protocol) for row in rows]),
        ("Rows of a client", [str(row.batch_size) for row in attacks if row.batch_size]),
        ("Attacked", [source_phrase("initial") for _ in attacks]),
        ("Labels", [labels_phrase(row.labels) for row in attacks if row.labels]),
        ("Training", [row.training for row in rows if row.training]),
        ("Defenses", list(map(full_name, defended))),
    ]


def full_name(row: FrontierRow) -> str:
    """The defense with its strength as a sentence begins with it.

    >>> full_name(FrontierRow(attack="", defense="clipping", defense_words="clipping to norm 0.1"))
    'Clipping to norm 0.1'
    >>> full_name(FrontierRow(attack="", defense="sign", defense_words="signs, scaled per tensor"))
    'Sign (signs, scaled per tensor)'
    """
    title, words = curve_title(row.curve), row.defense_words or short_name(Point((row,)))
    if words.lower() == title.lower() or words.lower().startswith((f"{title.lower()} ", f"{title.lower()},")):
        return capital(words)
    return f"{title} ({words})"


def _time(rows: Sequence[FrontierRow]) -> tuple[Block, ...]:
    """What took time, the slowest first."""
    timed = [(attack_title(row.attack), row.seconds) for row in rows if row.seconds is not None]
    spent = {
        "trainings" if title == NONE else title: [seconds for _, seconds in same]
        for title, same in by_key(timed, lambda pair: pair[0]).items()
    }
    slowest = sorted(spent.items(), key=lambda pair: -sum(pair[1]))
    words = "; ".join(f"{title} {duration(sum(times))} for {len(times)}" for title, times in slowest)
    return (Paragraph(f"Time spent: {words}."),) if words else ()


def _frontiers(frontiers: Sequence[Frontier]) -> Section | None:
    main = fullest(frontiers)
    if main is None:
        return None
    verdicts = (_measured(main), *_best(main.standings), _unsure(main.standings), _guaranteed(main))
    # Of attacks with too small a budget, no defense is called better than another.
    shown = [line for line in (verdicts[:1] if main.budget.is_weak else verdicts) if line]
    blocks: list[Block] = [Paragraph(READ), Bullets(tuple(shown), "verdict")]
    names = differing([one.first for one in frontiers], SETTING)
    styles = curve_styles(frontiers)
    for one in frontiers:
        title = " · ".join(_part(one.first, name) for name in names)
        blocks += [Heading(title)] if title else []
        blocks += [*_drawn(one, styles, title), _table(one)]
    blocks += [Heading("How to read it"), Paragraph(INTERVALS, "note")]
    return Section("frontier", "Leakage against accuracy", (*blocks, Paragraph(PARETO + _epsilon(frontiers), "note")))


def _part(row: FrontierRow, name: str) -> str:
    words = {"batch_size": "{} rows", "training": "trained for {}", "label_setting": "labels {}"}
    return words.get(name, "{}").format(getattr(row, name) or f"{name.replace('_', ' ')} not stated")


def _measured(frontier: Frontier) -> str:
    if not frontier.measured:
        return "No point has been measured in full yet."
    trainings = sorted(len(point.accuracies) for point in frontier.measured)
    clients = sorted(len(point.gains) for point in frontier.measured)
    return f"Measured with {_range(trainings, 'training')} and {_range(clients, 'client')} at each point."


def _range(found: Sequence[int], what: str) -> str:
    return f"{'' if found[0] == found[-1] else f'{found[0]} to '}{counted(found[-1], what)}"


def _best(standings: Sequence[Standing]) -> list[str]:
    best = sorted((one.point for one in standings if one.is_best), key=lambda point: -point.place[0])
    if len(standings) < 2:
        return []
    names = ", ".join(map(short_name, best))
    which = f"only one is Pareto-best: {names}."
    if len(best) > 1:
        which = f"{len(best)} are Pareto-best, from the most accurate to the least leaky: {names}."
    return [f"Of {len(standings)} points measured, {which}"]


def _unsure(standings: Sequence[Standing]) -> str:
    """How far the frontier can be trusted."""
    if standings and all(len(one.point.accuracies) < 2 and len(one.point.gains) < 2 for one in standings):
        return "One training and one client at each point give no intervals: which points are best may be chance."
    best = [one for one in standings if one.is_best]
    shaky, close = (
        [one for one in standings if one.is_best is is_best and one.verdict == "not distinguishable"]
        for is_best in (True, False)
    )
    parts = []
    if shaky:
        who = f"{len(shaky)} of them {'is' if len(shaky) == 1 else 'are'}"
        if len(shaky) == len(best):
            who = "it is" if len(best) == 1 else "all of them are"
        parts.append(
            f"{who} best in the means only, as another point is neither measurably less accurate nor measurably leakier"
        )
    if close:
        parts.append(
            f"of the other {len(standings) - len(best)}, {len(close)} cannot be distinguished from a better one"
        )
    return f"By the 95% intervals, {'; '.join(parts)}." if parts else ""


def _guaranteed(frontier: Frontier) -> str:
    """The guarantee that costs least, and what it costs."""
    if not frontier.guaranteed:
        return ""
    point = most_accurate(frontier.guaranteed)
    cost, delta, release = frontier.cost(point), point.granted("delta"), point.granted("release_epsilon")
    at = "" if delta is None else f" at delta {delta:g}"
    one_update = "" if release is None else f", and {guarantee(release)} for one update whose batch is known"
    price = "" if cost is None else f"; accuracy lost: {points(cost)} points{in_brackets(cost, -1.0, '95% interval')}"
    return (
        f"The guarantee that costs least is {short_name(point)}: epsilon {guarantee(point.granted('epsilon'))}{at} for "
        f"every row of the training set{one_update}{price}."
    )


def _epsilon(frontiers: Sequence[Frontier]) -> str:
    everything = [point for one in frontiers for point in one.points]
    if not any(point.granted("epsilon") is not None for point in everything):
        return ""
    deltas = ", ".join(dict.fromkeys(f"{one:g}" for point in everything for one in point.values("delta")))
    return (
        " Epsilon is the guarantee of differential privacy for one row of the training set"
        f"{f', at delta {deltas}' if deltas else ''}: the smaller, the stronger. “Training” is that of all "
        "steps together, for one who sees the weights after every step but not which rows a step used: batches are "
        "drawn at random. “One update” is that of a single update, such as those attacked here, for a server that "
        "knows its batch."
    )


def _table(frontier: Frontier) -> Table:
    """A line for each point, those that are not measured yet too."""
    is_best = {id(one.point) for one in frontier.standings if one.is_best}
    several = len({point.strongest.attack for point in frontier.points if point.strongest}) > 1
    columns: list[Column[Point]] = [
        Column("Defense", _name),
        Column("Epsilon, training", lambda point: guarantee(point.granted("epsilon")), optional=True),
        Column("Epsilon, one update", lambda point: guarantee(point.granted("release_epsilon")), optional=True),
        Column("Accuracy", lambda point: _share(point.accuracy)),
        Column("AUROC", lambda point: f"{point.auroc.mean:.3f}" if point.auroc else DASH),
        Column("Accuracy lost, points", lambda point: points_cell(frontier.cost(point))),
        Column("Cells recovered", lambda point: _share(point.cells)),
        Column("Over guessing, points", lambda point: points_cell(point.leakage)),
        *([Column("Attack", _strongest, css="words")] if several else []),
        Column("Pareto", lambda point: _verdict(frontier.standing(point)), css="words"),
    ]
    lines = [("", frontier.points)]
    return table_of(
        "Defenses compared",
        columns,
        lines,
        css="frontier",
        line_css=lambda point: "best" if id(point) in is_best else "",
    )


def _name(point: Point) -> Cell:
    row = point.first
    option = (row.defense_option or "strength").replace("_", " ")
    return Cell(curve_title(row.curve), () if row.defense_strength is None else (f"{option} {row.defense_strength:g}",))


def _share(value: Estimate | None) -> Cell:
    return Cell(percent(value), (interval(value),) if value and value.has_interval else ())


def _strongest(point: Point) -> str:
    return DASH if point.strongest is None else attack_title(point.strongest.attack)


def _verdict(standing: Standing | None) -> Cell:
    """What the means and the intervals say of a point."""
    if standing is None:
        return Cell("", ("not measured yet",))
    how = "beaten by" if standing.verdict == "beaten" else "not distinguishable from"
    rivals = (f"{how} {named(standing.rivals)}",) if standing.rivals else ()
    return Cell(text('<span class="star">★</span> best') if standing.is_best else "", rivals)


def curve_styles(frontiers: Sequence[Frontier]) -> dict[str, Style]:
    """One look for each label of a curve, the same in every plot of a report; no defense comes last."""
    labels = dict.fromkeys(point.first.curve for one in frontiers for point in one.points)
    defended = [label for label in labels if label != NONE]
    return {label: series_style(index) for index, label in enumerate(defended)} | {NONE: UNDEFENDED}


def _drawn(frontier: Frontier, styles: Mapping[str, Style], title: str) -> tuple[Block, ...]:
    if not frontier.measured:
        none = "No defense has both a finished training and a finished attack yet: there is nothing to draw."
        return (Paragraph(none, "note"),)
    used = dict.fromkeys(point.first.curve for point in frontier.measured)
    name = joined("Share of cells recovered against accuracy on the test rows under each defense", title, by=": ")
    entries = [(legend_key(styles[label]), curve_title(label)) for label in used]
    legend = Legend((*entries, (legend_key("ring"), "Pareto-best")))
    y_title = Paragraph("Share of a client's cells recovered; numbers are strengths", "note")
    return legend, y_title, Figure(draw(frontier_plot(name, frontier, styles)), plot="scatter")


def frontier_plot(name: str, frontier: Frontier, styles: Mapping[str, Style]) -> Plot:
    """The plot of the measured points: cells recovered (upwards) against test accuracy (rightwards).

    Points that no other dominates are ringed and joined by steps.

    Args:
        name: what a screen reader says.
        frontier: at least one point is measured.
        styles: look by label of the curve.
    """
    known, guess = frontier.measured, frontier.guess
    best = [one.point for one in frontier.standings if one.is_best]
    x = shown_axis([point.accuracy for point in known], title="accuracy on the test rows")
    y = shown_axis([point.cells for point in known], [] if guess is None else [guess.mean])
    # From the least accurate of the best points up to the leakage of the next, then across to it.
    layers: list[Line | Points] = [Line(stairs(sorted(map(_place, best)), across_first=False), "front")]
    curves = by_key(known, lambda point: point.first.curve)
    for label, curve in sorted(curves.items(), key=lambda pair: pair[0] == NONE):  # the reference on top
        layers.append(Line(list(map(_place, curve)), "link", styles[label].css))
        layers.append(Points([_mark(point, styles[label], any(point is one for one in best)) for point in curve]))
    rules = [] if guess is None else [Rule(guess.mean, "guess faint", "guess", along="y")]
    return Plot(name, x, y, layers, rules, height=420)


def shown_axis(values: Sequence[Estimate | None], others: Sequence[float] = (), title: str = "") -> Axis:
    """All means and as much of the intervals as leaves the means apart: few seeds give intervals of any width.

    >>> shown = shown_axis([Estimate(0.5, 2, -0.4, 1.4), Estimate(0.6, 2, 0.59, 0.61)])
    >>> round(shown.low, 3), round(shown.high, 3)
    (0.438, 0.662)
    """
    known = [value for value in values if value is not None]
    means = [*(value.mean for value in known), *others]
    least, greatest = min(means), max(means)
    room = REACH * (greatest - least) or PADDING
    ends = [end for value in known for end in ends_of(value) if end is not None]
    low, high = min([least, *ends]), max([greatest, *ends])
    return axis([max(low, least - room, 0.0), min(high, greatest + room, 1.0)], percent=True, title=title)


def _place(point: Point) -> tuple[float, float]:
    assert point.accuracy is not None and point.cells is not None  # of a measured point
    return point.accuracy.mean, point.cells.mean


def _mark(point: Point, style: Style, is_best: bool) -> Mark:
    assert point.accuracy is not None and point.cells is not None  # of a measured point
    row, (x, y) = point.first, _place(point)
    hover = f"{short_name(point)}: accuracy {percent(x)}, {percent(y)} of cells recovered"
    label = curve_title(row.curve) if row.defense_strength is None else f"{row.defense_strength:g}"
    # The best are labeled first, then the undefended point, then the others.
    return Mark(
        x,
        y,
        style,
        joined(hover, "Pareto-best" if is_best else "", by="; "),
        ends_of(point.accuracy),
        ends_of(point.cells),
        label,
        rank=0 if is_best else 1 if row.is_undefended else 2,
        ring="ring" if is_best else "",
    )
