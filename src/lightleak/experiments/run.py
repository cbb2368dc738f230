"""Runs of every kind of audit: begun or resumed, stage by stage, into one folder with results and report."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.core.console import SteadyConsole
from lightleak.core.errors import UsageError
from lightleak.core.private_files import private_files
from lightleak.core.ranks import detect_ranks
from lightleak.core.records import to_json
from lightleak.core.stored import read_json, write_json, write_whole
from lightleak.core.yaml_text import yaml_of
from lightleak.experiments.campaign import rows_by_unit, run_packs
from lightleak.experiments.engine import Engine, open_engine
from lightleak.experiments.environment import write_environment
from lightleak.experiments.folder import opened_folder, require_reachable
from lightleak.experiments.kind import Ready
from lightleak.experiments.load import kind_of, load_config
from lightleak.experiments.observed import named_captures
from lightleak.experiments.redaction import dropped, redact_run
from lightleak.experiments.results import RESULTS_FILE, write_results
from lightleak.experiments.terminal import print_results
from lightleak.report import build_report
from lightleak.report.read import OFFLINE_FILE

CONFIG_FILE = "config.yaml"

INPUTS_FILE = "inputs.json"
"""Digests of the files that a config names: a run is resumed on the same table, schema and captures alone."""

PLACE = ("engine", "workers", "ray_address", "gpus_per_pack")
"""Settings that say where a run works, not what it computes: a resumed run may change them."""


def run_audit(
    config: Any, folder: Path, command: Sequence[str] = (), console: Console | None = None, pass_over: bool = False
) -> dict[str, Any]:
    """Run an audit of any kind, or what is left of one, and return the content of its ``results.json``.

    Where torchrun or srun started several processes, the first runs the audit; the others take part in the training of
    the target where it asks for several devices, and return an empty mapping.

    Args:
        config: the experiment.
        folder: the run folder; created, readable by its owner only. A folder that holds a run of the same config is
            resumed.
        command: recorded in ``environment.json``.
        console: where progress goes.
        pass_over: leave attacks out that do not apply and list them with their reasons; otherwise they are errors.

    Raises:
        UsageError: the folder holds another run or is in use, or the config cannot be served; before any work.
        PackError: packs failed; all others have run.
        KeyboardInterrupt: what is finished is kept and written.
    """
    kind, console = kind_of(config), console or SteadyConsole()
    checked = kind.check(config, pass_over)
    if not detect_ranks().leads:
        kind.take_part(checked, folder)
        return {}
    if (others := detect_ranks().world - 1) > 0:
        console.print(
            f"the launcher's {others} other processes take part in a training on several devices alone; --engine ray "
            "runs attacks on several machines",
            soft_wrap=True,
        )
    ready = Ready(partial(kind.stages, checked, console=console), left_out=checked.left_out)
    return run_in_folder(config, ready, folder, command, console)


def attack_captures(
    config: Any, root: Path, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run the config's attacks on every capture below ``root`` and write a run folder; nothing is trained.

    Without truth the rows carry no accuracy, only what an attacker has: the result and how certain it is. A folder is
    resumed, as for `run_audit`.

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
    return run_in_folder(config, kind_of(config).captured(config, root), folder, command, console, root)


def run_in_folder(
    config: Any,
    ready: Ready,
    folder: Path,
    command: Sequence[str] = (),
    console: Console | None = None,
    capture: Path | None = None,
    when_open: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Run what has been checked into a folder, redact and print it, and return the content of ``results.json``.

    Args:
        config: the experiment.
        ready: its work.
        folder: the run folder.
        command: recorded in ``environment.json``.
        console: where progress goes.
        capture: see `open_run_folder`.
        when_open: called when the folder is open.
    """
    kind, console = kind_of(config), console or SteadyConsole()
    for note in ready.notes:
        console.print(note, soft_wrap=True)
    with open_engine(config) as engine, open_run_folder(folder, config, capture):
        when_open()
        if dropped(folder) is None:
            write_environment(folder, engine.device, command)
            results = run_stages(config, ready, folder, engine, console)
        else:  # it is finished: what its stages need is gone
            results = read_json(folder / RESULTS_FILE)
        redact_run(folder, config.redact, kind.private)
    print_results(kind.tables(results), results, console)
    return results


def run_stages(config: Any, ready: Ready, folder: Path, engine: Engine, console: Console) -> dict[str, Any]:
    """Run the stages and return the content of ``results.json``; what is finished is written however they end."""
    kind, facts = kind_of(config), dict[str, Mapping[str, Any]]()
    has_begun = False
    try:
        for stage in ready.stages(folder, engine):
            has_begun = True
            if stage.has_rows:
                facts |= {id: pack.facts.get(id, {}) for pack in stage.packs for id in pack.ids}
            run_packs(stage.packs, folder, engine, stage.noun, console.quiet)
    finally:
        if has_begun:
            rows = kind.rows([{**row, **to_json(facts[id])} for id, row in rows_by_unit(facts, folder)])
            results = write_results(folder, rows, kind.keys, kind.per, ready.left_out, kind.findings(folder))
            kind.leave(folder, rows)
            build_report(folder, redact=bool(config.redact))
    return results


