"""One searched setting: its range, its default, when it applies, how Optuna stores it, and how YAML writes it.

Optuna stores scalars only. A choice among other values, or among scalars that Python calls equal (1 and true), is
stored as the JSON text of its values.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from lightleak.core.errors import UsageError, close_match
from lightleak.data.cells import LARGEST_INTEGER
from lightleak.experiments.settings import require_limits

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


KINDS: tuple[str, ...] = get_args(Kind)
_NUMBERS = ("low", "high", "log", "step")
_WORDS = (*_NUMBERS, "of", "default", "when")
_TAKES = {kind: (("of",) if kind == "choice" else _NUMBERS) + ("default", "when") for kind in KINDS}
_NEEDS = {kind: ("of",) if kind == "choice" else ("low", "high") for kind in KINDS}


def is_search(node: Any) -> bool:
    """Return whether a node of a config is a search.

    A setting may itself be called ``search``; a search has a known kind, or a key that only searches have.

    >>> is_search({"search": "int", "low": 1, "high": 5}), is_search({"search": "tpe", "steps": 300})
    (True, False)
    """
    if not isinstance(node, Mapping) or "search" not in node or isinstance(node["search"], Mapping | list):
        return False
    return node["search"] in KINDS or any(word in node for word in _WORDS)


def read_search(key: str, node: Mapping[str, Any]) -> Parameter:
    """Return the search at ``key``, named by its key.

    Raises:
        UsageError: a key of the search is unknown or missing, or a value is not allowed for its kind.
    """
    kind = node["search"]
    if kind not in KINDS:
        raise UsageError(f"{key}: unknown search {kind!r}{close_match(kind, KINDS)}; known: {', '.join(KINDS)}")
    takes = _TAKES[kind]
    for word in node:
        if word not in ("search", *takes):
            raise UsageError(
                f"{key}: a search of kind {kind} takes {', '.join(takes)}, got {word!r}{close_match(word, takes)}"
            )
    if missing := [word for word in _NEEDS[kind] if word not in node]:
        raise UsageError(f"{key}: a search of kind {kind} needs {' and '.join(missing)}")
    when = _conditions(key, node["when"]) if "when" in node else ()
    if kind == "choice":
        return _with_default(Parameter(key, key, "choice", of=_choices(key, node["of"]), when=when), node)
    return _with_default(_numbers(key, cast(Kind, kind), node, when), node)


def _numbers(key: str, kind: Kind, node: Mapping[str, Any], when: tuple[Condition, ...]) -> Parameter:
    whole = kind == "int"
    low, high = (_number(f"{key}: {word}", node[word], whole) for word in ("low", "high"))
    log = node.get("log", False)
    if not isinstance(log, bool):
        raise UsageError(f"{key}: log must be true or false, got {log!r}")
    if low >= high:
        raise UsageError(f"{key}: low must be below high, got low {low} and high {high}")
    if log and (low < 1 if whole else low <= 0):
        raise UsageError(f"{key}: low must be {'at least 1' if whole else 'above 0'} with log, got {low}")
    _check_size(key, low, high, None)
    step = _number(f"{key}: step", node["step"], whole) if "step" in node else None
    if step is not None:
        if log:
            raise UsageError(f"{key}: log and step exclude each other, got log true and step {step}")
        if step <= 0:
            raise UsageError(f"{key}: step must be above 0, got {step}")
        _check_size(key, low, high, step)
        if (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(step)):
            raise UsageError(
                f"{key}: high must be low and a whole number of steps, got low {low}, high {high} and step {step}"
            )
    return Parameter(key, key, kind, low, high, log, step, when=when)


def _check_size(key: str, low: float, high: float, step: float | None) -> None:
    """Raise `UsageError` for a range that is too large, for the setting or to count its steps exactly."""
    require_limits(key, high)
    if max(abs(low), abs(high)) > LARGEST_INTEGER:
        raise UsageError(f"{key}: low and high must be at most 2**53 in magnitude, got low {low} and high {high}")
    if step is not None and (high - low) / step > LARGEST_INTEGER:
        raise UsageError(f"{key}: step must be at least 2**-53 of the range, got low {low}, high {high}, step {step}")


def _number(name: str, value: Any, whole: bool) -> float:
    if not is_number(value) or (whole and not isinstance(value, int)):
        raise UsageError(f"{name} must be {'a whole number' if whole else 'a number'}, got {_of_yaml(value)}")
    return int(value) if whole else float(value)


def _choices(key: str, of: Any) -> tuple[Any, ...]:
    if not isinstance(of, list | tuple) or len(of) < 2:
        raise UsageError(f"{key}: of must be a list of at least two choices, got {_of_yaml(of)}")
    seen: set[str] = set()
    for value in of:
        _check_plain(key, value)
        if canonical(value) in seen:
            raise UsageError(f"{key}: of must hold different choices, got {words(value)} twice")
        seen.add(canonical(value))
    return tuple(of)


def _check_plain(key: str, value: Any) -> None:
    """Raise `UsageError` for values that JSON, in which studies are stored, cannot hold, and for nested searches."""
    if is_search(value):
        raise UsageError(f"{key}: a choice cannot hold a search; give the inner setting a search with a when instead")
    if isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            _check_plain(key, one)
    elif not (value is None or isinstance(value, str | bool) or is_number(value)):
        raise UsageError(
            f"{key}: a choice must be a finite number, a string, true, false, null, or lists and mappings of them, "
            f"got {value!r}"
        )


def _with_default(parameter: Parameter, node: Mapping[str, Any]) -> Parameter:
    if "default" not in node:
        return parameter
    default = node["default"]
    low, high = parameter.low, parameter.high
    # Optuna tolerates no rounding in a trial that is enqueued.
    outside = low is not None and high is not None and is_number(default) and not low <= default <= high
    if outside or not parameter.contains(default) or (parameter.kind == "int" and not isinstance(default, int)):
        raise UsageError(f"{parameter.key}: default must be {parameter.allowed}, got {_of_yaml(default)}")
    return replace(parameter, default=parameter.decode(parameter.encode(default)))


def _conditions(key: str, when: Any) -> tuple[Condition, ...]:
    if not isinstance(when, Mapping) or not when:
        raise UsageError(
            f"{key}: when must map dotted keys to values, such as {{defense.name: clipping}}, got {when!r}"
        )
    found = []
    for name, allowed in when.items():
        values = tuple(allowed) if isinstance(allowed, list | tuple) else (allowed,)
        if not values:
            raise UsageError(f"{key}: when.{name} must name at least one value, got an empty list")
        found.append(Condition(str(name), values))
    return tuple(found)


def _of_yaml(value: Any) -> str:
    """Return a value for an error message, with YAML's word for None."""
    return "null" if value is None else repr(value)
