"""Reading a search from YAML, ``{search: float, low: .., high: .., default: ..}``, as a checked `Parameter`."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast, get_args

from lightleak.core.errors import UsageError, close_match
from lightleak.data.cells import LARGEST_INTEGER
from lightleak.experiments.settings import at_most
from lightleak.tuning.parameter import Condition, Kind, Parameter, canonical, is_number, words

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
    at_most(key, high)
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
