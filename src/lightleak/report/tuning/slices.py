"""Each parameter against an objective, in small plots side by side."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.svg import across, chart, element, line, text
from lightleak.report.tuning.axes import NumberAxis, number_axis
from lightleak.report.tuning.history import value_axis, value_grid
from lightleak.report.tuning.marks import drawing_order, hover_text, ring_of, trial_mark
from lightleak.report.tuning.result import Objective, Parameter, Trial
from lightleak.report.tuning.study import TuningRun, last_value
from lightleak.report.tuning.wording import parameter_value, short_names, shorten

HEIGHT = 170
TOP = 10
MOST_SLICES = 8
ROOM = 38
"""Characters of all labels together that fit beneath a small plot."""

REACH = 0.3
"""How far the trials of one choice reach to both sides, as a share of its column."""


@dataclass(frozen=True)
class Slice:
    """One small plot.

    Attributes:
        title: short name of the parameter.
        key: its key in the config.
        note: how many trials have a value of it, where not all do.
        drawing: the plot.
    """

    title: str
    key: str
    note: str
    drawing: Markup


def by_importance(run: TuningRun, objective: Objective) -> list[Parameter]:
    """Parameters, the most important first; those of unknown importance follow in the order of the space."""
    shares = run.study.importance.get(objective.name, {})
    return sorted(run.study.parameters, key=lambda one: -shares.get(one.key, 0.0))


def slices(run: TuningRun, objective: Objective) -> tuple[Slice, ...]:
    """A plot for each of the `MOST_SLICES` most important parameters that some trial with a value has."""
    names = short_names(run.study.parameters)
    valued = [one for one in run.trials if _value(run, one, objective) is not None]
    found: list[Slice] = []
    for parameter in by_importance(run, objective):
        trials = [one for one in valued if _has(one, parameter)]
        if trials and len(found) < MOST_SLICES:
            note = "" if len(trials) == len(valued) else f"has a value in {len(trials)} of {len(valued)} trials"
            drawing = _drawing(run, parameter, objective, trials, valued)
            found.append(Slice(names[parameter.key], parameter.key, note, drawing))
    return tuple(found)


def _has(trial: Trial, parameter: Parameter) -> bool:
    """Whether a trial has a value: a choice of nothing is one, a number that is null is none."""
    return parameter.key in trial.parameters and (
        parameter.kind == "choice" or trial.parameters[parameter.key] is not None
    )


def _value(run: TuningRun, trial: Trial, objective: Objective) -> float | None:
    """The value that is drawn; what a pruned trial has reported is of the first objective."""
    is_known = trial.state == "complete" or (trial.state == "pruned" and objective is run.study.objectives[0])
    return last_value(trial, objective) if is_known else None


def _drawing(
    run: TuningRun, parameter: Parameter, objective: Objective, trials: Sequence[Trial], valued: Sequence[Trial]
) -> Markup:
    heights = {one.number: value for one in valued if (value := _value(run, one, objective)) is not None}
    ys = value_axis(objective, list(heights.values()))  # of all trials: the plots side by side share it
    base = TOP + HEIGHT
    shapes = [*value_grid(ys, TOP, HEIGHT), line(0, base, 1, base, "axis-line")]
    if parameter.kind == "choice":
        at, labels = _columns(parameter, trials)
        shapes += labels
    else:
        axis = _number_axis(parameter, trials)
        shapes += [line(x, TOP, x, base, "grid") for x, _ in axis.ticks]
        shapes += [text(label, x, base + 18) for x, label in _apart(axis)]
        at = {one.number: axis.at(one.parameters[parameter.key]) for one in trials}
    for trial in drawing_order(trials, run):
        y = TOP + HEIGHT * (1 - ys.at(heights[trial.number]))
        said = f"{parameter_value(trial.parameters[parameter.key])}: {hover_text(run, trial, with_parameters=False)}"
        shapes.append(trial_mark(trial, at[trial.number], y, said, ring_of(trial, run)))
    name = f"{parameter.key} against {objective.words}, {len(trials)} trials"
    return chart(name, base + 26, *shapes)


def _number_axis(parameter: Parameter, trials: Sequence[Trial]) -> NumberAxis:
    """Over the whole range that was searched, so that a corner that was never tried is seen to be empty."""
    ends = [end for end in (parameter.low, parameter.high) if end is not None]
    values = [float(one.parameters[parameter.key]) for one in trials]
    return number_axis([*values, *ends], parameter.log, parameter.kind == "int")


def _apart(axis: NumberAxis) -> list[tuple[float, str]]:
    """Every tick's label, or every second one where they would touch on a small plot."""
    return list(axis.ticks if sum(len(label) + 2 for _, label in axis.ticks) <= ROOM else axis.ticks[::2])


def _columns(parameter: Parameter, trials: Sequence[Trial]) -> tuple[dict[int, float], list[Markup]]:
    """Position of each trial in the column of its choice, from left to right by number, and the columns' labels.

    A label is shortened to what fits and whole on hover.
    """
    chosen = {one.number: one.parameters[parameter.key] for one in trials}
    choices = {_key(value): parameter_value(value) for value in (*parameter.of, *chosen.values())}
    width = 1 / len(choices)
    at: dict[int, float] = {}
    labels = []
    for index, (key, label) in enumerate(choices.items()):
        middle = (index + 0.5) * width
        members = [number for number, value in chosen.items() if _key(value) == key]
        at |= dict(zip(members, spread(members, width, middle), strict=True))
        letters = max(3, ROOM // len(choices))
        short = shorten(label, letters)
        title = [element("title", label)] if short != label else []
        x, y = across(middle), TOP + HEIGHT + 18
        labels.append(element("text", short, *title, x=x, y=y, class_="tick", text_anchor="middle"))
    return at, labels


def _key(value: object) -> str:
    """Choices may be lists, which are no keys, and ``1`` is another one than ``true``."""
    return json.dumps(value, sort_keys=True, default=str)


def spread(members: Sequence[int], width: float, middle: float) -> list[float]:
    """Positions of the trials of one column, so that equal values stay apart.

    >>> spread([3, 8, 9], 0.5, 0.25), spread([3], 0.5, 0.25)
    ([0.1, 0.25, 0.4], [0.25])
    """
    if len(members) < 2:
        return [middle for _ in members]
    step = 2 * REACH * width / (len(members) - 1)
    return [round(middle - REACH * width + step * index, 6) for index in range(len(members))]