def resumed_config(folder: Path, changes: Mapping[str, Any] | None = None) -> Any:
    """Return the config of the audit in ``folder``.

    Args:
        folder: the run folder.
        changes: settings of `PLACE` that are changed.

    Raises:
        UsageError: the folder holds no audit, or another setting is to be changed.
    """
    if fixed := [name for name in changes or {} if name not in PLACE]:
        allowed = ", ".join(f"--{name.replace('_', '-')}" for name in PLACE)
        raise UsageError(
            f"--resume takes its settings from the run folder; remove '--{fixed[0]}' (only {allowed} may change)"
        )
    require_reachable(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise UsageError(f"nothing to resume in {folder}: it holds no {CONFIG_FILE}; name the folder of a run")
    if (folder / OFFLINE_FILE).is_file():
        raise UsageError(f"{folder} was made by `lightleak attack`; to finish it, run the same command again")
    return load_config(folder / CONFIG_FILE, changes)


@contextmanager
def open_run_folder(folder: Path, config: Any, capture: Path | None = None) -> Iterator[None]:
    """Within the block this process alone uses the folder, which holds a run of this config.

    Args:
        folder: the run folder; created, readable by its owner only.
        config: the experiment.
        capture: the captures that are attacked offline; ``None`` for an audit, which makes its own.

    Raises:
        UsageError: the folder holds something else, or another process uses it.
    """
    saved, origin = folder / CONFIG_FILE, folder / OFFLINE_FILE
    read, given = "" if capture is None else str(capture.resolve()), input_digests(folder, config, capture)

    def begin() -> None:
        if capture is not None:
            write_json(origin, {"capture": read})
        write_whole(saved, yaml_of(config.to_dict()))  # last: with it the folder is a run

    def require_same() -> None:
        before = read_json(origin)["capture"] if origin.is_file() else ""
        if before != read:
            found = f"an attack on {before}" if before else "an audit"
            raise UsageError(f"{folder} holds {found}; choose another --output")
        if _without_place(load_config(saved).to_dict()) != _without_place(config.to_dict()):
            raise UsageError(f"{folder} holds a run of another config; choose another --output")
        require_same_inputs(folder, given)

    require_reachable(folder)
    if saved.is_file():
        with suppress(ValueError):  # what is damaged is named below
            require_same()  # before anything is written there
    with opened_folder(folder, saved, "run", begin, [origin]):
        require_same()
        keep_inputs(folder, given)
        yield


def require_same_inputs(folder: Path, given: Mapping[str, str]) -> None:
    """Raise `UsageError` where what a run reads has changed since an earlier command kept its digest."""
    known = _known_inputs(folder)
    if changed := [name for name, digest in given.items() if known.get(name, digest) != digest]:
        raise UsageError(f"{changed[0]} has changed since {folder} was begun; choose another --output")


def keep_inputs(folder: Path, given: Mapping[str, str]) -> None:
    """Keep the digests of what a run reads, with those of earlier commands: captures may be added."""
    if given:
        with private_files():
            write_json(folder / INPUTS_FILE, {**_known_inputs(folder), **given})


def _known_inputs(folder: Path) -> dict[str, str]:
    """Digests of earlier commands; earlier versions wrote none."""
    file = folder / INPUTS_FILE
    return read_json(file) if file.is_file() else {}


def input_digests(folder: Path, config: Any, capture: Path | None = None) -> dict[str, str]:
    """Return the digests of what a run in ``folder`` reads, by what it is called in errors.

    That is its own table and schema, or every capture, but for those that the folder itself keeps.
    """
    found: dict[str, list[Path]] = {}
    if capture is None:
        return table_digests({name: getattr(config.data, name, None) for name in ("table", "schema")})
    if folder.resolve() not in capture.resolve().parents:
        for name, place in named_captures(capture).items():
            found[f"capture {name}"] = sorted(file for file in place.rglob("*") if file.is_file())
    return _digests(found)


def table_digests(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the files that ``table`` and ``schema`` of a section ``data`` name."""
    files = {name: file for name in ("table", "schema") if (file := data.get(name)) is not None}
    return _digests({f"data.{name} {file}": [Path(file)] for name, file in files.items()})


def _digests(found: Mapping[str, list[Path]]) -> dict[str, str]:
    return {name: _digest(paths) for name, paths in found.items() if all(path.is_file() for path in paths)}


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _without_place(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in PLACE}
