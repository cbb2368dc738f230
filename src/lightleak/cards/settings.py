"""The settings of an entry with their defaults and meanings, read off its dataclasses and signatures."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lightleak.cards.docstrings import read_docstring
from lightleak.core.yaml_text import yaml_of

REQUIRED = "required"
"""Shown as the default of a setting that has none."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as written in a config, such as ``gradient.steps`` for a nested one.
        default: as written in a config, or ``required``.
        meaning: one line; empty where the code does not say it.
        choices: the words it may be; empty for other types.
    """

    name: str
    default: str
    meaning: str = ""
    choices: tuple[str, ...] = ()


def settings_of(sources: Iterable[object]) -> tuple[Setting, ...]:
    """The settings that some sources declare (`Facts.settings`); of equal names the first counts.

    >>> @dataclasses.dataclass
    ... class Config:
    ...     '''What to do.
    ...
    ...     Attributes:
    ...         steps: how often.
    ...     '''
    ...     steps: int = 3
    >>> settings_of([Config, ("search", Config(5))])
    (Setting(name='steps', default='3', meaning='how often.', choices=()), \
Setting(name='search.steps', default='5', meaning='how often.', choices=()))
    """
    found: dict[str, Setting] = {}
    for source in sources:
        prefix, declared = source if isinstance(source, tuple) else ("", source)
        for setting in _of(declared):
            full = f"{prefix}.{setting.name}" if prefix else setting.name
            found.setdefault(full, dataclasses.replace(setting, name=full))
    groups = {name.partition(".")[0] for name in found if "." in name}
    return tuple(setting for name, setting in found.items() if name not in groups)


def _of(source: object) -> Iterator[Setting]:
    if dataclasses.is_dataclass(source):
        for field, hint, default, meaning in declared_fields(source):
            yield Setting(field.name, in_yaml(default), meaning, choices_of(hint))
    elif callable(source):
        yield from _of_signature(source)
    else:
        raise TypeError(f"settings are declared by a dataclass or a callable, got {source!r}")


def declared_fields(source: Any) -> Iterator[tuple[dataclasses.Field[Any], Any, Any, str]]:
    """Yield each field of a dataclass or of an instance: the field, its type, default (or value) and meaning."""
    kind = source if isinstance(source, type) else type(source)
    meanings: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        meanings |= read_docstring(parent).entries
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.init:
            default = _default_of(field) if isinstance(source, type) else getattr(source, field.name)
            yield field, hints[field.name], default, meanings.get(field.name, "")


def _of_signature(source: Callable[..., Any]) -> Iterator[Setting]:
    """Arguments that can be given by name and were not bound already."""
    bound = inspect.unwrap(getattr(source, "func", source))
    owner: Any = bound.__init__ if isinstance(bound, type) else bound  # type: ignore[misc]  # of the class itself
    meanings = read_docstring(bound).entries | read_docstring(owner).entries
    hints = get_type_hints(owner)
    for name, parameter in inspect.signature(source).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name in ("self", "name"):
            continue
        default = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
        yield Setting(name, in_yaml(default), meanings.get(name, ""), choices_of(hints.get(name)))


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field of a dataclass, `MISSING` if it has none."""
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def choices_of(hint: Any) -> tuple[str, ...]:
    """The words that a type allows, of a literal or a union with one.

    >>> choices_of(Literal["a", "b"] | None)
    ('a', 'b')
    """
    if get_origin(hint) is Literal:
        return tuple(str(word) for word in get_args(hint))
    return tuple(word for part in get_args(hint) for word in choices_of(part))


def in_yaml(value: Any) -> str:
    """A default as one writes it in a config.

    >>> [in_yaml(value) for value in (None, True, "true", (1, 2), 1e-05, "median", dataclasses.MISSING)]
    ['null', 'true', "'true'", '[1, 2]', '1.0e-05', 'median', 'required']
    """
    if value is dataclasses.MISSING:
        return REQUIRED
    return yaml_of(_plain(value), default_flow_style=True, width=math.inf).removesuffix("...\n").strip()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value
