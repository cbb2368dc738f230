"""One searched setting: its range, its default, when it applies, and how Optuna stores its values.

Optuna stores scalars only. A choice among other values, or among scalars that Python calls equal (1 and true), is
stored as the JSON text of its values.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from lightleak.core.errors import UsageError

Kind = Literal["float", "int", "choice"]
Scalar: TypeAlias = str | int | float | bool | None

MISSING: Final = object()
"""The default of a search without one; ``None`` may be a choice."""

SLACK = 1e-9
"""Rounding error allowed for a value that went through a logarithm, relative to the bounds."""


@dataclass(frozen=True)
class Condition:
    """Another setting and the values under which a search applies.

    >>> print(Condition("defense.name", ("clipping", "gaussian_noise")))
    defense.name is clipping or gaussian_noise
    """

    key: str
    allowed: tuple[Any, ...]

    def holds_for(self, value: Any) -> bool:
        """Return whether ``value`` is one of the allowed values."""
        return any(canonical(value) == canonical(one) for one in self.allowed)

    def __str__(self) -> str:
        return f"{self.key} is {' or '.join(map(words, self.allowed))}"


@dataclass(frozen=True)
class Parameter:
    """One range of one setting; a setting with other ranges under other conditions has several.

    Attributes:
        key: dotted place in the config.
        name: its name in Optuna: the key, followed by a number where ranges of one key differ.
        kind: ``float``, ``int`` or ``choice``.
        low: least number; ``None`` for a choice.
        high: largest number, included.
        log: whether the scale is logarithmic.
        step: distance between neighbors; ``None`` for a continuous range.
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
    of: tuple[Any, ...] = ()
    default: Any = MISSING
    when: tuple[Condition, ...] = ()

    @property
    def stored_choices(self) -> tuple[Scalar, ...]:
        """The choices as Optuna stores them."""
        scalars = all(value is None or isinstance(value, str | int | float) for value in self.of)
        return self.of if scalars and len(set(self.of)) == len(self.of) else tuple(map(canonical, self.of))

    @property
    def range(self) -> tuple[Any, ...]:
        """What two searches must have in common to be one parameter in Optuna."""
        return (self.kind, self.low, self.high, self.log, self.step, self.stored_choices)

    @property
    def fallback(self) -> Any:
        """The default, or where there is none the first value of the range."""
        if self.default is not MISSING:
            return self.default
        return self.of[0] if self.kind == "choice" else self.low

    def suggest(self, trial: Any) -> Any:
        """Return a value of the range, chosen by an ``optuna.Trial``, ``FixedTrial`` or ``FrozenTrial``."""
        if self.kind == "choice":
            return self.decode(trial.suggest_categorical(self.name, self.stored_choices))
        low, high = self._bounds
        if self.kind == "float":
            return trial.suggest_float(self.name, low, high, log=self.log, step=self.step)
        return trial.suggest_int(self.name, int(low), int(high), log=self.log, step=int(self.step or 1))

    def encode(self, value: Any) -> Scalar:
        """Return ``value`` as Optuna stores it.

        Raises:
            UsageError: it is outside the range.
        """
        self.check(value)
        if self.kind != "choice":
            return float(value) if self.kind == "float" else int(value)
        return self.stored_choices[self._index(value)]

    def decode(self, stored: Any) -> Any:
        """Return the value that Optuna stores as ``stored``.

        Raises:
            UsageError: it is not in the range: the study was made with another space.
        """
        if self.kind != "choice":
            value = float(stored) if self.kind == "float" else int(stored)
            self.check(value)
            return value
        for value, known in zip(self.of, self.stored_choices, strict=True):
            if known == stored:
                return value
        raise UsageError(f"{self.key}: must be one of {self._choices}, got {stored!r}")

    def check(self, value: Any) -> None:
        """Raise `UsageError` for a value outside the range."""
        if not self.contains(value):
            raise UsageError(f"{self.key}: must be {self.allowed}, got {value!r}")

    def contains(self, value: Any) -> bool:
        """Return whether ``value`` is in the range."""
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
        """The range in words, for error messages."""
        if self.kind == "choice":
            return f"one of {self._choices}"
        number = "a number" if self.kind == "float" else "a whole number"
        return f"{number} from {self.low} to {self.high}{f' in steps of {self.step}' if self.step else ''}"

    def describe(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self) | {
            "of": list(self.of) or None,
            "default": None if self.default is MISSING else self.default,
            "when": " and ".join(map(str, self.when)) or None,
        }

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.low is not None and self.high is not None  # of every kind but a choice
        return self.low, self.high

    @property
    def _choices(self) -> str:
        return ", ".join(map(words, self.of))

    def _index(self, value: Any) -> int:
        """Index of a choice, -1 if it is not one."""
        choices = [canonical(one) for one in self.of]
        return choices.index(canonical(value)) if canonical(value) in choices else -1


def is_number(value: object) -> bool:
    """Return whether ``value`` is a finite number, not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def canonical(value: Any) -> str:
    """Return the same text for values that are equal in YAML: ``1.0`` is ``1``, ``true`` is not.

    >>> canonical({"b": [1.0, True], "a": None})
    '{"a": null, "b": [1, true]}'
    """
    return json.dumps(_whole(value), sort_keys=True, default=str)


def words(value: Any) -> str:
    """Return a value as a YAML file shows it.

    >>> words("clipping"), words(True), words([100, 100])
    ('clipping', 'true', '[100, 100]')
    """
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _whole(value: Any) -> Any:
    """Return ``value`` with whole floats as integers, and keys of mappings as strings."""
    if isinstance(value, Mapping):
        return {str(key): _whole(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
