"""From YAML and flags to typed settings: what every kind of audit's config shares.

A config is a YAML file; any key can be changed on the command line (``--training.epochs 3``). Unknown keys and values
of the wrong type are refused with their place.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

import yaml

from lightleak.core.bounds import Bounds, Section, bounded, require_within, types_of
from lightleak.core.errors import UsageError, close_match
from lightleak.core.former_names import REGISTERED, current_name, note_once
from lightleak.core.yaml_text import MAX_NUMBER, RefusedYaml, read_yaml_file, unwritable
from lightleak.core.yaml_text import read_yaml as read_yaml

T = TypeVar("T")
EngineName = Literal["local", "ray"]
Redact = bool | Literal["all"]
"""``True`` leaves true and reconstructed values out; ``all`` also drops whatever could be attacked again."""

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


def build_settings(kind: type[T], tree: Mapping[str, Any], source: str) -> T:
    """The dataclass ``kind`` of plain values, with their types checked.

    Args:
        kind: a dataclass of dataclasses.
        tree: its values.
        source: the config, as errors name it.

    Raises:
        UsageError: a key is unknown or missing, or a value has the wrong type or range.
    """
    _require_limits(tree)
    return _built(kind, None, tree, "", source)


def _built(kind: Any, usual: Any, tree: Mapping[str, Any], prefix: str, source: str) -> Any:
    """A dataclass of plain values, or a copy of the instance ``usual`` with these values."""
    hints, declared = types_of(kind), {one.name: one for one in fields(kind) if one.init}
    for name in tree:
        if name not in declared:
            place, known = f"{prefix}{name}" if prefix else repr(name), ", ".join(declared)
            raise UsageError(f"{source}: unknown setting {place}{close_match(name, declared)}; known: {known}")
    values = {}
    for name, one in declared.items():
        default = one.default if one.default_factory is MISSING else one.default_factory()
        place = f"{prefix}{name}"
        if name in tree and not is_dataclass(hints[name]):
            values[name] = _typed(tree[name], hints[name], place, source)
        elif name in tree or (default is MISSING and is_dataclass(hints[name])):
            section = tree.get(name, {})
            if not isinstance(section, Mapping):
                raise UsageError(f"{place} must be a mapping of settings, got {section!r}")
            known_values = default if is_dataclass(default) else None
            values[name] = _built(hints[name], known_values, section, f"{place}.", source)
        elif default is MISSING:
            raise UsageError(f"{source}: {place} is required")
    _require_limits({name: list(value) for name, value in values.items() if isinstance(value, tuple)}, prefix)
    return kind(**values) if usual is None else replace(usual, **values)


def _typed(value: Any, hint: Any, place: str, source: str) -> Any:
    """``value`` as its annotation says.

    Text is read as YAML where a number or a boolean is expected. A list of scalars may be text separated by commas
    (``--adversaries C1,C2``), one of whole numbers a single number.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or (origin is Literal and value in parts) or (hint is NoneType and value is None):
        return value
    if origin in (Union, UnionType):
        for part in parts:
            with suppress(UsageError):
                return _typed(value, part, place, source)
    if origin is tuple and isinstance(value, str) and parts[0] in _SCALARS:
        value = [part.strip() for part in value.split(",")]
    elif origin is tuple and isinstance(value, int | float) and int in parts:
        value = [value]
    if origin is tuple and isinstance(value, list | tuple):
        inner = parts[:1] * len(value) if parts[1:] == (...,) else parts
        if len(inner) == len(value):
            return tuple(_typed(one, of, place, source) for one, of in zip(value, inner, strict=True))
    if origin is dict and isinstance(value, Mapping):
        return {key: _typed(one, parts[1], f"{place}.{key}", source) for key, one in value.items()}
    if is_dataclass(hint) and isinstance(value, Mapping):
        return _built(hint, None, value, f"{place}.", source)
    if hint in _SCALARS:
        read = read_yaml(value) if isinstance(value, str) and hint is not str else value
        if isinstance(read, _SCALARS[hint]) and isinstance(read, bool) == (hint is bool):
            return float(read) if hint is float else read
    raise UsageError(f"{source}: {place} must be {_type_in_words(hint)}, got {value}")


