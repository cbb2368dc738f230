"""The tables of a study: the best trials beside the defaults, the space, and what became of every trial."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lightleak.report.tuning.result import Parameter, Trial
from lightleak.report.tuning.study import Accounting, TuningRun
from lightleak.report.tuning.wording import (
    counted,
    differs,
    number_words,
    parameter_value,
    short_names,
    shorten,
    value_of,
)
from lightleak.report.wording import duration

MOST_BEST = 15
MOST_LISTED = 300
"""Rows of the list of all trials; ``trials.parquet`` has them all."""

LONGEST_ERROR = 300


@dataclass(frozen=True)
class ParameterCell:
    """One value of a trial.

    Attributes:
        text: the value; ``–`` where the trial has none.
        sign: an arrow for a number above or below the default.
        is_changed: whether it differs from the default.
    """

    text: str
    sign: str = ""
    is_changed: bool = False


@dataclass(frozen=True)
class TrialRow:
    """One trial of the table of the best.

    Attributes:
        trial: the trial.
        role: what it is, such as ``defaults``; empty for others.
        values: its values in the order of the objectives.
        seconds: time it took.
        cells: its parameters in the order of the space.
    """

    trial: Trial
    role: str
    values: tuple[str, ...]
    seconds: str
    cells: tuple[ParameterCell, ...]


def best_rows(run: TuningRun) -> tuple[TrialRow, ...]:
    """The best trials, or the front of several objectives, and the defaults; none before a trial is complete."""
    if not run.measured:
        return ()
    leading = list((run.ranked if run.is_single else run.front)[:MOST_BEST])
    if run.chosen is not None and run.chosen not in leading:
        leading.append(run.chosen)
    shown = leading + [one for one in run.trials if one.is_default and one not in leading]
    return tuple(_row(run, trial) for trial in shown)


def _row(run: TuningRun, trial: Trial) -> TrialRow:
    chosen = "best" if run.is_single else "knee"
    roles = [chosen] if trial is run.chosen else []
    roles += ["defaults"] if trial.is_default else []
    roles += [trial.state] if trial.state != "complete" else []
    return TrialRow(
        trial,
        ", ".join(roles),
        tuple(value_of(one, trial.values.get(one.name)) for one in run.study.objectives),
        duration(trial.seconds),
        tuple(parameter_cell(one, trial) for one in run.study.parameters),
    )


def parameter_cell(parameter: Parameter, trial: Trial) -> ParameterCell:
    """A value of a trial against the default.

    >>> parameter_cell(Parameter("steps", "int", default=1500), Trial(0, "complete", parameters={"steps": 3000}))
    ParameterCell(text='3000', sign='▲', is_changed=True)
    """
    if parameter.key not in trial.parameters:
        return ParameterCell("–")
    value, default = trial.parameters[parameter.key], parameter.default
    if not differs(value, default):
        return ParameterCell(parameter_value(value))
    is_number = parameter.kind != "choice" and value is not None
    return ParameterCell(parameter_value(value), ("▲" if value > default else "▼") if is_number else "", True)


@dataclass(frozen=True)
class SpaceRow:
    """One parameter of the space.

    Attributes:
        name: short name.
        key: key in the config.
        values: what it may be.
        default: value in the default trial.
        best: value in the proposed trial.
        when: the condition under which it has a value.
    """

    name: str
    key: str
    values: str
    default: str
    best: str
    when: str


def space_rows(run: TuningRun) -> tuple[SpaceRow, ...]:
    """All parameters in the order of the config."""
    names, chosen = short_names(run.study.parameters), run.chosen
    return tuple(
        SpaceRow(
            name=names[one.key],
            key=one.key,
            values=range_words(one),
            default="–" if one.default is None else parameter_value(one.default),
            best="–" if chosen is None else parameter_cell(one, chosen).text,
            when=one.when or "always",
        )
        for one in run.study.parameters
    )


def range_words(parameter: Parameter) -> str:
    """What a parameter may be.

    >>> range_words(Parameter("rate", "float", 0.005, 0.3, True)), range_words(Parameter("on", "choice", of=(True, 3)))
    ('0.005 to 0.3, logarithmic', 'true, 3')
    """
    if parameter.kind == "choice":
        return ", ".join(map(parameter_value, parameter.of)) or "not stated"
    if parameter.low is None or parameter.high is None:
        return "not stated"
    whole = ", whole numbers" if parameter.kind == "int" else ""
    log = ", logarithmic" if parameter.log else ""
    return f"{number_words(parameter.low)} to {number_words(parameter.high)}{whole}{log}"


def outcome_rows(done: Accounting) -> list[tuple[str, int, str]]:
    """What became of the trials, how many, and which; the numbers add up to the trials."""
    words = {
        "complete": "Complete",
        "pruned": "Pruned: stopped early because it fell behind",
        "failed": "Failed for good",
        "running": "Not finished when this was written",
    }
    rows = []
    for state, found in done.counted.items():
        which = numbers(one.number for one in found) if state in ("failed", "running") else ""
        rows.append((words[state], len(found), which))
    return rows


def numbers(found: Iterable[int], most: int = 12) -> str:
    """A few numbers of trials, and how many more there are.

    >>> numbers([3, 5]), numbers(range(20), most=2)
    ('trials 3, 5', 'trials 0, 1 and 18 more')
    """
    known = list(found)
    if not known:
        return ""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{'trial' if len(known) == 1 else 'trials'} {', '.join(map(str, known[:most]))}{more}"


def errors(run: TuningRun) -> list[tuple[str, str]]:
    """What went wrong, with the trials it happened to."""
    found: dict[str, list[int]] = defaultdict(list)
    for trial in run.trials:
        if trial.state == "failed":
            said = trial.error or "it left no message, as a process that is killed"
            found[shorten(said, LONGEST_ERROR)].append(trial.number)
    return [(numbers(numbered), said) for said, numbered in found.items()]


def worker_rows(trials: Sequence[Trial]) -> list[tuple[str, int, str]]:
    """Which process ran how many attempts, and for how long."""
    found: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.worker is not None:
            found[trial.worker].append(trial)
    return [
        (worker, len(ran), duration(sum(one.seconds or 0.0 for one in ran))) for worker, ran in sorted(found.items())
    ]


@dataclass(frozen=True)
class AttemptRow:
    """One line of the list of all attempts."""

    number: int
    state: str
    values: tuple[str, ...]
    seconds: str
    worker: str
    note: str


def attempt_rows(run: TuningRun, done: Accounting) -> tuple[AttemptRow, ...]:
    """Every attempt, the first `MOST_LISTED` of them."""
    followed = dict(done.repeats)
    rows = []
    for trial in run.trials[:MOST_LISTED]:
        notes = ["the defaults"] if trial.is_default else []
        notes += [f"runs trial {trial.retry_of} again"] if trial.retry_of is not None else []
        notes += [f"run again as trial {followed[trial.number]}"] if trial.number in followed else []
        if trial.state == "pruned" and trial.intermediate:
            step, value = trial.intermediate[-1]
            notes.append(f"at {value_of(run.study.objectives[0], value)} when stopped at step {step:g}")
        values = tuple(value_of(one, trial.values.get(one.name)) for one in run.study.objectives)
        rows.append(
            AttemptRow(
                trial.number, trial.state, values, duration(trial.seconds), trial.worker or "–", "; ".join(notes)
            )
        )
    return tuple(rows)


def total_words(done: Accounting) -> str:
    """The sum, against what was asked for, and how attempts make trials.

    >>> total_words(Accounting(40, {"complete": (Trial(1, "complete"),)}, ((0, 1),), 2))
    '1 trial of 40 asked for, from 2 attempts of which 1 was run again'
    """
    asked = f" of {done.asked} asked for" if done.asked is not None else ""
    again = (
        f", from {counted(done.attempts, 'attempt')} of which {len(done.repeats)} "
        f"{'was' if len(done.repeats) == 1 else 'were'} run again"
        if done.repeats
        else ""
    )
    return f"{counted(done.trials, 'trial')}{asked}{again}"
