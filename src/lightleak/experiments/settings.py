"""From YAML and flags to typed settings: what every kind of audit's config shares.

A config is a YAML file; any key can be changed on the command line (``--training.epochs 3``). Unknown keys and values
of the wrong type are refused with their place.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import jsonargparse
import yaml

from lightleak.core.bounds import Bounds, Section, require_within
from lightleak.core.errors import UsageError
from lightleak.core.former_names import REGISTERED, current_name, note_once
from lightleak.core.yaml_text import MAX_NUMBER, RefusedYaml, read_yaml_file, unwritable
from lightleak.core.yaml_text import read_yaml as read_yaml

T = TypeVar("T")
EngineName = Literal["local", "ray"]

RENAMED_SETTINGS = {"mislabelled": "mislabeled", **REGISTERED}
"""Settings, and labels that name attacks, by their old name: read as the new one in any section, with a note."""

RENAMED_VALUES = {"kind": {"horizontal": "updates", "defence-frontier": "defense-frontier"}}
"""Old values of settings of the top level, likewise."""

MOST_SEEDS = 10_000
"""Repetitions of a whole experiment, each from a root seed of its own."""


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping a YAML file holds.

    Raises:
        UsageError: the file is missing or no YAML mapping, or `read_yaml` refuses it.
    """
    if not path.is_file():
        raise UsageError(f"config {path} does not exist or is no file")
    try:
        content = read_yaml_file(path)
    except RefusedYaml as error:
        raise UsageError(f"config {path}: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"config {path} is not YAML in UTF-8: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        got = "an empty file" if content is None else type(content).__name__
        raise UsageError(
            f"config {path} must hold a mapping of settings, such as data: {{table: FILE, label: COLUMN}}; got {got}"
        )
    return with_new_names(content)


def with_new_names(tree: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return settings with old names replaced by new ones; a note on each goes to the log once."""
    found: dict[Any, Any] = _with_new_keys(tree)
    for name, values in RENAMED_VALUES.items():
        if isinstance(old := found.get(name), str) and old in values:
            note_once(f"{name}: {old}", f"{name}: {values[old]}")
            found[name] = values[old]
    return found


def _with_new_keys(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_with_new_keys(entry) for entry in tree]
    if not isinstance(tree, Mapping):
        return tree
    found = {}
    for key, value in tree.items():
        head, dot, last = key.rpartition(".") if isinstance(key, str) else ("", "", key)
        if last in RENAMED_SETTINGS:
            note_once(last, RENAMED_SETTINGS[last])
            key = f"{head}{dot}{RENAMED_SETTINGS[last]}"
        found[key] = _with_new_keys(value)
    return found


def override(
    content: Mapping[str, Any], overrides: Mapping[str, Any] | None, write_out: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """A copy of ``content`` with dotted keys changed; ``write_out`` turns short forms into full ones.

    Raises:
        UsageError: a dotted key leads through a value.
    """
    merged: dict[str, Any] = with_new_names(plain(content))
    write_out(merged)
    for key, value in with_new_names(overrides or {}).items():
        _set(merged, key, plain(value))
        write_out(merged)
    return merged


def build_settings(kind: type[T], tree: dict[str, Any], free: Sequence[str], source: str) -> T:
    """The dataclass ``kind`` of plain values, with their types checked.

    Args:
        kind: a dataclass of dataclasses.
        tree: its values; what is free is taken out.
        free: dotted keys of settings that others check themselves (loaders, networks, the Trainer, attacks).
        source: the config, as errors name it.

    Raises:
        UsageError: a key is unknown, or a value has the wrong type or range.
    """
    _require_mappings(kind, tree)
    known = [section.name for section in fields(cast(Any, kind))]
    for name in tree:  # one that holds nothing would pass as nothing
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise UsageError(f"{source}: unknown setting {name!r}{hint}; known: {', '.join(known)}")
    _require_ranges(tree)
    loose = {key: _take(tree, key) for key in free}
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind)
    try:
        values = parser.instantiate(parser.parse_object(tree)).as_dict()
    except (jsonargparse.ArgumentError, TypeError, ValueError, KeyError) as error:
        raise UsageError(f"{source}: {_in_words(str(error), kind)}") from error
    for key, settings in loose.items():
        section, _, name = key.partition(".")
        if settings is not None:
            values[section] = replace(values[section], **{name: settings}) if name else settings
    return kind(**values)


@dataclass(frozen=True)
class RunConfig(Section):
    """Base of the config of a kind of audit: read from YAML or plain values, and written back.

    Attributes:
        free: dotted keys of settings that others check (loaders, networks, the Trainer, attacks).
        named: sections that are a name, a list of names, or a mapping of names to settings.
    """

    free: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[tuple[str, ...]] = ("attacks",)

    @classmethod
    def load(cls, path: Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a YAML config; ``overrides`` maps dotted keys to values and wins.

        Raises:
            UsageError: the file is missing or no YAML mapping, a key is unknown, or a value has the wrong type or
                range.
        """
        return cls.parse(read_settings(path), overrides, str(path))

    @classmethod
    def parse(
        cls, content: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, source: str = "config"
    ) -> Self:
        """Build a config of plain values, with their types checked; errors as for `load`."""
        return build_settings(cls, override(content, overrides, cls.write_out), cls.free, source)

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """Turn short forms into full ones, in place; a key without a value is left to its default."""
        for name in cls.named:
            if name in tree:
                tree[name] = named_settings(name, tree[name])
        drop_empty(tree, but=cls.named)

    def to_dict(self) -> dict[str, Any]:
        """YAML- and JSON-ready form."""
        return dict(plain(asdict(self)))


def setting_key(name: str) -> str:
    """A setting as configs name it: dashes are underscores, and ``trainer.`` is short for ``training.trainer.``.

    >>> setting_key("trainer.num-nodes")
    'training.trainer.num_nodes'
    """
    key = name.replace("-", "_")
    return f"training.{key}" if key.startswith("trainer.") else key


def named_settings(section: str, value: Any) -> dict[str, Any]:
    """One name, a list of names, or a mapping of names to settings, as the mapping.

    >>> named_settings("attacks", ["random", "tableak"])
    {'random': {}, 'tableak': {}}

    Raises:
        UsageError: something else, or a name twice.
    """
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        names = [current_name(name) for name in names]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise UsageError(f"{section} must name each once, got {twice[0]!r} {names.count(twice[0])} times")
        return {name: {} for name in names}
    if names is not None and not isinstance(names, dict):
        raise UsageError(f"{section} must be names, or a mapping of names to settings, got {value!r}")
    found = {name: {} if options is None else options for name, options in (names or {}).items()}
    for name, options in found.items():
        if not isinstance(options, dict):
            raise UsageError(f"{section}.{name} must be a mapping of settings, got {options!r}")
    return found


def drop_empty(tree: dict[str, Any], but: Collection[str] = ()) -> None:
    """Leave keys without a value to their defaults; sections ``but`` keep theirs."""
    for name, holder in ((None, tree), *list(tree.items())):
        if isinstance(holder, dict) and name not in but:
            for key in [key for key, value in holder.items() if value is None]:
                del holder[key]


def write_out_labels(*holders: Any) -> None:
    """Write the unquoted ``labels: true``, which YAML reads as a boolean, as the word."""
    for holder in holders:
        if isinstance(holder, dict) and holder.get("labels") is True:
            holder["labels"] = "true"


def write_out_names(tree: dict[str, Any], name: str) -> None:
    """Write names separated by commas (``--adversaries C1,C2``) as a list."""
    if isinstance(tree.get(name), str):
        tree[name] = [part.strip() for part in tree[name].split(",")]


def write_out_seeds(tree: dict[str, Any]) -> None:
    """``seeds: 5`` is short for five seeds, from ``seed`` (or 0) on, and ``seed: 3`` alone for ``seeds: [3]``."""
    number = tree.get("seeds")
    if isinstance(number, int):
        first = tree.pop("seed", 0)
        require_within(Bounds(ge=1, le=MOST_SEEDS), "seeds", number)
        tree["seeds"] = [first + i if isinstance(first, int) else first for i in range(number)]
    elif "seed" in tree:
        tree["seeds"] = [tree.pop("seed")]
    write_out_numbers(tree, "seeds")


def labeled_settings(section: str, value: Any, key: str) -> Any:
    """Entries ``{name: NAME, options: {...}}``, in a list or by label, as a mapping of labels to settings with ``key``.

    An entry of a list gets the label that it names, or its name. Other forms are returned unchanged.

    >>> labeled_settings("defenses", ["none", {"name": "withdraw", "options": {"ratio": 0.5}}], "defense")
    {'none': {}, 'withdraw': {'defense': 'withdraw', 'ratio': 0.5}}

    Raises:
        UsageError: two entries with the same label.
    """
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        value = [value]
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        entries = [entry if isinstance(entry, dict) else {"name": entry} for entry in value]
        labels = [str(entry.get("label") or entry.get("name")) for entry in entries]
        if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
            raise UsageError(f"{section} must have distinct names, got {twice[0]!r} twice; give one of them a label")
        value = dict(zip(labels, entries, strict=True))
    if not isinstance(value, dict):
        return value
    return {label: _flat_entry(label, entry, key) for label, entry in value.items()}


def _flat_entry(label: str, entry: Any, key: str) -> Any:
    if not isinstance(entry, dict) or "name" not in entry:
        return entry
    settings = {name: value for name, value in entry.items() if name not in ("name", "label", "options")}
    named = {} if entry["name"] == label and not (settings or entry.get("options")) else {key: entry["name"]}
    return named | settings | (entry.get("options") or {})


def write_out_numbers(tree: dict[str, Any], name: str) -> None:
    """One number, or numbers separated by commas (``--seeds 0,1``), as a list."""
    if isinstance(tree.get(name), int):
        tree[name] = [tree[name]]
    elif isinstance(tree.get(name), str):
        tree[name] = [read_yaml(part) for part in tree[name].split(",")]


def plain(value: Any) -> Any:
    """Nested dictionaries and lists, copied; tuples become lists, as YAML and JSON know no tuples.

    Raises:
        UsageError: a key is not text, or a value could not be written as YAML and read again.
    """
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"keys of settings must be text, got {key!r}")
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, str) and (odd := unwritable(value)):
        raise UsageError(f"settings must not contain the character {odd}, got {value!r}")
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        raise UsageError(f"numbers in settings must be finite and at most {MAX_NUMBER:.2g} in magnitude, got {value}")
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def at_least(name: str, value: int, least: int) -> None:
    """Raise `UsageError` for a number below ``least``."""
    if value < least:
        raise UsageError(f"{name} must be at least {least}, got {value}")