_SCALARS: dict[Any, Any] = {int: int, float: int | float, str: str, bool: bool}
_TYPE_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}


def _type_in_words(hint: Any) -> str:
    """What a value of an annotation must be.

    >>> _type_in_words(int | None), _type_in_words(Literal["a", "b"]), _type_in_words(bool | Literal["all"])
    ('a whole number or null', 'one of a, b', 'true or false or all')
    """
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type_in_words(part).removeprefix("one of ") for part in get_args(hint))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    return "a list, such as [a, b]" if get_origin(hint) is tuple else _TYPE_WORDS.get(hint, "a mapping of settings")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """Base of the config of a kind of audit: read from YAML or plain values, and written back.

    Attributes:
        named: sections that `named_settings` reads.
        device: auto, cpu, cuda or cuda:N.
        workers: trainings and attacks run at once on a CPU, one process and one thread each; 0 takes one per core. A
            script that calls `lightleak.experiments.run.run_audit` with more than one must guard the call by
            ``if __name__ == "__main__":``, because every process imports the script.
        engine: where they run: ``local`` in processes of this machine, ``ray`` on a Ray cluster.
        ray_address: of the cluster; left out, ``RAY_ADDRESS``, or Ray is started on this machine.
        gpus_per_pack: GPUs that Ray reserves for each of them; below 1, several share one.
        redact: leave true and reconstructed values out of everything that is written; ``all`` also removes captures and
            checkpoints, which can be attacked, once the run is finished.
    """

    named: ClassVar[tuple[str, ...]] = ("attacks",)
    lists_seeds: ClassVar[bool] = False
    """Whether its ``seeds`` are root seeds; see `write_out_seeds`."""

    device: str = "auto"
    workers: int = bounded(0, ge=0)
    engine: EngineName = "local"
    ray_address: str | None = None
    gpus_per_pack: float = bounded(1.0, gt=0)
    redact: Redact = False

    @classmethod
    def parse(
        cls, content: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, source: str = "config"
    ) -> Self:
        """Build a config of plain values, with their types checked; ``overrides`` maps dotted keys to values and wins.

        Raises:
            UsageError: a key is unknown, or a value has the wrong type or range.
        """
        tree = override(content, overrides, cls.write_out)
        if cls.lists_seeds:
            write_out_seeds(tree)  # of both sources together
        return build_settings(cls, tree, source)

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """Turn short forms into full ones, in place; a key without a value is left to its default."""
        for name in cls.named:
            if name in tree:
                tree[name] = named_settings(name, tree[name])
        drop_empty(tree, but=cls.named)

    def to_dict(self) -> dict[str, Any]:
        """YAML- and JSON-ready form, what all kinds share last."""
        tree: dict[str, Any] = plain(asdict(self))
        shared = {one.name: tree.pop(one.name) for one in fields(RunConfig)}
        return tree | shared


def setting_key(name: str) -> str:
    """A setting as configs name it: dashes are underscores, and ``trainer.`` is short for ``training.trainer.``.

    >>> setting_key("trainer.num-nodes")
    'training.trainer.num_nodes'
    """
    key = name.replace("-", "_")
    return f"training.{key}" if key.startswith("trainer.") else key


