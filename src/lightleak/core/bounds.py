"""Types, bounds and choices of settings, declared with the field and checked by one function.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Training(Section, section="training"):
...     epochs: int = bounded(2, ge=0)
>>> Training(epochs=-1)
Traceback (most recent call last):
lightleak.core.errors.UsageError: training.epochs must be at least 0, got -1
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from lightleak.core.errors import UsageError

_WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Bounds:
    """What a setting may be; None does not limit it.

    Attributes:
        ge: least value.
        gt: value that it must exceed.
        le: greatest value.
        lt: value that it must stay below.
        choices: all values that it may have.
        distinct: a list must name each entry once.
        some: a list or mapping must not be empty.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[Any, ...] = ()
    distinct: bool = False
    some: bool = False

    def words(self) -> str:
        """Return the limits of a number in words; empty if there are none.

        >>> Bounds(ge=0, lt=1).words()
        'at least 0 and below 1'
        """
        limits = {word: getattr(self, name) for name, word in _WORDS.items()}
        return " and ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)

    def allows(self, number: float) -> bool:
        """Whether a number lies within the limits; NaN lies within none."""
        return (
            (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and (self.le is None or number <= self.le)
            and (self.lt is None or number < self.lt)
        )


def bounded(default: Any = MISSING, *, default_factory: Any = MISSING, **limits: Any) -> Any:
    """Declare a field with the limits that `Bounds` lists; of a list, they apply to each entry."""
    metadata = {"bounds": Bounds(**limits)}
    return field(default=default, default_factory=default_factory, metadata=metadata)


def one_of(default: Any, choices: Collection[Any], **limits: Any) -> Any:
    """Declare a field whose value, or each entry of whose list, is one of ``choices``."""
    return bounded(default, choices=tuple(choices), **limits)


def bounds_of(declared: "Field[Any]") -> Bounds | None:
    """Return the limits of a field; None if it was declared without any."""
    found: Bounds | None = declared.metadata.get("bounds")
    return found


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Annotations of a class by name."""
    return get_type_hints(kind)


def check_settings(settings: Any, before: str = "") -> None:
    """Raise `UsageError` if a field of a dataclass is not of its type, or outside the limits it was declared with.

    Lists become tuples. Where an annotation names what cannot be looked up, limits alone are checked.

    Args:
        settings: the dataclass.
        before: what errors put before the name of a field.
    """
    kind: Any = type(settings)
    try:
        hints = types_of(kind)
    except NameError:
        hints = {}
    for declared in fields(settings):
        if declared.init:
            if isinstance(value := getattr(settings, declared.name), list):
                object.__setattr__(settings, declared.name, tuple(value))
            require_type(f"{before}{declared.name}", getattr(settings, declared.name), hints.get(declared.name, Any))
    check_bounds(settings, before)


def check_bounds(settings: Any, before: str = "") -> None:
    """As `check_settings`, of values whose types are known to be right."""
    for declared in fields(settings):
        if limits := bounds_of(declared):
            value = getattr(settings, declared.name)
            if value is not None:
                require_within(limits, f"{before}{declared.name}", value)


def require_type(name: str, value: Any, hint: Any) -> None:
    """Raise `UsageError` for a value that is not of the declared type, before it fails in the middle of a run.

    >>> require_type("share", "half", float | None)
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: share must be a finite number, got 'half'
    """
    parts = _parts(hint)
    if any(_is_of(value, part) for part in parts):
        return
    if of := [get_args(part)[0] for part in parts if get_origin(part) is tuple and isinstance(value, tuple)]:
        for entry in value:
            require_type(name, entry, of[0])
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    if words and not {int, float}.intersection(parts):
        require_one_of(name, value, words)
    kinds = {*parts, *map(get_origin, parts)}
    expected = next(said for kind, said in _EXPECTED.items() if kind in kinds)
    raise UsageError(f"{name} must be {expected}, got {value!r}")


_EXPECTED: dict[Any, str] = {
    tuple: "a list",
    bool: "true or false",
    float: "a finite number",
    int: "a whole number",
    str: "text",
    Literal: "one of those listed",
    NoneType: "null",
}


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_of(value: Any, part: Any) -> bool:
    """Whether a value is of a type that is no union; what is not known is not checked."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if get_origin(part) is Literal:
        return value in get_args(part)
    if get_origin(part) is tuple:
        return isinstance(value, tuple) and all(any(_is_of(v, p) for p in _parts(get_args(part)[0])) for v in value)
    if part is int:
        return is_number and isinstance(value, int)
    if part is float:
        return is_number and math.isfinite(value)
    return isinstance(value, part) if part in (bool, str, NoneType) else True


def require_one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    """Raise `UsageError` for a value that is not among those allowed."""
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")


def require_within(limits: Bounds, name: str, value: Any) -> None:
    """Raise `UsageError` if a value, or an entry of a list, is outside the limits."""
    is_many = isinstance(value, list | tuple | Mapping)
    entries = tuple(value) if is_many else (value,)
    if limits.some and not entries:
        raise UsageError(f"{name} must name at least one, got none")
    if limits.distinct and len(set(entries)) < len(entries):
        raise UsageError(f"{name} must be distinct, got {', '.join(map(str, entries))}")
    if limits.choices and (unknown := [entry for entry in entries if entry not in limits.choices]):
        verb = "be among" if is_many else "be one of"
        raise UsageError(f"{name} must {verb} {', '.join(map(str, limits.choices))}, got {_shown(unknown, is_many)}")
    for number in _numbers(entries):
        if not limits.allows(number):
            raise UsageError(f"{name} must be {limits.words()}, got {number}")


def require_at_most(name: str, value: int, most: int, what: str) -> None:
    """Raise `UsageError` if a setting is larger than the number of what there is.

    >>> require_at_most("batch_size", 8, 5, "training rows")
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: batch_size must be at most 5 (training rows), got 8
    """
    if value > most:
        raise UsageError(f"{name} must be at most {most} ({what}), got {value}")


def _numbers(entries: Collection[Any]) -> Iterator[float]:
    return (entry for entry in entries if isinstance(entry, int | float))


def _shown(entries: Collection[Any], is_many: bool) -> str:
    return ", ".join(map(str if is_many else repr, entries))


@dataclass(frozen=True)
class Section:
    """Base of a section of a config: limits of its fields are checked first, then `check`.

    Attributes:
        section: its place in the config, which errors name; a subclass says it where it is declared.
    """

    section: ClassVar[str] = ""

    def __init_subclass__(cls, section: str | None = None) -> None:
        """Set the place of a section; without one it is that of the base."""
        if section is not None:
            cls.section = section

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that is not allowed."""
        check_bounds(self, f"{self.section}." if self.section else "")
        self.check()

    def check(self) -> None:
        """Raise `UsageError` for settings that cannot work together."""
