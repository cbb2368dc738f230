"""One searched setting: its range, its default, when it applies, and how Optuna knows it.

Optuna stores scalars alone. A choice among other values, or among scalars that Python calls equal (1 and true), goes by
the JSON text of its values.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from lightleak.core.errors import UsageError

Kind = Literal["float", "int", "choice"]
Scalar: TypeAlias = str | int | float | bool | None

MISSING: Final = object()
"""The default of a search that names none; ``None`` may be a choice."""

SLACK = 1e-9
"""What rounding may do to a value on its way through a logarithm, relative to the bounds."""


class SuggestsValues(Protocol):
    """What of ``optuna.Trial``, ``FixedTrial`` or ``FrozenTrial`` is used."""

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None = ..., log: bool = ...) -> float:
        """A number of the range."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int = ..., log: bool = ...) -> int:
        """A whole number of the range."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """One of the choices."""


@dataclass(frozen=True)
class Condition:
    """Another setting and the values under which a search applies.

    >>> print(Condition("defense.name", ("clipping", "gaussian_noise")))
    defense.name is clipping or gaussian_noise
    """

    key: str
    allowed: tuple[Any, ...]

    def holds_for(self, value: Any) -> bool:
        """Whether ``value`` is one of the allowed."""
        return any(canonical(value) == canonical(one) for one in self.allowed)

    def __str__(self) -> str:
        return f"{self.key} is {' or '.join(map(words, self.allowed))}"


@dataclass(frozen=True)
class Parameter:
    """One range of one setting; a setting with other ranges under other conditions has several.

    Attributes:
        key: dotted place in the config.
        name: what Optuna calls it: the key, with a number behind it where ranges of one key differ.
        kind: ``float``, ``int`` or ``choice``.
        low: least number; ``None`` for a choice.
        high: largest number, included.
        log: whether factors count, not differences.
        step: distance between neighbours; ``None`` for all numbers between.
        of: the choices.
        default: value of the default trial; `MISSING` where there is none.
        when: conditions that must all hold.
    """

    key: str
    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = None
    of: tuple[Any, ...] | None = None
    default: Any = MISSING
    when: tuple[Condition, ...] = ()

    @property
    def stored_choices(self) -> tuple[Scalar, ...]:
        """The choices as Optuna knows them."""
        choices = self.of or ()
        scalars = all(value is None or isinstance(value, str | int | float) for value in choices)
        return choices if scalars and len(set(choices)) == len(choices) else tuple(map(canonical, choices))

    @property
    def range(self) -> tuple[Any, ...]:
        """What two searches must share to be one parameter of Optuna's."""
        return (self.kind, self.low, self.high, self.log, self.step, self.stored_choices)

    def suggest(self, trial: SuggestsValues) -> Any:
        """A value of the range, which ``trial`` chooses."""
        if self.kind == "choice":
            return self.decode(trial.suggest_categorical(self.name, self.stored_choices))
        low, high = self._bounds
        if self.kind == "float":
            return trial.suggest_float(self.name, low, high, log=self.log, step=self.step)
        return trial.suggest_int(self.name, int(low), int(high), log=self.log, step=int(self.step or 1))

    def encode(self, value: Any) -> Scalar:
        """``value`` as Optuna stores it.

        Raises:
            UsageError: it is outside the range.
        """
        self.check(value)
        if self.kind != "choice":
            return float(value) if self.kind == "float" else int(value)
        return self.stored_choices[self._index(value)]

    def decode(self, stored: Any) -> Any:
        """The value that Optuna stores as ``stored``.

        Raises:
            UsageError: it is none of this parameter's: the study was made with another space.
        """
        if self.kind != "choice":
            value = float(stored) if self.kind == "float" else int(stored)
            self.check(value)
            return value
        for value, known in zip(self.of or (), self.stored_choices, strict=True):
            if known == stored:
                return value
        raise UsageError(f"{self.key}: must be one of {self._choices}, got {stored!r}")

    def check(self, value: Any) -> None:
        """Raise `UsageError` for a value outside the range."""
        if not self.contains(value):
            raise UsageError(f"{self.key}: must be {self.allowed}, got {value!r}")

    def contains(self, value: Any) -> bool:
        """Whether ``value`` is in the range."""
        if self.kind == "choice":
            return self._index(value) >= 0
        if not is_number(value) or (self.kind == "int" and value != int(value)):
            return False
        low, high = self._bounds
        slack = SLACK * max(abs(low), abs(high)) if self.kind == "float" else 0
        if not low - slack <= value <= high + slack:
            return False
        steps = (value - low) / self.step if self.step else 0.0
        return math.isclose(steps, round(steps), rel_tol=0, abs_tol=1e-8)

    @property
    def allowed(self) -> str:
        """The range in words, as errors name it."""
        if self.kind == "choice":
            return f"one of {self._choices}"
        number = "a number" if self.kind == "float" else "a whole number"
        return f"{number} from {self.low} to {self.high}{f' in steps of {self.step}' if self.step else ''}"

    def describe(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "key": self.key,
            "name": self.name,
            "kind": self.kind,
            "low": self.low,
            "high": self.high,
            "log": self.log,
            "step": self.step,
            "of": None if self.of is None else list(self.of),
            "default": None if self.default is MISSING else self.default,
            "when": " and ".join(map(str, self.when)) or None,
        }

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.low is not None and self.high is not None  # of every kind but a choice
        return self.low, self.high

    @property
    def _choices(self) -> str:
        return ", ".join(map(words, self.of or ()))

    def _index(self, value: Any) -> int:
        """Place of a choice; -1 where it is none."""
        choices = [canonical(one) for one in self.of or ()]
        return choices.index(canonical(value)) if canonical(value) in choices else -1


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def canonical(value: Any) -> str:
    """One text for values that YAML holds equal: ``1.0`` is ``1``, ``true`` is not.

    >>> canonical({"b": [1.0, True], "a": None})
    '{"a": null, "b": [1, true]}'
    """
    return json.dumps(_whole(value), sort_keys=True, default=str)


def words(value: Any) -> str:
    """A value as a YAML file would hold it.

    >>> words("clipping"), words(True), words([100, 100])
    ('clipping', 'true', '[100, 100]')
    """
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _whole(value: Any) -> Any:
    """``value`` with whole floats as integers, and keys of mappings as texts."""
    if isinstance(value, Mapping):
        return {str(key): _whole(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
