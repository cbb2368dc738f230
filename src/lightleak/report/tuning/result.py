"""What ``results.json`` of a study holds: a row for each trial, and what was searched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from lightleak.core.errors import UsageError
from lightleak.report.estimate import Estimate
from lightleak.report.tuning.fields import Fields, finite

State = Literal["complete", "pruned", "failed", "running"]
ParameterKind = Literal["float", "int", "choice"]


@dataclass(frozen=True)
class Objective:
    """What was searched for.

    Attributes:
        name: key of its values.
        maximise: whether more is better.
        words: what it is, as the end of "the highest ...".
    """

    name: str
    maximise: bool
    words: str

    def is_better(self, first: float, second: float) -> bool:
        """Whether the first value is strictly better than the second.

        >>> Objective("loss", False, "loss").is_better(0.1, 0.2)
        True
        """
        return first > second if self.maximise else first < second


@dataclass(frozen=True)
class Parameter:
    """One value of the config that was searched.

    Attributes:
        key: dotted key in the config.
        kind: ``float``, ``int`` or ``choice``.
        low: least value of a number.
        high: greatest value of a number.
        log: whether a number is searched on a logarithmic scale.
        of: what a choice is among.
        default: value in the default trial; None where there is none.
        when: the condition under which it has a value at all, in words.
    """

    key: str
    kind: ParameterKind
    low: float | None = None
    high: float | None = None
    log: bool = False
    of: tuple[Any, ...] = ()
    default: Any = None
    when: str | None = None


@dataclass(frozen=True)
class Trial:
    """One attempt at one point of the space.

    Attributes:
        number: of the trial, from 0.
        state: how it ended.
        seconds: it took.
        worker: host and process that ran it.
        values: by name of the objective; empty unless complete.
        parameters: by dotted key; a conditional one may be absent.
        intermediate: (step, value) pairs of the first objective, as far as it came.
        is_default: whether it is the trial of the defaults.
        is_best: whether it is the best of a single objective.
        on_front: whether no other trial is better in one objective and as good in all.
        is_knee: whether it is the knee of the front.
        retry_of: number of the trial that it runs again.
        error: why it failed.
    """

    number: int
    state: State
    seconds: float | None = None
    worker: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    intermediate: tuple[tuple[float, float], ...] = ()
    is_default: bool = False
    is_best: bool = False
    on_front: bool = False
    is_knee: bool = False
    retry_of: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class HeldOut:
    """The tuned settings against the defaults on data that no trial was scored on.

    Attributes:
        words: which data.
        metric: name of the objective that is compared.
        default: mean of the defaults, with interval.
        best: mean of the tuned settings.
        difference: tuned minus default, paired.
        default_seconds: mean time with the defaults.
        best_seconds: mean time with the tuned settings.
    """

    words: str
    metric: str
    default: Estimate
    best: Estimate
    difference: Estimate
    default_seconds: float | None = None
    best_seconds: float | None = None


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

    def objective(self, name: str) -> Objective:
        """The objective of that name."""
        return next(one for one in self.objectives if one.name == name)


def parse_trial(raw: Any, where: str) -> Trial:
    """Read one row; ``where`` names it in errors.

    >>> parse_trial({"trial": 3, "state": "pruned", "intermediate": [[2, 0.5]]}, "row 0").intermediate
    ((2.0, 0.5),)

    Raises:
        UsageError: a field has a wrong type, or number or state is missing.
    """
    fields = Fields.of(raw, where)
    number = fields.whole("trial")
    if number is None or number < 0:
        raise UsageError(f"{where}, field 'trial': expected the number of the trial, got {fields.raw.get('trial')!r}")
    retry_of = fields.whole("retry_of")
    if retry_of is not None and not 0 <= retry_of < number:
        raise UsageError(f"{where}, field 'retry_of': expected the number of an earlier trial, got {retry_of}")
    values = fields.inner("values")
    return Trial(
        number=number,
        state=cast(State, fields.one_of("state", get_args(State))),
        seconds=fields.number("seconds"),
        worker=fields.text("worker"),
        values={name: value for name in values.raw if (value := values.number(name)) is not None},
        parameters=dict(fields.inner("parameters").raw),
        intermediate=_intermediate(fields),
        is_default=fields.flag("is_default"),
        is_best=fields.flag("is_best"),
        on_front=fields.flag("on_front"),
        is_knee=fields.flag("is_knee"),
        retry_of=retry_of,
        error=fields.text("error"),
    )


def parse_study(raw: Any, where: str) -> Study:
    """Read what was searched; ``where`` names the place in errors.

    Raises:
        UsageError: a field has a wrong type, there is no objective, or the held-out metric is none.
    """
    fields = Fields.of(raw, where)
    objectives = tuple(
        _objective(one, f"{where}, field 'objectives', entry {i}") for i, one in enumerate(fields.entries("objectives"))
    )
    if not objectives:
        raise UsageError(f"{where}, field 'objectives': expected at least one, got none")
    importance = fields.inner("importance")
    shares = {name: importance.inner(name) for name in importance.raw}
    return Study(
        objectives=objectives,
        parameters=tuple(
            _parameter(one, f"{where}, field 'parameters', entry {i}")
            for i, one in enumerate(fields.entries("parameters"))
        ),
        importance={
            name: {key: share for key in inner.raw if (share := inner.number(key)) is not None}
            for name, inner in shares.items()
        },
        sampler=fields.text("sampler"),
        pruner=fields.text("pruner"),
        asked=fields.whole("asked"),
        setting=fields.text("setting"),
        budget=fields.text("budget"),
        validation=fields.text("validation"),
        held_out=None if fields.raw.get("held_out") is None else _held_out(fields.inner("held_out"), objectives),
    )


def check_parameters(trial: Trial, study: Study, where: str) -> None:
    """See that numbers are numbers.

    Raises:
        UsageError: the value of a float or int parameter is none.
    """
    for parameter in study.parameters:
        if parameter.kind != "choice":
            finite(trial.parameters.get(parameter.key), f"{where}, field 'parameters', field {parameter.key!r}")


def _intermediate(fields: Fields) -> tuple[tuple[float, float], ...]:
    found, where = [], f"{fields.where}, field 'intermediate'"
    for pair in fields.entries("intermediate"):
        if not isinstance(pair, list) or len(pair) != 2:
            raise UsageError(f"{where}: expected pairs of step and value, got {pair!r}")
        step, value = (finite(one, where) for one in pair)
        if step is not None and value is not None:
            found.append((step, value))
    return tuple(found)


def _objective(raw: Any, where: str) -> Objective:
    fields = Fields.of(raw, where)
    name = _named(fields, "name")
    maximise = fields.one_of("direction", ("maximize", "minimize")) == "maximize"
    return Objective(name, maximise, fields.text("words") or name.replace("_", " "))


def _parameter(raw: Any, where: str) -> Parameter:
    fields = Fields.of(raw, where)
    kind = cast(ParameterKind, fields.one_of("kind", get_args(ParameterKind)))
    if kind != "choice":
        fields.number("default")  # of a wrong type it is an error
    return Parameter(
        key=_named(fields, "key"),
        kind=kind,
        low=fields.number("low"),
        high=fields.number("high"),
        log=fields.flag("log"),
        of=tuple(fields.entries("of")),
        default=fields.raw.get("default"),
        when=fields.text("when"),
    )


def _held_out(fields: Fields, objectives: tuple[Objective, ...]) -> HeldOut:
    metric = fields.one_of("metric", [one.name for one in objectives])
    n = fields.whole("n") or 0
    default, best, difference = (fields.inner(name) for name in ("default", "best", "difference"))
    return HeldOut(
        words=fields.text("words") or "held-out data",
        metric=metric,
        default=_estimate(default, n),
        best=_estimate(best, n),
        difference=_estimate(difference, n),
        default_seconds=default.number("seconds"),
        best_seconds=best.number("seconds"),
    )


def _estimate(fields: Fields, n: int) -> Estimate:
    return Estimate(fields.required_number("mean"), n, fields.number("low"), fields.number("high"))


def _named(fields: Fields, name: str) -> str:
    found = fields.text(name)
    if found is None:
        raise UsageError(f"{fields.where}, field {name!r}: expected a name, got {fields.raw.get(name)!r}")
    return found
