"""Two objectives of a study against each other, with the front that no trial beats."""

from itertools import combinations, pairwise

from markupsafe import Markup

from lightleak.report.frontier.labels import place_labels
from lightleak.report.svg import chart, line, text
from lightleak.report.tuning.history import Plot, value_axis, value_grid
from lightleak.report.tuning.marks import drawing_order, hover_text, legend, ring_of, trial_mark
from lightleak.report.tuning.result import Objective, Trial
from lightleak.report.tuning.study import TuningRun
from lightleak.report.tuning.wording import direction_word, objective_title

HEIGHT = 400
TOP = 14
MOST_PLOTS = 3

Point = tuple[float, float]


def objective_pairs(run: TuningRun) -> list[tuple[Objective, Objective]]:
    """The pairs of objectives that are drawn, the first `MOST_PLOTS` of them."""
    return list(combinations(run.study.objectives, 2))[:MOST_PLOTS]


def pareto_plot(name: str, run: TuningRun, across: Objective, upwards: Objective) -> Plot | None:
    """Measured trials by two objectives; None where there is none.

    The front is joined by steps where there are two objectives; of more, a plot shows only a part of why a trial is on
    it, so that its trials are ringed and not joined.
    """
    trials = run.measured
    if not trials:
        return None
    xs = value_axis(across, [one.values[across.name] for one in trials])
    ys = value_axis(upwards, [one.values[upwards.name] for one in trials])

    def position(point: Point) -> Point:
        return xs.at(point[0]), TOP + HEIGHT * (1 - ys.at(point[1]))

    base = TOP + HEIGHT
    shapes = [line(at, TOP, at, base, "grid") for at, _ in xs.ticks] + value_grid(ys, TOP, HEIGHT)
    shapes += [line(0, base, 1, base, "axis-line"), *(text(label, at, base + 20) for at, label in xs.ticks)]
    shapes.append(text(f"{objective_title(across)} ({direction_word(across)} is best)", 0.5, base + 44, "axis"))
    points = {one.number: (one.values[across.name], one.values[upwards.name]) for one in trials}
    if len(run.study.objectives) == 2:
        corners = front_corners([points[one.number] for one in run.front], across, upwards)
        shapes += [line(*position(a), *position(b), "front-line") for a, b in pairwise(corners)]
    places = {number: position(point) for number, point in points.items()}
    for trial in drawing_order(trials, run):
        shapes.append(trial_mark(trial, *places[trial.number], hover_text(run, trial), ring_of(trial, run)))
    shapes += _labels(run, places)
    return Plot(chart(name, base + 58, *shapes), legend(run, trials))


def front_corners(points: list[Point], across: Objective, upwards: Objective) -> list[Point]:
    """The edge of what is reached: the points of a front and between neighbours the corner that both of them beat.

    >>> more, less = Objective("a", True, ""), Objective("b", False, "")
    >>> front_corners([(2, 2), (1, 1)], more, less)
    [(1, 1), (1, 2), (2, 2)]
    """
    ordered = sorted(points)
    found = ordered[:1]
    for before, point in pairwise(ordered):
        pair = (before, point)
        corner = (
            (min if across.maximise else max)(x for x, _ in pair),
            (min if upwards.maximise else max)(y for _, y in pair),
        )
        found += [corner, point]
    return found


def _labels(run: TuningRun, places: dict[int, Point]) -> list[Markup]:
    """The knee and the defaults are labelled first, then the front."""
    known = {one.number: _label(one, run) for one in run.measured}
    first = [one.number for one in (run.chosen, run.default) if one is not None]
    order = dict.fromkeys([*first, *(one.number for one in run.front), *known])
    marks = [(*places[number], known[number]) for number in order]
    shapes = []
    for (x, y, label), place in zip(marks, place_labels(marks, TOP + HEIGHT), strict=True):
        if place is not None:
            classes = ["tick halo", *(["strong"] * (not label.isdigit())), *(["roomy"] * place.wide_only)]
            shapes.append(text(label, x, y + place.dy, " ".join(classes), place.anchor, place.dx))
    return shapes


def _label(trial: Trial, run: TuningRun) -> str:
    if trial is run.chosen:
        return f"knee, trial {trial.number}"
    if trial is run.default:
        return "defaults"
    return str(trial.number) if trial.on_front else ""
