"""A defense frontier: what each defense keeps from being read, against what it costs in accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from lightleak.core.grouping import by_key
from lightleak.core.guarantee import most_often_right
from lightleak.core.results import NONE, FrontierRow
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Cell, Column, Figure, Heading, Legend, Page, Section, Table
from lightleak.report.charts import series_style
from lightleak.report.compare import differing
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_advice import Recommendation, recommend
from lightleak.report.kinds.frontier_groups import SETTING, Frontier, compare, fullest
from lightleak.report.kinds.frontier_points import Point, curve_title, guarantee
from lightleak.report.kinds.updates_words import source_phrase, what_travels
from lightleak.report.page import fill, table_of, text
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Rule, Style, stairs
from lightleak.report.plot.svg import draw
from lightleak.report.read import Run
from lightleak.report.sections.bound_gap import FILE_NAME, SCHEMA_VERSION, Game, gap_section
from lightleak.report.sections.subject_and_run import audit_page, run_section, subject_section
from lightleak.report.sections.summary import first_page, interval_cell
from lightleak.report.sections.tested import NOT_TESTED, Findings, evidence_section

words = partial(fill, "frontier")
PADDING = 0.06
"""Room around a single value."""

REACH = 0.5
"""How far the axes follow intervals beyond the outermost means, as a share of the means' range."""

UNDEFENDED = Style("validation", "diamond")
PARTS = {"batch_size": "{} rows", "training": "trained for {}", "label_setting": "labels {}"}
"""How a part of the setting is named; the others by their value alone."""

CONTENTS = "No record and no value of a record: accuracies, shares of cells, and the settings of the run."


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of frontiers; it holds no value of a row, so that ``redact`` changes nothing."""
    rows = [row for run in runs for row in run.of(FrontierRow)]
    frontiers = compare(rows)
    main = fullest(frontiers)
    reading = words("reading_frontier", main) if main else ""
    found, answers = _findings(main)
    return audit_page(
        runs,
        "What defenses buy and cost",
        [
            summary_section(frontiers),
            _frontiers(frontiers),
            gap_section([game for run in runs for game in run.entries(FILE_NAME, Game, SCHEMA_VERSION)]),
            evidence_section(runs, rows, found, answers=answers, unit="client", title=_work, reading=reading),
            _subject(runs, rows),
            run_section(runs, rows, CONTENTS, unit=("unit", "units"), title=_work),
        ],
    )


def summary_section(frontiers: Sequence[Frontier]) -> Section:
    """Summarize in plain language what these runs measured."""
    rows = [row for one in frontiers for point in one.points for row in point.rows]
    main = fullest(frontiers)
    blocks: list[Block] = [words("lead", main)]
    if main and main.measured:
        blocks += _drawn(main, curve_styles(frontiers), "")
    if main and main.none and main.none.cells:
        blocks.append(words("summary", main, len(frontiers), recommend(main)))
    risks = words("risks", main.none) if main and main.none and main.none.cells else ""
    return first_page(blocks, [("The three risks", risks)], rows, "defenses")


def _findings(main: Frontier | None) -> tuple[Findings, dict[str, str]]:
    """What attacks found without a defense, and answers to questions of the checklist, with each defense's cost."""
    plain = main.none if main else None
    if not main or not plain or not plain.cells:
        return {}, {}
    values = words("found", plain, main.guess)
    whole = f"; {fmt.of_hundred(plain.whole.share)} of 100 records whole" if plain.whole else ""
    found: Findings = {"reconstruction": text("in part: {}{}", values, whole), "attribute_inference": values}
    costs = [(one, change) for one in main.tried if (change := one.change("accuracies")) is not None]
    return found, {
        "direct": found["reconstruction"],
        "inference": words("inference", values),
        "singling_out": words("singling_out", plain),
        "linkage": f"{NOT_TESTED}: each attack reads one message",
        **dict.fromkeys(("persons", "groups"), f"{NOT_TESTED}: the figures are of messages, not of people"),
        "baseline": words("baseline", plain, main.guess),
        "control": f"{NOT_TESTED}: nobody who took no part was attacked",
        "attempts": words("attempts", main.standings),
        "behind": fmt.counted(main.first.batch_size, "record") if main.first.batch_size else "",
        "utility": "; ".join(f"{one.name}: {fmt.with_interval(cost, fmt.points)} points" for one, cost in costs),
    }


