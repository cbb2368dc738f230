"""The charts of a study: every trial by its number, two objectives against each other, and each parameter."""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

from lightleak.core.results import TrialRow
from lightleak.report.blocks import Figure, Legend
from lightleak.report.format import duration, joined
from lightleak.report.kinds.study_trials import Objective, Parameter, Search, last_value, reported, running_best
from lightleak.report.kinds.study_words import parameter_value
from lightleak.report.plot.axis import Axis, axis, categories
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Rule, Style, stairs
from lightleak.report.plot.svg import draw, shorten

MOST_PLOTS = 3
MOST_SLICES = 8
ROOM = 38
"""Characters of all labels together that fit below a small plot."""

REACH = 0.3
"""How far the trials of one choice reach to both sides, as a share of its column."""

LONGEST_SAID = 120
"""Characters of an error in a text on hover."""

PROPOSED, ON_FRONT = "chosen", "on-front"
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


def history(search: Search) -> list[Figure]:
    """Draw the first objective of every trial and the best value so far; nothing where no trial has begun."""
    if not search.trials:
        return []
    objective, chosen = search.study.first, search.chosen
    values = {one.trial: last_value(one, objective) for one in search.trials}
    known = [value for value in values.values() if value is not None]
    x = axis([0, max(values)], whole=True, title="number of the trial")
    best = [(float(one.trial), one.values[objective.name]) for one in running_best(search.trials, objective)]
    so_far = stairs([*best, (x.high, best[-1][1])]) if best else []
    default = search.default
    rules = [Rule(default.values[objective.name], "guess faint", "defaults", along="y")] if default else []
    labels = {} if chosen is None else {chosen.trial: f"trial {chosen.trial}: {objective.of(chosen)}"}
    places = {number: (number, value) for number, value in values.items()}
    name = f"{objective.words} of {len(search.trials)} trials by their number"
    y = axis(known, percent=objective.is_fraction) if known else None
    shown = _points(search, places, labels)
    plot = Plot(name, x, y, [Line(so_far, "so-far"), shown], rules, height=320, foot="no value")
    return [Figure(draw(plot), title_of(objective), legend=legend(search, search.trials), plot="study")]


def title_of(objective: Objective) -> str:
    """Return what is drawn upwards."""
    return f"{objective.title} ({objective.best} is best)"


def fronts(search: Search) -> list[Figure]:
    """Draw the first `MOST_PLOTS` pairs of objectives."""
    pairs = list(combinations(search.study.objectives, 2))[:MOST_PLOTS]
    return [front(search, across, upwards) for across, upwards in pairs if search.measured]


def front(search: Search, across: Objective, upwards: Objective) -> Figure:
    """Measured trials, of which there is at least one, by two objectives.

    The front is joined by steps where there are two objectives. With more, a plot shows only a part of why a trial is
    on the front, so its trials are ringed but not joined.
    """
    trials = search.measured
    places = {one.trial: (one.values[across.name], one.values[upwards.name]) for one in trials}
    is_joined = len(search.study.objectives) == 2
    corners = front_corners([places[one.trial] for one in search.front], across, upwards) if is_joined else []
    labels = {one.trial: _label(search, one) for one in trials}
    name = f"{upwards.words} against {across.words} of each trial"
    x = axis([x for x, _ in places.values()], percent=across.is_fraction, title=title_of(across))
    y = axis([y for _, y in places.values()], percent=upwards.is_fraction)
    plot = Plot(name, x, y, [Line(corners, "front-line"), _points(search, places, labels)], height=400)
    return Figure(draw(plot), title_of(upwards), legend=legend(search, trials), plot="study")


def front_corners(
    points: Sequence[tuple[float, float]], across: Objective, upwards: Objective
) -> list[tuple[float, float]]:
    """The edge of what is reached: the points of a front and between neighbors the corner that both of them beat.

    >>> more, less = Objective("a", "maximize"), Objective("b", "minimize")
    >>> front_corners([(2, 2), (1, 1)], more, less)
    [(1, 1), (1, 2), (2, 2)]
    """
    # On a front the worse value across comes with the better one upwards, so the corner lies on a fixed side.
    return stairs(sorted(points), across_first=not across.maximize)


def slices(search: Search, objective: Objective) -> tuple[Figure, ...]:
    """A plot for each of the `MOST_SLICES` most important parameters of which some trial with a value has one."""
    values = {one.trial: value for one in search.trials if (value := _value(search, one, objective)) is not None}
    valued = [one for one in search.trials if one.trial in values]
    y = axis(values.values(), percent=objective.is_fraction)  # of all trials: the plots side by side share it
    found: list[Figure] = []
    for parameter in search.by_importance(objective):
        trials = [one for one in valued if _has(one, parameter)]
        if not trials or len(found) == MOST_SLICES:
            continue
        is_choice = parameter.kind == "choice"
        x, at = (_columns if is_choice else _numbers)(parameter, trials)
        places = {number: (place, values[number]) for number, place in at.items()}
        name = f"{parameter.key} against {objective.words}, {len(trials)} trials"
        layers = [_points(search, places, of=parameter)]
        drawing = draw(Plot(name, x, y, layers, height=170, grid="y" if is_choice else "xy", room=ROOM))
        note = "" if len(trials) == len(valued) else f"has a value in {len(trials)} of {len(valued)} trials"
        found.append(Figure(drawing, title=search.names[parameter.key], caption=note, plot="slice"))
    return tuple(found)


