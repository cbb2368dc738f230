"""``lightleak attack`` with the config of a frontier: refused, as half of it is training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from lightleak.core.errors import UsageError
from lightleak.experiments.kinds.frontier.config import FrontierConfig


def refuse_frontier_captures(
    config: FrontierConfig, root: Path, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> NoReturn:
    """Captures say what leaked, but nothing of what a defence costs.

    Raises:
        UsageError: always; the message names what attacks captures.
    """
    named: dict[str, Any] = config.attacks
    raise UsageError(
        "a defence frontier trains and attacks by itself, and takes no captures; to attack those in "
        f"{root} use a config of kind: horizontal with attacks: [{', '.join(named)}]"
    )
