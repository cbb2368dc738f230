"""Reading a config of any kind."""

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.experiments import kinds
from lightleak.experiments.kind import KINDS as KINDS
from lightleak.experiments.kind import Kind
from lightleak.experiments.settings import RunConfig, read_settings, setting_key, with_new_names

DEFAULT_KIND = "updates"
"""The kind of a config that names none."""


def kind_of(config: RunConfig) -> Kind[Any, Any]:
    """The kind of a config.

    Raises:
        UsageError: it is no config of a kind that is registered.
    """
    name = getattr(config, "kind", "")
    if name not in KINDS:
        raise UsageError(f"config must be one of load_config, got {type(config).__name__}")
    return KINDS[name]


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Any:
    """Read a YAML config of any kind.

    Args:
        path: the file.
        overrides: dotted keys and values, which win.

    Raises:
        UsageError: the file is missing or no YAML mapping, is a study, names no kind that is registered, or its
            settings are wrong.
    """
    return parse_config(read_settings(path), overrides, str(path))


def parse_config(content: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, source: str = "config") -> Any:
    """Build a config of plain values, with their types checked; errors as for `load_config`."""
    if "study" in content:
        raise UsageError(f"{source} is a study; run it by lightleak tune")
    content = with_new_names(content)
    settings = with_new_names({setting_key(name): value for name, value in (overrides or {}).items()})
    name = settings.get("kind", content.get("kind")) or DEFAULT_KIND
    if not isinstance(name, str) or name not in KINDS:
        raise UsageError(f"{source}: kind must be one of {', '.join(KINDS)}, got {name!r}")
    for key in dict.fromkeys(str(one).partition(".")[0] for one in (*content, *settings)):
        owners = [kind for kind in KINDS if key in (one.name for one in fields(KINDS[kind].config))]
        if owners and name not in owners:
            raise UsageError(
                f"{source}: unknown setting {key!r} of kind {name}; it is one of kind {' and '.join(owners)}"
            )
    return KINDS[name].config.parse(content, settings, source)


for _found in iter_modules(kinds.__path__, f"{kinds.__name__}."):
    import_module(f"{_found.name}.kind" if _found.ispkg else _found.name)