def _work(row: FrontierRow) -> str:
    """What time was spent on."""
    return "trainings" if row.is_training else fmt.attack_title(row.attack)


def _subject(runs: Sequence[Run], rows: Sequence[FrontierRow]) -> Section:
    attacks = [row for row in rows if not row.is_training]
    facts = [
        ("Dataset", [row.dataset for row in rows if row.dataset]),
        ("Target network", [row.target for row in rows if row.target]),
        ("What travels", [what_travels(row.protocol) for row in rows]),
        ("Rows of a client", [str(row.batch_size) for row in attacks if row.batch_size]),
        ("Attacked", [source_phrase("initial") for _ in attacks]),
        ("Training", [row.training for row in rows if row.training]),
        ("Defenses", [full_name(row) for row in rows if not row.is_undefended]),
    ]
    return subject_section(runs, facts, before=(words("setting"),))


def full_name(row: FrontierRow) -> str:
    """Return the defense with its strength as a sentence begins with it.

    >>> full_name(FrontierRow(attack="", defense="clipping", defense_words="clipping to norm 0.1"))
    'Clipping to norm 0.1'
    >>> full_name(FrontierRow(attack="", defense="sign", defense_words="signs, scaled per tensor"))
    'Sign (signs, scaled per tensor)'
    >>> svt = "NVFlare SVTPrivacy(fraction 0.1)"
    >>> full_name(FrontierRow(attack="", defense="nvflare_svt", defense_words=svt)) == svt
    True
    """
    title, said = curve_title(row.curve), row.defense_words or Point((row,)).name
    if said.lower() == title.lower() or said.lower().startswith(tuple(f"{title.lower()}{end}" for end in " ,(")):
        return fmt.capital(said)
    return f"{title} ({said})"


def _frontiers(frontiers: Sequence[Frontier]) -> Section | None:
    main = fullest(frontiers)
    if main is None:
        return None
    blocks: list[Block] = [words("verdicts", main)]
    names = differing([one.first for one in frontiers], SETTING)
    styles = curve_styles(frontiers)
    for one in frontiers:
        title = " · ".join(_part(one.first, name) for name in names)
        blocks += [Heading(title)] if title else []
        blocks += [*(() if one is main and one.measured else _drawn(one, styles, title)), _table(one)]
    every = [point for one in frontiers for point in one.points]
    deltas = ", ".join(dict.fromkeys(f"{one:g}" for point in every for one in point.values("delta")))
    has_epsilon = any(point.granted("epsilon") is not None for point in every)
    return Section(
        "frontier", "Leakage against accuracy", (*blocks, words("note", deltas, has_epsilon, main.first.protocol))
    )


def _part(row: FrontierRow, name: str) -> str:
    return PARTS.get(name, "{}").format(getattr(row, name) or f"{name.replace('_', ' ')} not stated")


def _table(frontier: Frontier) -> Table:
    """A line for each point, those that are not measured yet too."""
    several = len({point.strongest.attack for point in frontier.points if point.strongest}) > 1
    columns: list[Column[Point]] = [
        Column("Defense", partial(_name, frontier, recommend(frontier))),
        Column("Epsilon, training", _epsilon, optional=True),
        Column("Epsilon, one update", lambda point: guarantee(point.granted("release_epsilon")), optional=True),
        Column("Accuracy", lambda point: interval_cell(point.accuracy, change=point.change("accuracies"))),
        Column(
            "AUROC", lambda point: Cell(fmt.area(point.auroc), interval_cell(None, change=point.change("aurocs")).small)
        ),
        Column("Cells recovered", partial(_recovered, several)),
        Column("Over guessing, points", lambda point: interval_cell(point.leakage, fmt.points)),
        Column("Rows recovered, proven", _rows, optional=True),
    ]
    marked = partial(_line_css, frontier)
    return table_of("Defenses compared", columns, [("", frontier.points)], css="stack frontier", line_css=marked)


def _line_css(frontier: Frontier, point: Point) -> str:
    standing = frontier.standing(point)
    return "best" if standing and standing.is_best else ""


