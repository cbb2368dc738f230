"""What a tuning study searched (``study`` of ``results.json``), which trials count, and what became of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from lightleak.core.errors import UsageError
from lightleak.core.grouping import by_key
from lightleak.core.records import json_field, quoted, read_record
from lightleak.core.results import FILE_NAME, TrialRow
from lightleak.report.format import DASH, capital, interval, percent, points
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.study_words import number_words, short_names
from lightleak.report.read import Run

FRACTIONS = ("accuracy", "leakage", "match_rate")
"""How names of objectives end whose values are fractions, which read better as percentages."""

Verdict = Literal["better", "worse", "not distinguishable", "no interval"]


@dataclass(frozen=True)
class Mean(Estimate):
    """A mean over held-out units, with its interval.

    Attributes:
        seconds: mean time of one.
    """

    seconds: float | None = None


@dataclass(frozen=True)
class Objective:
    """What was searched for.

    Attributes:
        name: key of its values.
        direction: which values are better.
        described: what it is, as the end of "the highest ...".
    """

    name: str
    direction: Literal["maximize", "minimize"]
    described: str | None = json_field(key="words", default=None)

    @property
    def maximize(self) -> bool:
        """Whether more is better."""
        return self.direction == "maximize"

    @property
    def words(self) -> str:
        """What it is."""
        return self.described or self.name.replace("_", " ")

    @property
    def title(self) -> str:
        """Short name.

        >>> Objective("cell_accuracy", "maximize", "cell accuracy of tableak on validation clients").title
        'Cell accuracy'
        """
        return capital(self.name.replace("_", " ").replace("/", " "))

    @property
    def best(self) -> str:
        """What is searched for."""
        return "highest" if self.maximize else "lowest"

    @property
    def is_fraction(self) -> bool:
        """Whether values are fractions."""
        return self.name.endswith(FRACTIONS)

    def is_better(self, first: float, second: float) -> bool:
        """Whether the first value is strictly better than the second."""
        return first > second if self.maximize else first < second

    def text(self, value: float | None) -> str:
        """A value in words.

        >>> Objective("leakage", "minimize").text(-0.012), Objective("loss", "minimize").text(0.34567)
        ('−1.2%', '0.3457')
        """
        if value is None:
            return DASH
        if not self.is_fraction:
            return number_words(value)
        return f"−{percent(-value)}" if value < 0 else percent(value)

    def of(self, trial: TrialRow) -> str:
        """Return its value in a trial in words."""
        return self.text(trial.values.get(self.name))

    def change(self, value: float) -> str:
        """A signed difference of two values with its unit.

        >>> Objective("accuracy", "maximize").change(0.02), Objective("loss", "minimize").change(-0.5)
        ('+2.0 points', '−0.5')
        """
        if self.is_fraction:
            return f"{points(value)} points"
        return f"{'+' if value > 0 else ''}{number_words(value)}"

    def interval(self, value: Mean, is_change: bool = False) -> str:
        """The 95% interval of a value or of a difference; a dash where there is none.

        >>> Objective("loss", "minimize").interval(Mean(0.5, 8, 0.4, 0.6))
        '0.4 to 0.6'
        """
        if value.low is None or value.high is None:
            return DASH
        if self.is_fraction:
            return interval(value, -1 if is_change else 0)
        return f"{number_words(value.low)} to {number_words(value.high)}"

    def verdict(self, change: Mean) -> Verdict:
        """What the interval of tuned minus default says: whether it excludes 0, and on which side.

        >>> Objective("accuracy", "maximize").verdict(Mean(0.02, 8, -0.01, 0.05))
        'not distinguishable'
        >>> Objective("leakage", "minimize").verdict(Mean(0.02, 8, 0.01, 0.03))
        'worse'
        """
        if not change.has_interval:
            return "no interval"
        if not change.is_above and not change.is_below:
            return "not distinguishable"
        return "better" if change.is_above == self.maximize else "worse"


@dataclass(frozen=True)
class Parameter:
    """One value of the config that was searched.

    Attributes:
        key: dotted key in the config.
        kind: of value.
        low: least value of a number.
        high: greatest value of a number.
        log: whether a number is searched on a logarithmic scale.
        of: what a choice is among.
        default: value in the default trial; None where there is none.
        when: the condition under which it has a value at all, in words.
    """

    key: str
    kind: Literal["float", "int", "choice"]
    low: float | None = None
    high: float | None = None
    log: bool = False
    of: tuple[Any, ...] = ()
    default: Any = None
    when: str | None = None


@dataclass(frozen=True)
class HeldOut:
    """The tuned settings against the defaults on data that no trial was scored on.

    Attributes:
        metric: name of the objective that is compared.
        default: with the defaults.
        best: with the tuned settings.
        difference: tuned minus default, paired.
        words: which data.
        n: number of pairs.
    """

    metric: str
    default: Mean
    best: Mean
    difference: Mean
    words: str = "held-out data"
    n: int = 0


@dataclass(frozen=True)
class Study:
    """What was searched, how and on what; None where the file does not say.

    Attributes:
        objectives: at least one.
        parameters: the space.
        importance: by name of an objective, the share of each parameter by its key.
        sampler: name of what proposes values.
        pruner: name of what ends trials early.
        asked: number of trials that were asked for.
        setting: data, network and batch in a few words.
        budget: what every trial may spend.
        validation: data that trials are scored on.
        held_out: the comparison on other data; None until it is made.
        uncompared: why it could not be made.
    """

    objectives: tuple[Objective, ...]
    parameters: tuple[Parameter, ...] = ()
    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    sampler: str | None = None
    pruner: str | None = None
    asked: int | None = None
    setting: str | None = None
    budget: str | None = None
    validation: str | None = None
    held_out: HeldOut | None = None
    uncompared: str | None = None

    @property
    def first(self) -> Objective:
        """The first objective, the only one of which trials report values before they end."""
        return self.objectives[0]

    def objective(self, name: str) -> Objective:
        """Return the objective of that name."""
        return next(one for one in self.objectives if one.name == name)


@dataclass(frozen=True)
class Search:
    """One study with its trials.

    Attributes:
        run: its folder.
        study: what was searched.
        trials: every attempt by its number, killed and repeated ones too.
    """

    run: Run
    study: Study
    trials: tuple[TrialRow, ...]

    @cached_property
    def measured(self) -> tuple[TrialRow, ...]:
        """Complete trials with a value of every objective."""
        names = {one.name for one in self.study.objectives}
        return tuple(one for one in self.trials if one.state == "complete" and names <= set(one.values))

    @property
    def is_single(self) -> bool:
        """Whether there is one objective, so that one trial is best."""
        return len(self.study.objectives) == 1

    @cached_property
    def default(self) -> TrialRow | None:
        """The measured trial of the defaults; None where there is none yet."""
        return next((one for one in self.measured if one.is_default), None)

    @cached_property
    def ranked(self) -> tuple[TrialRow, ...]:
        """Measured trials, the one named best first and then by the first objective."""
        first = self.study.first
        sign = -1 if first.maximize else 1
        return tuple(sorted(self.measured, key=lambda one: (not one.is_best, sign * one.values[first.name])))

    @cached_property
    def front(self) -> tuple[TrialRow, ...]:
        """Measured trials of the Pareto front."""
        return tuple(one for one in self.ranked if one.on_front)

    @cached_property
    def chosen(self) -> TrialRow | None:
        """What the study proposes: the best trial, or the knee of several objectives; None where there is none."""
        if self.is_single:
            return next(iter(self.ranked), None)
        return next((one for one in self.front if one.is_knee), None)

    @cached_property
    def chains(self) -> list[list[TrialRow]]:
        """The attempts of each trial in their order: what became of it is the state of the last.

        A repeat may name the attempt before it or the first of a chain; both count as one trial.

        >>> trials = TrialRow(trial=0, state="failed"), TrialRow(trial=1, state="complete", retry_of=0)
        >>> [[one.trial for one in chain] for chain in Search(None, None, trials).chains]
        [[0, 1]]
        """
        ordered = sorted(self.trials, key=lambda one: one.trial)
        first: dict[int | None, int] = {}
        for one in ordered:  # what it repeats is an earlier trial
            first[one.trial] = first.get(one.retry_of, one.trial)
        return list(by_key(ordered, lambda one: first[one.trial]).values())

    @cached_property
    def repeats(self) -> list[tuple[int, int]]:
        """Numbers of every attempt that was run again and of the attempt that followed it."""
        return sorted((one.trial, other.trial) for chain in self.chains for one, other in pairwise(chain))

    @property
    def verdict(self) -> Verdict | None:
        """What held-out data say of the tuned settings; None before they are compared."""
        held_out = self.study.held_out
        return None if held_out is None else self.study.objective(held_out.metric).verdict(held_out.difference)

    def text_of(self, trial: TrialRow) -> str:
        """Return the values of a trial, with their names where there are several."""
        said = [(one.title.lower(), one.text(trial.values[one.name])) for one in self.study.objectives]
        return said[0][1] if self.is_single else " and ".join(f"{title} {value}" for title, value in said)

    @cached_property
    def names(self) -> dict[str, str]:
        """Short names of the parameters by their keys."""
        return short_names([one.key for one in self.study.parameters])

    def by_importance(self, objective: Objective) -> list[Parameter]:
        """Parameters, the most important first; those of unknown importance follow in the order of the space."""
        shares = self.study.importance.get(objective.name, {})
        return sorted(self.study.parameters, key=lambda one: -shares.get(one.key, 0.0))


def read_search(run: Run) -> Search:
    """Read the study of a run.

    Raises:
        UsageError: a key has a wrong type, the study or its trials contradict themselves, or two rows have one number.
    """
    file = run.path / FILE_NAME
    study = read_record(Study, run.raw.get("study"), f"{file}, key 'study'")
    names = [one.name for one in study.objectives]
    if not names:
        raise UsageError(f"{file}, key 'study', key 'objectives': expected at least one, got none")
    if study.held_out is not None and study.held_out.metric not in names:
        raise UsageError(
            f"{file}, key 'study', key 'held_out', key 'metric': expected one of {', '.join(names)}, got "
            f"{study.held_out.metric!r}"
        )
    rows = run.of(TrialRow)
    numbers = [parameter for parameter in study.parameters if parameter.kind != "choice"]
    for one in numbers:
        _check_number(one.default, f"{file}, key 'study', default of {one.key!r}")
    for index, row in enumerate(rows):
        if row.retry_of is not None and row.retry_of >= row.trial:
            raise UsageError(
                f"{file}, row {index}, key 'retry_of': expected the number of an earlier trial, got {row.retry_of}"
            )
        for one in numbers:
            _check_number(row.parameters.get(one.key), f"{file}, row {index}, key 'parameters', key {one.key!r}")
    counted = by_key(rows, lambda row: row.trial)
    if twice := sorted(number for number, same in counted.items() if len(same) > 1):
        raise UsageError(f"{file}: each trial must have one row, got several of trial {', '.join(map(str, twice))}")
    return Search(run, study, tuple(sorted(rows, key=lambda row: row.trial)))


def check_comparable(searches: Sequence[Search]) -> None:
    """Check that studies of one report searched for the same.

    Raises:
        UsageError: their objectives differ.
    """
    found = {
        one.run.name: ", ".join(f"{objective.direction} {objective.name}" for objective in one.study.objectives)
        for one in searches
    }
    if len(set(found.values())) > 1:
        listed = "; ".join(f"{name}: {words}" for name, words in found.items())
        raise UsageError(f"studies of one report must have the same objectives; make one report of each; got {listed}")


def reported(trial: TrialRow) -> tuple[float, float] | None:
    """Step and value that a trial reported last; None where it reported none."""
    known = [(step, value) for step, value in trial.intermediate if step is not None and value is not None]
    return known[-1] if known else None


def last_value(trial: TrialRow, objective: Objective) -> float | None:
    """What an objective was when the trial ended: the value of a complete one, the last reported of a pruned one."""
    if trial.state == "pruned" and (last := reported(trial)) is not None:
        return last[1]
    return trial.values.get(objective.name)


def running_best(trials: Sequence[TrialRow], objective: Objective) -> list[TrialRow]:
    """The trials that were better than all complete ones before them, by number.

    >>> found = [TrialRow(trial=i, state="complete", values={"a": value}) for i, value in enumerate([0.5, 0.4, 0.7])]
    >>> [trial.trial for trial in running_best(found, Objective("a", "maximize"))]
    [0, 2]
    """
    found: list[TrialRow] = []
    for trial in sorted(trials, key=lambda one: one.trial):
        value = trial.values.get(objective.name)
        if trial.state != "complete" or value is None:
            continue
        if not found or objective.is_better(value, found[-1].values[objective.name]):
            found.append(trial)
    return found


def _check_number(value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise UsageError(f"{where}: expected a number, got {quoted(value)}")
