"""``lightleak attack``: attack what was captured before, here or elsewhere, with or without its truth."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.experiments.kind import Captured
from lightleak.experiments.load import kind_of
from lightleak.experiments.run import run_in_folder


def attack_captures(
    config: Any, root: Path, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run the config's attacks on every capture below ``root`` and write a run folder; nothing is trained.

    Without truth the rows carry no accuracy, only what an attacker has: the result and how certain it is. A folder is
    resumed, as for `lightleak.experiments.run.run_audit`.

    Args:
        config: the attacks.
        root: folder with one or more captures.
        folder: the run folder.
        command: recorded in ``environment.json``.
        console: where progress goes.

    Raises:
        UsageError: no capture, an unknown attack, a truth that is not the observation's, an observation an attack
            cannot serve, or a folder that holds another run; before any work.
    """
    captured = kind_of(config).captured(config, root)
    return attack_captured(config, captured, root, folder, command, console)


def attack_captured(
    config: Any,
    captured: Captured,
    origin: Path,
    folder: Path,
    command: Sequence[str] = (),
    console: Console | None = None,
    when_open: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Run attacks that have been checked; arguments as for `attack_captures`.

    Args:
        config: the attacks.
        captured: captures and attacks.
        origin: where the captures come from, or are kept.
        folder: the run folder.
        command: recorded in ``environment.json``.
        console: where progress goes.
        when_open: called when the folder is open.
    """
    console = console or Console()
    for note in captured.notes:
        console.print(note, soft_wrap=True)
    stages = partial(captured.stages, folder)
    return run_in_folder(config, folder, stages, captured.left_out, command, console, origin, when_open)
