"""Every key of every config as a page of the documentation, read off the config dataclasses."""

import types
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from lightleak.cards.docstrings import read_docstring
from lightleak.cards.markdown import as_cell, as_table
from lightleak.cards.settings import declared_fields, in_yaml
from lightleak.core.bounds import Bounds, bounds_of
from lightleak.experiments.load import DEFAULT_KIND, KINDS
from lightleak.experiments.settings import RENAMED_SETTINGS, RENAMED_VALUES
from lightleak.tuning.config import StudyConfig

PAGE = "config.md"

WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "any"}

INTRODUCTION = """# All keys of a config

A config is a YAML file; `lightleak audit mine.yaml --plan` shows what it would do. Every key is also a flag:
`training.epochs` is `--training.epochs 3`. Keys that a config leaves out have the defaults below. Unknown keys and
values of a wrong type are refused.

The key `kind` chooses the table. `attacks` maps names of `lightleak list attacks` to the settings to change;
`lightleak explain NAME` lists an attack's. `data.options` are options of a dataset's loader, `target.options` of a
network; `training.trainer` takes arguments of `lightning.Trainer`.

This page is generated from the code by `python -m lightleak.cards`."""


@dataclass(frozen=True)
class Key:
    """One key.

    Attributes:
        name: dotted; ``[]`` marks an entry of a list.
        kind: its type in words, or the words that it may be.
        default: as written in YAML, or ``required``.
        meaning: one line.
    """

    name: str
    kind: str
    default: str
    meaning: str


def config_page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for name in sorted(KINDS, key=lambda name: name != DEFAULT_KIND):
        kind = KINDS[name]
        summary = read_docstring(kind.config).summary
        parts += [f"## kind: {name}", as_cell(f"{summary}."), _table(keys_of(kind.config))]
    parts += [
        "## study",
        "The section `study` makes a config of any kind one for `lightleak tune`. Any other value of that config may "
        "then be a search, such as `{search: float, low: 0.02, high: 1.0, log: true, default: 0.06}`.",
        _table(keys_of(StudyConfig, "study.")),
        "## Old names",
        "Old names of keys and values are still read, in files and in flags, with a note in the log.",
        _old_names(),
    ]
    return "\n\n".join(parts) + "\n"


def keys_of(config: Any, prefix: str = "") -> Iterator[Key]:
    """Return the keys of a dataclass or, with its values as defaults, of an instance of one."""
    for field, hint, default, meaning in declared_fields(config):
        name = f"{prefix}{field.name}"
        if is_dataclass(hint):
            yield from keys_of(default if is_dataclass(default) else hint, f"{name}.")
            continue
        yield Key(name, limited(type_of(hint), bounds_of(field)), in_yaml(default), meaning)
        for entry in filter(is_dataclass, get_args(hint)):
            yield from keys_of(entry, f"{name}[].")


def type_of(hint: Any) -> str:
    """Return a type in words.

    >>> type_of(int | None), type_of(tuple[str, ...]), type_of(dict[str, Any]), type_of(Literal["a", "b"])
    ('whole number or null', 'list of text', 'mapping', '`a` or `b`')
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{in_yaml(word)}`" for word in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_of(part) for part in parts))
    if origin in (tuple, list):
        return f"list of {type_of(parts[0])}"
    if origin is dict or is_dataclass(hint):
        return "mapping"
    return WORDS.get(hint, "text")


def limited(kind: str, bounds: Bounds | None) -> str:
    """Return a type in words with the limits that its field declares.

    >>> limited("whole number", Bounds(ge=0)), limited("list of text", Bounds(choices=("C1", "C2"), distinct=True))
    ('whole number, at least 0', 'list of `C1` or `C2`, distinct')
    """
    if bounds is None:
        return kind
    if bounds.choices and "text" in kind:
        kind = kind.replace("text", " or ".join(f"`{choice}`" for choice in bounds.choices))
    extra = [bounds.words(), "distinct" if bounds.distinct else "", "not empty" if bounds.some else ""]
    return ", ".join([kind, *filter(None, extra)])


def _old_names() -> str:
    keys = [(f"`{old}`", f"`{new}`") for old, new in RENAMED_SETTINGS.items()]
    values = [
        (f"`{key}: {old}`", f"`{key}: {new}`")
        for key, renamed in RENAMED_VALUES.items()
        for old, new in renamed.items()
    ]
    return as_table(("old", "new"), keys + values)


def _table(keys: Iterator[Key]) -> str:
    rows = [(f"`{key.name}`", as_cell(key.kind), f"`{key.default}`", as_cell(key.meaning)) for key in keys]
    return as_table(("key", "value", "default", "meaning"), rows)