def named_settings(section: str, value: Any) -> dict[str, Any]:
    """Attacks or defenses as a mapping of labels to settings.

    Args:
        section: ``attacks`` or ``defenses``.
        value: names as a list or separated by commas; entries ``{name: NAME, options: {...}}``, in a list or by label;
            or the mapping. An entry of a list gets the label that it names, or its name. Where the label is not the
            name, the setting ``attack`` or ``defense`` holds it.

    >>> named_settings("attacks", ["random", "tableak"]) == named_settings("attacks", "random,tableak")
    True
    >>> named_settings("defenses", ["none", {"name": "withdraw", "options": {"ratio": 0.5}}])
    {'none': {}, 'withdraw': {'defense': 'withdraw', 'ratio': 0.5}}

    Raises:
        UsageError: something else, or a label twice.
    """
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    elif isinstance(value, dict) and isinstance(value.get("name"), str):
        value = [value]
    if isinstance(value, list) and all(
        isinstance(one, str) or (isinstance(one, dict) and "name" in one) for one in value
    ):
        entries = [{"name": current_name(entry)} if isinstance(entry, str) else entry for entry in value]
        labels = [str(entry.get("label") or entry.get("name")) for entry in entries]
        if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
            number = labels.count(twice[0])
            raise UsageError(f"{section} must have distinct names or labels, got {twice[0]!r} {number} times")
        value = dict(zip(labels, entries, strict=True))
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{section} must be names, or a mapping of names to settings, got {value!r}")
    key = section.removesuffix("s")
    found = {name: {} if entry is None else _flat_entry(name, entry, key) for name, entry in (value or {}).items()}
    for name, options in found.items():
        if not isinstance(options, dict):
            raise UsageError(f"{section}.{name} must be a mapping of settings, got {options!r}")
    return found


def _flat_entry(label: str, entry: Any, key: str) -> Any:
    if not isinstance(entry, dict) or "name" not in entry:
        return entry
    settings = {name: value for name, value in entry.items() if name not in ("name", "label", "options")}
    named = {} if entry["name"] == label and not (settings or entry.get("options")) else {key: entry["name"]}
    return named | settings | (entry.get("options") or {})


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


def write_out_seeds(tree: dict[str, Any]) -> None:
    """``seeds: 5`` is short for five seeds, from ``seed`` (or 0) on, and ``seed: 3`` alone for ``seeds: [3]``."""
    number = tree.get("seeds")
    if isinstance(number, int):
        first = tree.pop("seed", 0)
        require_within(Bounds(ge=1, le=MOST_SEEDS), "seeds", number)
        tree["seeds"] = [first + i if isinstance(first, int) else first for i in range(number)]
    elif "seed" in tree:
        tree["seeds"] = [tree.pop("seed")]


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


_REPEATED = "batches clients clients_per_round epochs evaluations held_out local_epochs max_epochs per_class per_epoch"
_REPEATED += " restarts rounds searched_per_class tpe_per_class trees trials tries chains most_chains noised_restarts"
_REPEATED += " noised_rounds"
_WIDTHS = "bottom_hidden decoder_hidden discriminator_dim generator_dim hidden latent_dim output_width top_hidden width"
_STEPS = "iterations steps round_steps noised_steps noised_round_steps"
LIMITS: dict[str, Bounds] = {
    **dict.fromkeys(("seed", "seeds", "split_seed"), Bounds(ge=0)),
    **dict.fromkeys(_REPEATED.split(), Bounds(le=100_000)),
    **dict.fromkeys(_WIDTHS.split(), Bounds(le=100_000)),
    **dict.fromkeys(_STEPS.split(), Bounds(le=10_000_000)),
    **dict.fromkeys(("n_discrete", "n_continuous"), Bounds(le=10_000)),
    **dict.fromkeys(("n_rows", "batch_size", "batch_sizes", "local_batch_size"), Bounds(le=10_000_000)),
    "workers": Bounds(ge=0, le=10_000),
}
"""Limits wherever a setting of that name stands: beyond them a run would not end or not fit into memory, and no
generator takes a seed below 0."""


def require_limits(name: str, value: Any) -> None:
    """Raise `UsageError` for a number beyond the `LIMITS` of the last word of a dotted name.

    >>> require_limits("training.epochs", 10**12)
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: training.epochs must be at most 100000, got 1000000000000
    """
    words = [word for word in name.strip("-").replace("-", "_").split(".") if not word.isdigit()]
    if words and words[-1] in LIMITS:
        require_within(LIMITS[words[-1]], name, value)


def _require_limits(tree: Mapping[str, Any], prefix: str = "") -> None:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            _require_limits(value, f"{prefix}{name}.")
        else:
            require_limits(f"{prefix}{name}", value)


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
        if not isinstance(tree, dict):
            raise UsageError(f"--{dotted}: {parent!r} holds a value, not settings")
    tree[last] = value