def _require_mappings(kind: Any, tree: Mapping[str, Any], prefix: str = "") -> None:
    """Raise `UsageError` for a value where a section of settings is expected."""
    for section in fields(kind):
        value = tree.get(section.name)
        if value is not None and is_dataclass(section.type):
            if not isinstance(value, dict):
                raise UsageError(f"{prefix}{section.name} must be a mapping of settings, got {value!r}")
            _require_mappings(section.type, value, f"{prefix}{section.name}.")


_SEEDS = ("seed", "seeds", "split_seed")
"""Settings that hold a seed, or seeds, in whatever section they stand."""


_REPEATED = "batches clients clients_per_round epochs evaluations held_out local_epochs max_epochs per_class per_epoch"
_REPEATED += " restarts rounds searched_per_class tpe_per_class trees trials tries chains most_chains noised_restarts"
_WIDTHS = "bottom_hidden decoder_hidden discriminator_dim generator_dim hidden latent_dim output_width top_hidden width"
_STEPS = "iterations steps round_steps noised_steps"
_LARGEST = {
    **dict.fromkeys(_REPEATED.split(), 100_000),
    **dict.fromkeys(_WIDTHS.split(), 100_000),
    **dict.fromkeys(_STEPS.split(), 10_000_000),
    **dict.fromkeys(("n_discrete", "n_continuous"), 10_000),
    **dict.fromkeys(("n_rows", "batch_size", "batch_sizes", "local_batch_size"), 10_000_000),
    "workers": 10_000,
}
"""Upper limits, wherever a setting of that name stands: beyond them a run would not end or not fit into memory."""


