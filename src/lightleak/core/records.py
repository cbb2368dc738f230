"""Frozen dataclasses as JSON: one reader and one writer, both driven by the annotations.

A field is optional if it has a default. ``null``, an absent key and a number that is not finite all mean "unknown" and
read as that default; a value of another type, or one out of range, is an error that names file, row and key. Further
facts of a field stand in its metadata, which `json_field` writes.

Annotations that can be read: ``str``, ``int``, ``float``, ``bool``, ``Any``, ``Literal``, ``T | None``,
``tuple[T, ...]``, ``tuple[T1, T2]``, ``Mapping[str, T]``, and other dataclasses of this sort.
"""

import dataclasses
import math
import types
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lightleak.core.errors import UsageError

T = TypeVar("T")

LONGEST_QUOTE = 80
"""Characters of a wrong value that an error quotes."""

ROUNDING = 1e-6
"""How far a number may lie outside its range: sums of floats do not end exactly at 1."""


@dataclass(frozen=True)
class RecordField:
    """One field of a record: where it stands in the JSON and what it may hold."""

    name: str
    key: str
    annotation: Any
    low: float | None
    high: float | None
    is_required: bool


def json_field(
    *,
    key: str | None = None,
    low: float | None = None,
    high: float | None = None,
    written: bool = True,
    default: Any = MISSING,
    default_factory: Any = MISSING,
) -> Any:
    """Declare a field of a record.

    Args:
        key: its key in the JSON, where that is not its name.
        low: least value of a number.
        high: greatest value of a number.
        written: whether it is part of the JSON at all.
        default: its value where the JSON does not say; without it the key is required.
        default_factory: makes that value.
    """
    facts = {"key": key, "low": low, "high": high, "written": written}
    return dataclasses.field(default=default, default_factory=default_factory, metadata=facts)


def read_record(kind: type[T], raw: Any, where: str, **given: Any) -> T:
    """Read a record from the mapping that JSON holds.

    Args:
        kind: the dataclass.
        raw: the mapping; keys that the dataclass does not declare are ignored.
        where: file and place, for errors.
        given: values of fields that are not read.

    Raises:
        UsageError: ``raw`` is no mapping, a required key is missing, or a value has a wrong type or is out of range.

    >>> from lightleak.core.certificate import Feasibility
    >>> read_record(Feasibility, {"ranks": [3.5]}, "results.json, row 2")
    Traceback (most recent call last):
        ...
    lightleak.core.errors.UsageError: results.json, row 2, key 'ranks', entry 0: expected a whole number, got 3.5
    """
    if not isinstance(raw, Mapping):
        raise UsageError(f"{where}: expected a mapping, got {quoted(raw)}")
    values = dict(given)
    for one in record_fields(cast(Hashable, kind)):
        if one.name not in given:
            place = f"{where}, key {one.key!r}"
            value = _value(one.annotation, raw.get(one.key), place)
            if value is not None:
                values[one.name] = _in_range(value, one.low, one.high, place)
            elif one.is_required:
                raise UsageError(f"{place}: expected {_expected(one.annotation)}, got nothing")
    return kind(**values)


def read_float(raw: Any, low: float | None, high: float | None, where: str) -> float | None:
    """Read a number of that range; None where it is unknown. Errors as for `read_record`."""
    value: float | None = _value(float, raw, where)
    if value is not None:
        _in_range(raw, low, high, where)
    return value


def write_record(record: Any) -> dict[str, Any]:
    """JSON-ready mapping of a record's known values; what equals its default is left out where that is empty."""
    written = {one.key: to_json(getattr(record, one.name)) for one in record_fields(cast(Hashable, type(record)))}
    return {key: value for key, value in written.items() if value not in (None, [], {})}


