"""The charts of a study: every trial by its number, two objectives against each other, and each parameter."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from markupsafe import Markup

from lightleak.report.plot import chart
from lightleak.report.plot.axis import Axis, axis, categories
from lightleak.report.plot.chart import Line, Mark, Points, Rule, Style, draw, legend_key, stairs
from lightleak.report.tuning.result import Objective, Parameter, Trial
from lightleak.report.tuning.study import TuningRun, last_value, running_best
from lightleak.report.tuning.wording import (
    direction_word,
    is_fraction,
    objective_title,
    parameter_value,
    short_names,
    shorten,
    value_of,
)
from lightleak.report.wording import duration

MOST_PLOTS = 3
MOST_SLICES = 8
ROOM = 38
"""Characters of all labels together that fit below a small plot."""

REACH = 0.3
"""How far the trials of one choice reach to both sides, as a share of its column."""

PROPOSED = "chosen"
ON_FRONT = "on-front"
"""Classes of rings."""

COMPLETE = Style("s0", "circle")
PRUNED = Style("s0 hollow", "circle")
FAILED = Style("s1", "cross")
RUNNING = Style("baseline", "triangle")
DEFAULT = Style("validation", "diamond")
DEFAULT_PRUNED = Style("validation hollow", "diamond")
STYLES = {
    COMPLETE: "complete",
    PRUNED: "pruned: stopped early, at its last value",
    FAILED: "failed",
    RUNNING: "not finished when this was written",
    DEFAULT: "the defaults",
    DEFAULT_PRUNED: "the defaults, pruned",
}


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend."""

    drawing: Markup
    words: str


@dataclass(frozen=True)
class Plot:
    """A drawing and its legend."""

    drawing: Markup
    legend: list[LegendEntry]


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


def history_plot(name: str, run: TuningRun) -> Plot | None:
    """The first objective of every trial and the best value so far; None where no trial has begun.

    Args:
        name: what a screen reader says.
        run: the study.
    """
    if not run.trials:
        return None
    objective = run.study.objectives[0]
    values = {one.number: last_value(one, objective) for one in run.trials}
    known = [value for value in values.values() if value is not None]
    x = axis([0, max(values)], whole=True, title="number of the trial")
    y = axis(known, percent=is_fraction(objective)) if known else None
    best = [(float(one.number), one.values[objective.name]) for one in running_best(run.trials, objective)]
    so_far = stairs([*best, (x.high, best[-1][1])]) if best else []
    rules = []
    if (default := run.default) is not None:
        rules.append(Rule(default.values[objective.name], "guess faint", "defaults", along="y"))
    labels = {}
    if (chosen := run.chosen) is not None:
        labels[chosen.number] = f"trial {chosen.number}: {value_of(objective, chosen.values[objective.name])}"
    marks = [
        _mark(run, one, one.number, values[one.number], hover_text(run, one), labels.get(one.number, ""))
        for one in drawing_order(run.trials, run)
    ]
    layers: list[Line | Points] = [Line(so_far, "so-far"), Points(marks, css="point trial")]
    return Plot(draw(chart.Plot(name, x, y, layers, rules, height=320, foot="no value")), legend(run, run.trials))


def objective_pairs(run: TuningRun) -> list[tuple[Objective, Objective]]:
    """The pairs of objectives that are drawn, the first `MOST_PLOTS` of them."""
    return list(combinations(run.study.objectives, 2))[:MOST_PLOTS]


def pareto_plot(name: str, run: TuningRun, across: Objective, upwards: Objective) -> Plot | None:
    """Measured trials by two objectives; None where there is none.

    The front is joined by steps where there are two objectives. With more, a plot shows only a part of why a trial is
    on the front, so its trials are ringed but not joined.
    """
    trials = run.measured
    if not trials:
        return None
    points = {one.number: (one.values[across.name], one.values[upwards.name]) for one in trials}
    title = f"{objective_title(across)} ({direction_word(across)} is best)"
    x = axis([value for value, _ in points.values()], percent=is_fraction(across), title=title)
    y = axis([value for _, value in points.values()], percent=is_fraction(upwards))
    is_joined = len(run.study.objectives) == 2
    corners = front_corners([points[one.number] for one in run.front], across, upwards) if is_joined else []
    marks = [
        _mark(run, one, *points[one.number], hover_text(run, one), _label(one, run))
        for one in drawing_order(trials, run)
    ]
    layers: list[Line | Points] = [Line(corners, "front-line"), Points(marks, css="point trial")]
    return Plot(draw(chart.Plot(name, x, y, layers, height=400)), legend(run, trials))