def _name(frontier: Frontier, advice: Recommendation, point: Point) -> Cell:
    """The defense, its strength, and what the means, the intervals and the recommendation say of it."""
    row, standing = point.first, frontier.standing(point)
    option = (row.defense_option or "strength").replace("_", " ")
    small = [] if row.defense_strength is None else [f"{option} {row.defense_strength:g}"]
    small += [f"no guarantee: {row.no_guarantee}"] if row.no_guarantee else []
    if standing is None:
        return Cell(curve_title(row.curve), (*small, "not measured yet"))
    if standing.is_best:
        small.append(text('<span class="star">★</span> Pareto-best'))
    small += [mark for one, mark in advice.marks if one is point]
    if standing.rivals:
        how = "beaten by" if standing.verdict == "beaten" else "not distinguishable from"
        small.append(f"{how} {frontier.named(standing.rivals)}")
    return Cell(curve_title(row.curve), tuple(small))


def _epsilon(point: Point) -> Cell:
    """Epsilon of the training, and how often at most anyone can tell whether a record was used in it."""
    epsilon = point.granted("epsilon")
    if epsilon is None:
        return Cell(fmt.DASH)
    return Cell(guarantee(epsilon), (fmt.percent(most_often_right(epsilon, point.granted("delta"))),))


def _rows(point: Point) -> Cell:
    """Rows recovered in every column, and rows proven, each by the attack that has most."""
    if point.whole is None:
        return Cell(fmt.DASH)
    return Cell(fmt.percent(point.whole.share), (f"{fmt.percent(point.proven.share)} proven",) if point.proven else ())


def _recovered(several: bool, point: Point) -> Cell:
    """The cells that the strongest attack recovers; where it is not the same at every point, by which."""
    cell = interval_cell(point.cells, change=point.read_change())
    if not several or point.strongest is None:
        return cell
    return replace(
        cell, small=(*cell.small, text('<span class="by">by {}</span>', fmt.attack_title(point.strongest.attack)))
    )


def curve_styles(frontiers: Sequence[Frontier]) -> dict[str, Style]:
    """One look for each label of a curve, the same in every plot of a report; no defense comes last."""
    labels = dict.fromkeys(point.first.curve for one in frontiers for point in one.points)
    defended = [label for label in labels if label != NONE]
    return {label: series_style(index) for index, label in enumerate(defended)} | {NONE: UNDEFENDED}


def _drawn(frontier: Frontier, styles: Mapping[str, Style], title: str) -> tuple[Block, ...]:
    if not frontier.measured:
        none = "No defense has both a finished training and a finished attack yet: there is nothing to draw."
        return (fill("macros", "note", none),)
    used = dict.fromkeys(point.first.curve for point in frontier.measured)
    name = fmt.joined("Share of cells recovered against accuracy on the test rows under each defense", title, by=": ")
    legend = Legend([*((styles[label], curve_title(label)) for label in used), ("ring", "Pareto-best")])
    y_title = fill("macros", "note", "Share of single values read; numbers are strengths of the defense")
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
    return Plot(name, x, y, layers, rules, height=340)


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
    ends = [end for value in known for end in value.ends if end is not None]
    low, high = min([least, *ends]), max([greatest, *ends])
    return axis([max(low, least - room, 0.0), min(high, greatest + room, 1.0)], percent=True, title=title)


def _place(point: Point) -> tuple[float, float]:
    assert point.accuracy is not None and point.cells is not None  # of a measured point
    return point.accuracy.mean, point.cells.mean


def _mark(point: Point, style: Style, is_best: bool) -> Mark:
    assert point.accuracy is not None and point.cells is not None  # of a measured point
    row, (x, y) = point.first, _place(point)
    best = "; Pareto-best" if is_best else ""
    hover = f"{point.name}: accuracy {fmt.percent(x)}, {fmt.percent(y)} of cells recovered{best}"
    label = curve_title(row.curve) if row.defense_strength is None else f"{row.defense_strength:g}"
    rank = 0 if is_best else 1 if row.is_undefended else 2  # labels of lower rank are placed first
    ring = "ring" if is_best else ""
    return Mark(x, y, style, hover, point.accuracy.ends, point.cells.ends, label, rank=rank, ring=ring)
