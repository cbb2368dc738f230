"""Which trials of a study count, which is best, and what became of each."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lightleak.report.run_folder import RunFolder
from lightleak.report.tuning.result import Objective, State, Study, Trial


@dataclass(frozen=True)
class TuningRun:
    """One study as its folder holds it.

    Attributes:
        folder: config, environment and name, read as of any other run.
        study: what was searched.
        trials: every attempt by its number, killed and repeated ones too.
    """

    folder: RunFolder
    study: Study
    trials: tuple[Trial, ...]

    @cached_property
    def measured(self) -> tuple[Trial, ...]:
        """Complete trials with a value of every objective."""
        names = [one.name for one in self.study.objectives]
        return tuple(one for one in self.trials if one.state == "complete" and set(names) <= set(one.values))

    @property
    def is_single(self) -> bool:
        """Whether there is one objective, so that one trial is best."""
        return len(self.study.objectives) == 1

    @cached_property
    def default(self) -> Trial | None:
        """The measured trial of the defaults; None where there is none yet."""
        return next((one for one in self.measured if one.is_default), None)

    @cached_property
    def ranked(self) -> tuple[Trial, ...]:
        """Measured trials, the one named best first and then by the first objective."""
        first = self.study.objectives[0]
        sign = -1 if first.maximise else 1
        return tuple(sorted(self.measured, key=lambda one: (not one.is_best, sign * one.values[first.name])))

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """Measured trials of the Pareto front."""
        return tuple(one for one in self.ranked if one.on_front)

    @cached_property
    def chosen(self) -> Trial | None:
        """What the study proposes: the best trial, or the knee of several objectives; None where there is none."""
        if self.is_single:
            return next(iter(self.ranked), None)
        return next((one for one in self.front if one.is_knee), None)


def last_value(trial: Trial, objective: Objective) -> float | None:
    """What an objective was when the trial ended: the value of a complete one, the last reported of a pruned one."""
    if trial.state == "pruned" and trial.intermediate:
        return trial.intermediate[-1][1]
    return trial.values.get(objective.name)


def running_best(trials: Sequence[Trial], objective: Objective) -> list[Trial]:
    """The trials that were better than all complete ones before them, by number.

    >>> found = [Trial(i, "complete", values={"a": value}) for i, value in enumerate([0.5, 0.4, 0.7])]
    >>> [trial.number for trial in running_best(found, Objective("a", True, "a"))]
    [0, 2]
    """
    found: list[Trial] = []
    for trial in sorted(trials, key=lambda one: one.number):
        value = trial.values.get(objective.name)
        if trial.state != "complete" or value is None:
            continue
        if not found or objective.is_better(value, found[-1].values[objective.name]):
            found.append(trial)
    return found


@dataclass(frozen=True)
class Accounting:
    """What became of every trial; a repeated attempt counts once, as its last attempt.

    Attributes:
        asked: trials that were asked for; None where that is not known.
        counted: trials by the state of their last attempt.
        repeats: numbers of an attempt that was run again and of the attempt that followed it.
        attempts: rows in all; always the number of `trials` and of ``repeats`` together.
    """

    asked: int | None
    counted: dict[State, tuple[Trial, ...]]
    repeats: tuple[tuple[int, int], ...]
    attempts: int

    @property
    def trials(self) -> int:
        """Trials, each counted once."""
        return sum(len(found) for found in self.counted.values())


def account(trials: Sequence[Trial], asked: int | None = None) -> Accounting:
    """Count each trial once, by its last attempt.

    A repeat may name the attempt before it or the first of a chain; both count as one trial.

    >>> first, second = Trial(0, "failed"), Trial(1, "complete", retry_of=0)
    >>> found = account([first, second])
    >>> found.trials, found.repeats, len(found.counted["complete"])
    (1, ((0, 1),), 1)
    """
    before = {one.number: one.retry_of for one in trials}

    def first_attempt(number: int) -> int:
        while (earlier := before[number]) is not None and earlier in before:  # ends: it is an earlier trial
            number = earlier
        return number

    chains: dict[int, list[Trial]] = defaultdict(list)
    for trial in sorted(trials, key=lambda one: one.number):
        chains[first_attempt(trial.number)].append(trial)
    counted: dict[State, tuple[Trial, ...]] = {"complete": (), "pruned": (), "failed": (), "running": ()}
    for chain in chains.values():
        counted[chain[-1].state] += (chain[-1],)
    pairs = [(a.number, b.number) for chain in chains.values() for a, b in pairwise(chain)]
    return Accounting(asked, counted, tuple(sorted(pairs)), len(trials))