def front_corners(
    points: Sequence[tuple[float, float]], across: Objective, upwards: Objective
) -> list[tuple[float, float]]:
    """The edge of what is reached: the points of a front and between neighbors the corner that both of them beat.

    >>> more, less = Objective("a", True, ""), Objective("b", False, "")
    >>> front_corners([(2, 2), (1, 1)], more, less)
    [(1, 1), (1, 2), (2, 2)]
    """
    # On a front the worse value across comes with the better one upwards, so the corner lies on a fixed side.
    return stairs(sorted(points), across_first=not across.maximise)


def by_importance(run: TuningRun, objective: Objective) -> list[Parameter]:
    """Parameters, the most important first; those of unknown importance follow in the order of the space."""
    shares = run.study.importance.get(objective.name, {})
    return sorted(run.study.parameters, key=lambda one: -shares.get(one.key, 0.0))


def slices(run: TuningRun, objective: Objective) -> tuple[Slice, ...]:
    """A plot for each of the `MOST_SLICES` most important parameters of which some trial with a value has one."""
    names = short_names(run.study.parameters)
    values = {one.number: value for one in run.trials if (value := _value(run, one, objective)) is not None}
    valued = [one for one in run.trials if one.number in values]
    y = axis(values.values(), percent=is_fraction(objective))  # of all trials: the plots side by side share it
    found: list[Slice] = []
    for parameter in by_importance(run, objective):
        trials = [one for one in valued if _has(one, parameter)]
        if not trials or len(found) == MOST_SLICES:
            continue
        x, at = (_columns if parameter.kind == "choice" else _numbers)(parameter, trials)
        marks = []
        for one in drawing_order(trials, run):
            said = f"{parameter_value(one.parameters[parameter.key])}: {hover_text(run, one, with_parameters=False)}"
            marks.append(_mark(run, one, at[one.number], values[one.number], said))
        name = f"{parameter.key} against {objective.words}, {len(trials)} trials"
        grid = "y" if parameter.kind == "choice" else "xy"
        layers = [Points(marks, css="point trial")]
        drawing = draw(chart.Plot(name, x, y, layers, height=170, grid=grid, room=ROOM))
        note = "" if len(trials) == len(valued) else f"has a value in {len(trials)} of {len(valued)} trials"
        found.append(Slice(names[parameter.key], parameter.key, note, drawing))
    return tuple(found)


def legend(run: TuningRun, trials: Sequence[Trial]) -> list[LegendEntry]:
    """A line for each kind of mark and of ring among the trials."""
    used, rings = {trial_style(one) for one in trials}, {ring_of(one, run) for one in trials}
    found = [LegendEntry(legend_key(style), words) for style, words in STYLES.items() if style in used]
    names = {ON_FRONT: "on the front", PROPOSED: "the best" if run.is_single else "the knee"}
    return found + [LegendEntry(legend_key(ring), words) for ring, words in names.items() if ring in rings]


def trial_style(trial: Trial) -> Style:
    """Shape and color of a trial.

    >>> trial_style(Trial(0, "complete")), trial_style(Trial(1, "pruned", is_default=True)).css
    (Style(css='s0', shape='circle'), 'validation hollow')
    """
    if trial.state in ("failed", "running"):
        return FAILED if trial.state == "failed" else RUNNING
    if trial.is_default:
        return DEFAULT if trial.state == "complete" else DEFAULT_PRUNED
    return COMPLETE if trial.state == "complete" else PRUNED


def ring_of(trial: Trial, run: TuningRun) -> str:
    """The class of a trial's ring: one for what the study proposes, another for the rest of the front."""
    if trial is run.chosen:
        return PROPOSED
    return ON_FRONT if trial.on_front and not run.is_single else ""


