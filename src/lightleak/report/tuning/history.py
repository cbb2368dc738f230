"""Every trial of a study by its number, and the best value so far."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.frontier.labels import place_labels
from lightleak.report.svg import chart, line, text
from lightleak.report.tuning.axes import NumberAxis, number_axis
from lightleak.report.tuning.marks import LegendEntry, drawing_order, hover_text, legend, ring_of, trial_mark
from lightleak.report.tuning.result import Objective, Trial
from lightleak.report.tuning.study import TuningRun, last_value, running_best
from lightleak.report.tuning.wording import is_fraction, value_of

HEIGHT = 320
TOP = 14
FOOT = 30
"""Pixels below the axis for trials without a value."""

Height = Callable[[float | None], float]
"""Pixels from the top for a value, or for none."""


@dataclass(frozen=True)
class Plot:
    """A drawing and its legend."""

    drawing: Markup
    legend: list[LegendEntry]


def history_plot(name: str, run: TuningRun) -> Plot | None:
    """The history of the first objective; None where no trial has begun.

    Args:
        name: what a screen reader says.
        run: the study.
    """
    if not run.trials:
        return None
    objective = run.study.objectives[0]
    values = {one.number: last_value(one, objective) for one in run.trials}
    known = [value for value in values.values() if value is not None]
    xs = number_axis([0, max(values)], whole=True)
    ys = value_axis(objective, known) if known else None
    has_foot = len(known) < len(values)
    base = TOP + (HEIGHT if ys is not None else 0)
    bottom = base + (FOOT if has_foot else 0)

    def height(value: float | None) -> float:
        return base + FOOT / 2 + 3 if ys is None or value is None else TOP + HEIGHT * (1 - ys.at(value))

    shapes = [line(at, TOP, at, base, "grid") for at, _ in xs.ticks]
    if ys is not None:
        shapes += value_grid(ys, TOP, HEIGHT)
    shapes += [line(0, base, 1, base, "axis-line")]
    shapes += [text(label, at, bottom + 18) for at, label in xs.ticks]
    shapes.append(text("number of the trial", 0.5, bottom + 40, "axis"))
    if has_foot:
        shapes.append(text("no value", 0, height(None) + 4, anchor="end", dx=-8))
    if (default := run.default) is not None:
        y = height(default.values[objective.name])
        shapes += [line(0, y, 1, y, "guess faint"), text("defaults", 1, y + 4, "tick", "start", dx=6)]
    shapes += _steps(running_best(run.trials, objective), objective, xs, height)
    places = {one.number: (xs.at(one.number), height(values[one.number])) for one in run.trials}
    for trial in drawing_order(run.trials, run):
        shapes.append(trial_mark(trial, *places[trial.number], hover_text(run, trial), ring_of(trial, run)))
    shapes += _label_of_best(run, places, objective)
    return Plot(chart(name, bottom + 46, *shapes), legend(run, run.trials))


def value_axis(objective: Objective, values: list[float]) -> NumberAxis:
    """The axis of an objective, in percent where it is a fraction."""
    return number_axis(values, percent=is_fraction(objective))


def value_grid(axis: NumberAxis, top: float, height: float) -> list[Markup]:
    """Lines across the plot with their labels at the left."""
    shapes = []
    for at, label in axis.ticks:
        y = top + height * (1 - at)
        shapes += [line(0, y, 1, y, "grid"), text(label, 0, y + 4, anchor="end", dx=-8)]
    return shapes


def _steps(best: list[Trial], objective: Objective, xs: NumberAxis, height: Height) -> list[Markup]:
    """The best value so far: along to the trial that beat it, then to its value; the last goes on to the end."""
    at = [(xs.at(one.number), height(one.values[objective.name])) for one in best]
    shapes = []
    for (x1, y1), (x2, y2) in pairwise(at):
        shapes += [line(x1, y1, x2, y1, "so-far"), line(x2, y1, x2, y2, "so-far")]
    return shapes + [line(x, y, 1, y, "so-far") for x, y in at[-1:]]


def _label_of_best(run: TuningRun, places: dict[int, tuple[float, float]], objective: Objective) -> list[Markup]:
    best = run.chosen
    if best is None:
        return []
    label = f"trial {best.number}: {value_of(objective, best.values[objective.name])}"
    marks = [(*places[best.number], label), *((*at, "") for number, at in places.items() if number != best.number)]
    place = place_labels(marks, TOP + HEIGHT)[0]
    if place is None:
        return []
    x, y, _ = marks[0]
    class_ = "tick strong halo" + (" roomy" if place.wide_only else "")
    return [text(label, x, y + place.dy, class_, place.anchor, place.dx)]