def to_json(value: Any) -> Any:
    """``value`` in types that JSON knows: records as mappings, tuples as lists, numbers that are not finite as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return write_record(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _in_range(value: Any, low: float | None, high: float | None, where: str) -> Any:
    """Return ``value``; raise `UsageError` where it is a number out of range."""
    if isinstance(value, int | float):
        if low is not None and value < low - ROUNDING:
            raise UsageError(f"{where}: expected at least {low:g}, got {value!r}")
        if high is not None and value > high + ROUNDING:
            raise UsageError(f"{where}: expected at most {high:g}, got {value!r}")
    return value


def quoted(value: Any) -> str:
    """``value`` as an error shows it: not longer than a line."""
    text = repr(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


@cache
def record_fields(kind: Any) -> tuple[RecordField, ...]:
    """Return the fields of a record that its JSON holds."""
    hints = get_type_hints(kind)
    return tuple(
        RecordField(
            name=one.name,
            key=one.metadata.get("key") or one.name,
            annotation=hints[one.name],
            low=one.metadata.get("low"),
            high=one.metadata.get("high"),
            is_required=one.default is MISSING and one.default_factory is MISSING,
        )
        for one in dataclasses.fields(kind)
        if one.metadata.get("written", True)
    )


_ACCEPTED: Mapping[Any, Any] = {float: int | float, int: int | float, str: str | int | float, bool: bool}
"""What JSON may hold where a scalar of that type is expected."""


def _value(annotation: Any, raw: Any, where: str) -> Any:
    """Read a value of that annotation; None stands for what is unknown."""
    origin, of = get_origin(annotation), get_args(annotation)
    if raw is None or annotation is Any:
        return raw
    if origin in (Union, types.UnionType):
        return _value_of_several([one for one in of if one is not type(None)], annotation, raw, where)
    if origin is Literal:
        if raw not in of:
            raise UsageError(f"{where}: expected one of {', '.join(map(str, of))}, got {quoted(raw)}")
        return raw
    if origin is tuple:
        return _values(of, raw, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(raw, Mapping):
            raise UsageError(f"{where}: expected a mapping, got {quoted(raw)}")
        found = {str(name): _value(of[1], value, f"{where}, key {name!r}") for name, value in raw.items()}
        return {name: value for name, value in found.items() if value is not None or of[1] is Any}
    if dataclasses.is_dataclass(annotation):
        return read_record(cast(type, annotation), raw, where)
    return _scalar(annotation, raw, where)


def _value_of_several(kinds: list[Any], annotation: Any, raw: Any, where: str) -> Any:
    if len(kinds) == 1:
        return _value(kinds[0], raw, where)
    if not any(isinstance(raw, kind) for kind in kinds):
        raise _wrong(annotation, raw, where)
    return raw


def _values(of: tuple[Any, ...], raw: Any, where: str) -> tuple[Any, ...]:
    """Read a list of any length, or one with an annotation for each entry."""
    if of[1:] == (...,):
        if not isinstance(raw, list | tuple):
            raise UsageError(f"{where}: expected a list, got {quoted(raw)}")
        return tuple(_value(of[0], one, f"{where}, entry {i}") for i, one in enumerate(raw))
    if not isinstance(raw, list | tuple) or len(raw) != len(of):
        raise UsageError(f"{where}: expected a list of {len(of)}, got {quoted(raw)}")
    return tuple(_value(kind, one, where) for kind, one in zip(of, raw, strict=True))


def _scalar(kind: Any, raw: Any, where: str) -> Any:
    if not isinstance(raw, _ACCEPTED[kind]) or isinstance(raw, bool) != (kind is bool):
        raise _wrong(kind, raw, where)
    if kind in (int, float) and isinstance(raw, float) and not math.isfinite(raw):
        return None
    if kind is int and raw % 1:
        raise _wrong(kind, raw, where)
    try:
        return None if raw == "" else kind(raw)
    except OverflowError as error:  # a whole number of hundreds of digits
        raise _wrong(kind, raw, where) from error


_NAMES = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


def _wrong(annotation: Any, raw: Any, where: str) -> UsageError:
    return UsageError(f"{where}: expected {_expected(annotation)}, got {quoted(raw)}")


def _expected(annotation: Any) -> str:
    of = [_NAMES[one] for one in get_args(annotation) if one in _NAMES]
    return _NAMES.get(annotation) or " or ".join(of) or "a value"