def drawing_order(trials: Sequence[Trial], run: TuningRun) -> list[Trial]:
    """What matters most lies on top: the proposed trial, the defaults, the complete ones."""
    return sorted(trials, key=lambda one: (one is run.chosen, one.is_default, one.state == "complete"))


def hover_text(run: TuningRun, trial: Trial, with_parameters: bool = True) -> str:
    """The text on hover over a trial: how it ended, its values, its time, and its parameters."""
    first = run.study.objectives[0]
    said = [f"trial {trial.number}{', the defaults' if trial.is_default else ''}, {trial.state}"]
    said += [
        f"{one.name.replace('_', ' ')} {value_of(one, trial.values[one.name])}"
        for one in run.study.objectives
        if one.name in trial.values
    ]
    if trial.state == "pruned" and trial.intermediate:
        step, value = trial.intermediate[-1]
        said.append(f"{value_of(first, value)} when it was stopped at step {step:g}")
    if trial.error:
        said.append(shorten(trial.error, 120))
    if trial.seconds is not None:
        said.append(duration(trial.seconds))
    if with_parameters:
        names = short_names(run.study.parameters)
        said += [
            f"{name} {parameter_value(trial.parameters[key])}" for key, name in names.items() if key in trial.parameters
        ]
    return "; ".join(said)


def spread(members: Sequence[int], column: int) -> dict[int, float]:
    """Positions of the trials of one column, side by side.

    >>> spread([3, 8, 9], 1), spread([3], 0)
    ({3: 0.7, 8: 1.0, 9: 1.3}, {3: 0.0})
    """
    if len(members) < 2:
        return dict.fromkeys(members, float(column))
    step = 2 * REACH / (len(members) - 1)
    return {member: round(column - REACH + step * index, 6) for index, member in enumerate(members)}


def _mark(run: TuningRun, trial: Trial, x: float, y: float | None, hover: str, label: str = "") -> Mark:
    """The mark of a trial; the proposed trial and the defaults are labeled first, then the front."""
    rank = 0 if trial is run.chosen else 1 if trial is run.default else 2 if trial.on_front else 3
    ring, is_strong = ring_of(trial, run), bool(label) and not label.isdigit()
    return Mark(x, y, trial_style(trial), hover, label=label, rank=rank, is_strong=is_strong, ring=ring)


def _label(trial: Trial, run: TuningRun) -> str:
    if trial is run.chosen:
        return f"knee, trial {trial.number}"
    if trial is run.default:
        return "defaults"
    return str(trial.number) if trial.on_front else ""


def _has(trial: Trial, parameter: Parameter) -> bool:
    """Whether a trial has a value of a parameter: None is a valid choice, but not a number."""
    return parameter.key in trial.parameters and (
        parameter.kind == "choice" or trial.parameters[parameter.key] is not None
    )


def _value(run: TuningRun, trial: Trial, objective: Objective) -> float | None:
    """The value that is drawn; a pruned trial has reported values of the first objective only."""
    is_known = trial.state == "complete" or (trial.state == "pruned" and objective is run.study.objectives[0])
    return last_value(trial, objective) if is_known else None


def _numbers(parameter: Parameter, trials: Sequence[Trial]) -> tuple[Axis, dict[int, float]]:
    """The whole range that was searched, so that parts that were never tried are visible, and each trial's value."""
    at = {one.number: float(one.parameters[parameter.key]) for one in trials}
    ends = [end for end in (parameter.low, parameter.high) if end is not None]
    return axis([*at.values(), *ends], "log" if parameter.log else "linear", whole=parameter.kind == "int"), at


def _columns(parameter: Parameter, trials: Sequence[Trial]) -> tuple[Axis, dict[int, float]]:
    """A column for each choice, and the position of each trial in the column of its choice."""
    chosen = {one.number: one.parameters[parameter.key] for one in trials}
    choices = {_key(value): parameter_value(value) for value in (*parameter.of, *chosen.values())}
    at: dict[int, float] = {}
    for column, key in enumerate(choices):
        at |= spread([number for number, value in chosen.items() if _key(value) == key], column)
    return categories(list(choices.values())), at


def _key(value: object) -> str:
    """Choices may be lists, which are not hashable, and ``1`` differs from ``true``."""
    return json.dumps(value, sort_keys=True, default=str)