def legend(search: Search, trials: Sequence[TrialRow]) -> Legend:
    """A line for each kind of mark and of ring among the trials."""
    used, rings = {trial_style(one) for one in trials}, {ring_of(search, one) for one in trials}
    found = [(style, words) for style, words in STYLES.items() if style in used]
    names = {ON_FRONT: "on the front", PROPOSED: "the best" if search.is_single else "the knee"}
    return Legend([*found, *((ring, words) for ring, words in names.items() if ring in rings)])


def trial_style(trial: TrialRow) -> Style:
    """Shape and color of a trial.

    >>> trial_style(TrialRow(trial=1, state="pruned", is_default=True)).css
    'validation hollow'
    """
    if trial.state in ("failed", "running"):
        return FAILED if trial.state == "failed" else RUNNING
    if trial.is_default:
        return DEFAULT if trial.state == "complete" else DEFAULT_PRUNED
    return COMPLETE if trial.state == "complete" else PRUNED


def ring_of(search: Search, trial: TrialRow) -> str:
    """The class of a trial's ring: one for what the study proposes, another for the rest of the front."""
    if trial is search.chosen:
        return PROPOSED
    return ON_FRONT if trial.on_front and not search.is_single else ""


def drawing_order(search: Search, trials: Sequence[TrialRow]) -> list[TrialRow]:
    """What matters most lies on top: the proposed trial, the defaults, the complete ones."""
    return sorted(trials, key=lambda one: (one is search.chosen, one.is_default, one.state == "complete"))


def hover_text(search: Search, trial: TrialRow, of: Parameter | None = None) -> str:
    """The text on hover over a trial: how it ended, its values, its time, and its parameters or that one."""
    said = [f"trial {trial.trial}{', the defaults' if trial.is_default else ''}, {trial.state}"]
    known = [one for one in search.study.objectives if one.name in trial.values]
    said += [f"{one.name.replace('_', ' ')} {one.of(trial)}" for one in known]
    if trial.state == "pruned" and (last := reported(trial)) is not None:
        said.append(f"{search.study.first.text(last[1])} when it was stopped at step {last[0]:g}")
    said += [shorten(trial.error or "", LONGEST_SAID), "" if trial.seconds is None else duration(trial.seconds)]
    if of is not None:
        return f"{parameter_value(trial.parameters[of.key])}: {joined(*said, by='; ')}"
    settings = ((name, key) for key, name in search.names.items() if key in trial.parameters)
    return joined(*said, *(f"{name} {parameter_value(trial.parameters[key])}" for name, key in settings), by="; ")


def spread(members: Sequence[int], column: int) -> dict[int, float]:
    """Positions of the trials of one column, side by side.

    >>> spread([3, 8, 9], 1), spread([3], 0)
    ({3: 0.7, 8: 1.0, 9: 1.3}, {3: 0.0})
    """
    if len(members) < 2:
        return dict.fromkeys(members, float(column))
    step = 2 * REACH / (len(members) - 1)
    return {member: round(column - REACH + step * index, 6) for index, member in enumerate(members)}


def _points(
    search: Search,
    places: Mapping[int, tuple[float, float | None]],
    labels: Mapping[int, str] = MappingProxyType({}),
    of: Parameter | None = None,
) -> Points:
    """Draw trials by their numbers; the proposed trial and the defaults are labeled first, then the front."""
    marks = []
    for one in drawing_order(search, [trial for trial in search.trials if trial.trial in places]):
        rank = 0 if one is search.chosen else 1 if one is search.default else 2 if one.on_front else 3
        label, ring, said = labels.get(one.trial, ""), ring_of(search, one), hover_text(search, one, of)
        is_strong = bool(label) and not label.isdigit()
        x, y = places[one.trial]
        marks.append(Mark(x, y, trial_style(one), said, label=label, rank=rank, is_strong=is_strong, ring=ring))
    return Points(marks, css="point trial")


def _label(search: Search, trial: TrialRow) -> str:
    if trial is search.chosen:
        return f"knee, trial {trial.trial}"
    if trial is search.default:
        return "defaults"
    return str(trial.trial) if trial.on_front else ""


def _has(trial: TrialRow, parameter: Parameter) -> bool:
    """Whether a trial has a value of a parameter: None is a valid choice, but not a number."""
    is_choice = parameter.kind == "choice"
    return parameter.key in trial.parameters and (is_choice or trial.parameters[parameter.key] is not None)


def _value(search: Search, trial: TrialRow, objective: Objective) -> float | None:
    """The value that is drawn; a pruned trial has reported values of the first objective only."""
    is_known = trial.state == "complete" or (trial.state == "pruned" and objective is search.study.first)
    return last_value(trial, objective) if is_known else None


def _numbers(parameter: Parameter, trials: Sequence[TrialRow]) -> tuple[Axis, dict[int, float]]:
    """The whole range that was searched, so that parts that were never tried are visible, and each trial's value."""
    at = {one.trial: float(one.parameters[parameter.key]) for one in trials}
    ends = [end for end in (parameter.low, parameter.high) if end is not None]
    return axis([*at.values(), *ends], "log" if parameter.log else "linear", whole=parameter.kind == "int"), at


def _columns(parameter: Parameter, trials: Sequence[TrialRow]) -> tuple[Axis, dict[int, float]]:
    """A column for each choice, and the position of each trial in the column of its choice."""
    chosen = {one.trial: one.parameters[parameter.key] for one in trials}
    choices = {_key(value): parameter_value(value) for value in (*parameter.of, *chosen.values())}
    at: dict[int, float] = {}
    for column, key in enumerate(choices):
        at |= spread([number for number, value in chosen.items() if _key(value) == key], column)
    return categories(list(choices.values())), at


def _key(value: object) -> str:
    """Choices may be lists, which are not hashable, and ``1`` differs from ``true``."""
    return json.dumps(value, sort_keys=True, default=str)