def _require_ranges(tree: Mapping[str, Any], prefix: str = "") -> None:
    """Raise `UsageError` for a seed below 0, which no generator takes, and for numbers beyond `_LARGEST`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            _require_ranges(value, f"{prefix}{name}.")
            continue
        for one in value if isinstance(value, list) else [value]:
            if name in _SEEDS and isinstance(one, int):
                at_least(f"{prefix}{name}", one, 0)
            at_most(f"{prefix}{name}", one)


def at_most(name: str, value: Any, largest: float | None = None) -> None:
    """Raise `UsageError` for a number above ``largest``, by default the limit of the last word of a dotted name.

    >>> at_most("training.epochs", 10**12)
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: training.epochs must be at most 100000, got 1000000000000
    """
    words = [word for word in name.strip("-").replace("-", "_").split(".") if not word.isdigit()]
    limit = largest if largest is not None else _LARGEST.get("".join(words[-1:]), math.inf)
    if isinstance(value, int | float) and value > limit:
        raise UsageError(f"{name} must be at most {limit}, got {value}")


_WRONG_VALUE = re.compile(r'Parser key "(?P<key>[^"]+)": Expected an? (?P<type>.+?)\. Got value: (?P<got>.*)')
_WRONG_UNION = re.compile(r'Parser key "(?P<key>[^"]+)": Does not validate .*Subtypes: \[(?P<types>.+)\] Errors: .*')
_WRONG_NAME = re.compile(r"Group '(?P<key>[^']+)' does not accept option '(?P<name>[^']+)'")
_PLAIN_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "NoneType": "null",
}
_PLAIN_TYPES |= {"tuple": "a list, such as [a, b]", "dict": "a mapping of settings"}


def _in_words(message: str, kind: Any) -> str:
    """What jsonargparse says, with the types of Python in words; as it is where it says something else."""
    message = " ".join(message.split())
    if found := _WRONG_VALUE.fullmatch(message):
        return f"{found['key']} must be {_type_in_words(found['type'])}, got {found['got']}"
    if found := _WRONG_UNION.fullmatch(message):
        types = re.findall(r"<class '\w+'>|typing\.Literal\[[^\]]*\]", found["types"])
        allowed = " or ".join(_type_in_words(name).removeprefix("one of ") for name in types)
        return f"{found['key']} must be {allowed}, got {message.rpartition('Given value: ')[2]}"
    if found := _WRONG_NAME.search(message):
        known = _known_settings(kind, found["key"])
        close = get_close_matches(found["name"], known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"unknown setting {found['key']}.{found['name']}{hint}; known: {', '.join(known)}"
    return message


def _type_in_words(name: str) -> str:
    if allowed := re.fullmatch(r"typing\.Literal\[(.*)\]", name):
        return f"one of {allowed[1].replace(chr(39), '')}"
    plain_name = re.sub(r"<class '(\w+)'>", r"\1", name)
    return _PLAIN_TYPES.get(plain_name, plain_name)


def _known_settings(kind: Any, section: str) -> list[str]:
    for name in section.split("."):
        kind = {field.name: field.type for field in fields(kind)}[name]
    return [field.name for field in fields(kind)]


def _take(tree: dict[str, Any], dotted: str) -> dict[str, Any] | None:
    """Settings of others, taken out before types are checked: jsonargparse reads ``'true'`` in them as a boolean."""
    *parents, last = dotted.split(".")
    holder = tree.get(parents[0]) if parents else tree
    found = holder.pop(last, None) if isinstance(holder, dict) else None
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{dotted} must be a mapping of settings, got {found!r}")
    for name, settings in (found or {}).items():
        if not parents and not isinstance(settings, dict):
            raise UsageError(f"{dotted}.{name} must be a mapping of settings, got {settings!r}")
    return found


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
        if not isinstance(tree, dict):
            raise UsageError(f"--{dotted}: {parent!r} holds a value, not settings")
    tree[last] = value
