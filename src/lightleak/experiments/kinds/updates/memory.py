"""Updates that are in memory, from a callback or another framework, attacked into a run folder of their own."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor

from lightleak.callbacks.capture_store import save_capture
from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.private_files import private_files
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.prepared import PreparedTable
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.kinds.updates.kind import check_units
from lightleak.experiments.kinds.updates.plan import units_on_captures
from lightleak.experiments.observed import Observed
from lightleak.experiments.redaction import dropped
from lightleak.experiments.run import run_in_folder
from lightleak.experiments.unit import Kept, Unit, finished_files, keep_result, kept_cells, returned, unit_file
from lightleak.protocols.replay import require_replay

CAPTURES = "captures"
"""Subfolder of a run that keeps the updates, with their rows and marginals unless it is redacted."""

DIGEST_LENGTH = 10
"""Hexadecimal digits of an update's digest in the name of its folder: 40 bits, for at most thousands of updates."""


def updates_config(
    updates: Sequence[ClientUpdate], settings: Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> AuditConfig:
    """The config of an attack on these updates; what it does not say follows from the updates.

    Args:
        updates: what is attacked.
        settings: sections of a config.
        overrides: values by dotted key, which win.

    Raises:
        UsageError: a wrong setting, no update, or gradients and weight updates together.
    """
    kinds = sorted({update.kind for update in updates})
    if len(kinds) != 1:
        raise UsageError(f"updates must be of one kind, gradient or delta, and at least one; got {kinds}")
    protocol, strongest = ("fedsgd", "tableak") if kinds == ["gradient"] else ("fedavg", "tableak_fedavg")
    usual: dict[str, Any] = {strongest: {}, "audit_max": {}, "random": {}}  # where nobody chooses
    labels = "true" if all(update.labels is not None for update in updates) else "restored"
    tree = {"data": {"name": "updates"}, "attacks": usual, "labels": labels, "protocol": {"name": protocol}}
    # A module that was handed over is known in this process alone.
    return AuditConfig.parse({**tree, "workers": 1, **settings}, overrides, "settings")


def run_updates(
    observed: Sequence[Observed],
    config: AuditConfig,
    folder: Path,
    command: Sequence[str] = (),
    console: Console | None = None,
    known: Mapping[str, Mapping[int, Reconstruction]] | None = None,
    pass_over: bool = False,
    left_out: Mapping[str, str] | None = None,
    is_replayed: bool = False,
    table: PreparedTable | None = None,
    is_whole: bool = False,
) -> dict[str, Any]:
    """Run the config's attacks on updates in memory and write a run folder, the updates themselves included.

    Args:
        observed: updates, each with the rows behind it where they are known.
        config: see `updates_config`.
        folder: the run folder; one that holds the same attack on the same updates is continued.
        command: recorded in ``environment.json``.
        console: where progress goes.
        known: by attack and number of the update, what it has found already with these settings.
        pass_over: run the attacks that apply to all updates and list the others with their reasons.
        left_out: attacks that have failed before, with their reasons: of these only what is known is kept.
        is_replayed: the rows were shown to reproduce their updates when these were captured.
        table: the table whose training rows they are, where it is known.
        is_whole: these are all updates of whole epochs.

    Returns:
        The content of ``results.json``.

    Raises:
        UsageError: an unknown attack, rows that are not an update's, an update an attack cannot serve, or a folder
            that holds another run; before any work.
    """
    if config.workers != 1 or config.engine != "local":
        raise UsageError(
            f"updates in memory are attacked by one process: workers must be 1 and engine local, got {config.workers} "
            f"and {config.engine}"
        )
    named = {f"{i:03d}-{_digest((update, truth))}": (update, truth) for i, (update, truth) in enumerate(observed)}
    for update, truth in named.values():
        if truth is not None and not is_replayed:
            require_replay(update, truth)
    attacked = {name: set(known[name]) if known and name in known else set() for name in left_out or {}}
    origin, units = folder / CAPTURES, _units(config, named, attacked)

    def when_open() -> None:
        gone = dropped(folder)
        held = _held(origin) if gone is None else set(gone)
        if held - set(named):
            raise UsageError(f"{folder} holds a run on other updates; choose another folder")
        if gone is None:
            _keep(named, origin, bool(config.redact))
            _keep_known(units, known or {}, folder, kept_cells(config.redact, config.raw_csv))

    with private_files():  # a callback calls this in a process of the user's
        ready = check_units(config, units, pass_over, left_out, table, is_whole)
        return run_in_folder(config, ready, folder, command, console, origin, when_open)


def _units(config: AuditConfig, named: Mapping[str, Observed], attacked: Mapping[str, Collection[int]]) -> list[Unit]:
    """Every attack on every update; of those in ``attacked`` on the updates of these numbers alone."""
    captures = {name: (observed[0], partial(returned, observed)) for name, observed in named.items()}
    units = units_on_captures(config, captures)
    return [
        unit for unit in units if unit.facts["batch_index"] in attacked.get(unit.attack, (unit.facts["batch_index"],))
    ]


def _held(root: Path) -> set[str]:
    return {path.parent.parent.name for path in root.glob("*/*/observation")}


def _keep(named: Mapping[str, Observed], root: Path, redact: bool) -> None:
    """Save those updates that are not below ``root`` yet."""
    for name in sorted(set(named) - _held(root)):
        update, truth = named[name]
        if redact:
            save_capture(root / name, replace(update, marginals=None))
        else:
            save_capture(root / name, update, truth)


def _keep_known(
    units: Sequence[Unit], known: Mapping[str, Mapping[int, Reconstruction]], folder: Path, kept: Kept
) -> None:
    present = finished_files(folder)
    for unit in units:
        found = known.get(unit.attack, {}).get(unit.facts["batch_index"])
        if found is not None and unit_file(folder, unit.id).name not in present:
            keep_result(unit, unit.observe(), found, folder, kept, {})


def _digest(observed: Observed) -> str:
    """Digest of all that the attacker sees, and of the truth that scores are against."""
    digest = hashlib.sha256()
    for part in observed:
        _add(digest, part)
    return digest.hexdigest()[:DIGEST_LENGTH]


def _add(digest: Any, value: Any) -> None:
    """Add a value to a digest: tensors by their numbers, mappings in any order, records field by field."""
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().double().contiguous().numpy().tobytes())  # numpy has no bfloat16
    elif is_dataclass(value):
        _add(digest, {one.name: getattr(value, one.name) for one in fields(value)})
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _add(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(f"{len(value)}".encode())
        for one in value:
            _add(digest, one)
    else:
        digest.update(repr(value).encode())
