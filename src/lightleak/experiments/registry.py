"""The kinds of audit, by the ``kind`` of a config; a new kind is one entry here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.experiments.config import load_config
from lightleak.experiments.kinds.frontier.config import load_frontier_config
from lightleak.experiments.kinds.frontier.offline import refuse_frontier_captures
from lightleak.experiments.kinds.frontier.run import describe_frontier_plan, run_frontier_audit
from lightleak.experiments.kinds.released.config import load_released_config
from lightleak.experiments.kinds.released.offline import attack_released_captures
from lightleak.experiments.kinds.released.run import describe_released_plan, run_released_audit
from lightleak.experiments.kinds.vertical.config import load_vertical_config
from lightleak.experiments.kinds.vertical.offline import attack_vertical_captures
from lightleak.experiments.kinds.vertical.run import describe_vertical_plan, run_vertical_audit
from lightleak.experiments.offline import attack_captures
from lightleak.experiments.plan_text import describe_plan
from lightleak.experiments.run import run_audit
from lightleak.experiments.settings import read_settings, setting_key


@dataclass(frozen=True)
class Kind:
    """What the command does with a config.

    Attributes:
        load: reads it, with overrides by dotted key.
        run: runs it into a folder: ``(config, folder, command, console)``.
        describe: prints the plan: ``(config, console)``.
        attack: attacks captures: ``(config, captures, folder, command, console)``.
    """

    load: Callable[..., Any]
    run: Callable[..., dict[str, Any]]
    describe: Callable[..., None]
    attack: Callable[..., dict[str, Any]]


KINDS = {
    "defence-frontier": Kind(
        load_frontier_config, run_frontier_audit, describe_frontier_plan, refuse_frontier_captures
    ),
    "horizontal": Kind(load_config, run_audit, describe_plan, attack_captures),
    "released-model": Kind(load_released_config, run_released_audit, describe_released_plan, attack_released_captures),
    "vertical": Kind(load_vertical_config, run_vertical_audit, describe_vertical_plan, attack_vertical_captures),
}


def kind_of_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Kind:
    """The kind a config file names; ``horizontal`` where it names none.

    Raises:
        UsageError: the file cannot be read, or there is no such kind.
    """
    content = read_settings(path)
    if "study" in content:
        raise UsageError(f"{path} is a study; run it by lightleak tune")
    name = (overrides or {}).get("kind", content.get("kind")) or "horizontal"
    if not isinstance(name, str) or name not in KINDS:
        raise UsageError(f"{path}: kind must be one of {', '.join(KINDS)}, got {name!r}")
    return KINDS[name]


def load_any_config(path: Path, overrides: Mapping[str, Any] | None = None) -> tuple[Kind, Any]:
    """The kind and the config of a file: what ``lightleak audit`` and ``lightleak attack`` read.

    Args:
        path: the file.
        overrides: dotted keys and values, which win.

    Raises:
        UsageError: the file cannot be read, is a study, names no kind there is, or its settings are wrong.
    """
    settings = {setting_key(name): value for name, value in (overrides or {}).items()}
    kind = kind_of_config(path, settings)
    return kind, kind.load(path, settings)
