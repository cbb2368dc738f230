"""How a trial looks in every chart of a study: its mark, what hovering says, and the legend."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.charts import Style, legend_mark
from lightleak.report.svg import element, mark
from lightleak.report.tuning.result import Trial
from lightleak.report.tuning.study import TuningRun
from lightleak.report.tuning.wording import parameter_value, short_names, shorten, value_of
from lightleak.report.wording import duration

RADIUS = 9
PROPOSED = "chosen"
ON_FRONT = "on-front"
"""Classes of rings."""

COMPLETE = Style("s0", "circle")
PRUNED = Style("s0 hollow", "circle")
FAILED = Style("s1", "cross")
RUNNING = Style("baseline", "triangle")
DEFAULT = Style("validation", "diamond")
DEFAULT_PRUNED = Style("validation hollow", "diamond")


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend."""

    drawing: Markup
    words: str


def trial_style(trial: Trial) -> Style:
    """Shape and colour of a trial.

    >>> trial_style(Trial(0, "complete")), trial_style(Trial(1, "pruned", is_default=True)).css
    (Style(css='s0', shape='circle'), 'validation hollow')
    """
    if trial.state in ("failed", "running"):
        return FAILED if trial.state == "failed" else RUNNING
    if trial.is_default:
        return DEFAULT if trial.state == "complete" else DEFAULT_PRUNED
    return COMPLETE if trial.state == "complete" else PRUNED


def trial_mark(trial: Trial, x: float, y: float, hover: str, ring: str = "") -> Markup:
    """The mark of a trial at a position along the plot and a height in pixels, in a ring of a class or in none."""
    style = trial_style(trial)
    around = [element("circle", r=RADIUS, class_=ring)] if ring else []
    return mark(style.shape, x, y, f"point trial {style.css}", hover, around)


def ring_of(trial: Trial, run: TuningRun) -> str:
    """The class of a trial's ring: one for what the study proposes, another for the rest of the front."""
    if trial is run.chosen:
        return PROPOSED
    return ON_FRONT if trial.on_front and not run.is_single else ""


def drawing_order(trials: Sequence[Trial], run: TuningRun) -> list[Trial]:
    """What matters most lies on top: the proposed trial, the defaults, the complete ones."""
    return sorted(trials, key=lambda one: (one is run.chosen, one.is_default, one.state == "complete"))


def hover_text(run: TuningRun, trial: Trial, with_parameters: bool = True) -> str:
    """What hovering over a trial says: how it ended, its values, its time, and its parameters."""
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


def legend(run: TuningRun, trials: Sequence[Trial]) -> list[LegendEntry]:
    """A line for each kind of mark and of ring among the trials."""
    kinds = [
        (COMPLETE, "complete"),
        (PRUNED, "pruned: stopped early, at its last value"),
        (FAILED, "failed"),
        (RUNNING, "not finished when this was written"),
        (DEFAULT, "the defaults"),
        (DEFAULT_PRUNED, "the defaults, pruned"),
    ]
    used, rings = {trial_style(one) for one in trials}, {ring_of(one, run) for one in trials}
    found = [LegendEntry(legend_mark(style), words) for style, words in kinds if style in used]
    for ring, words in ((ON_FRONT, "on the front"), (PROPOSED, "the best" if run.is_single else "the knee")):
        if ring in rings:
            circle = element("circle", cx=10, cy=10, r=8, class_=ring)
            found.append(
                LegendEntry(element("svg", circle, class_="key", width=20, height=20, aria_hidden="true"), words)
            )
    return found
