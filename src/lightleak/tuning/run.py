"""``lightleak tune``: open or join the study in a folder, run trials, compare the best with the defaults, report."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.table import Table as Grid

from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import worker_devices
from lightleak.experiments.environment import write_environment
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.folder import opened_folder
from lightleak.experiments.redaction import ATTACKABLE, redact_run
from lightleak.experiments.settings import at_least, at_most, read_settings, read_yaml
from lightleak.experiments.unit import without_nan, write_whole
from lightleak.report import build_report
from lightleak.tuning.config import SECTION, TuneConfig
from lightleak.tuning.held_out import HELD_OUT, compare, held_out_tree, words_of
from lightleak.tuning.results import best_and_front, default_trial, tree_of, trial_row, write_best, write_study
from lightleak.tuning.samplers import build_pruner, build_sampler
from lightleak.tuning.study import SharedStudy, quiet_optuna
from lightleak.tuning.trial import check_trial, load_trial, trial_tree
from lightleak.tuning.worker import VISIBLE, work, work_in_processes

CONFIG_FILE = "config.yaml"
BEST_FILE = "best.yaml"


def run_tune(
    config: TuneConfig, folder: Path, workers: int = 0, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run or resume a study, alone or with other processes on the same folder; return its ``results.json``.

    Args:
        config: the study.
        folder: the study's folder; created, readable by its owner only. One that holds the same study is joined.
        workers: trials at once on this machine, with a core or a GPU each; 0 takes one per GPU, or per core.
        command: recorded in ``environment.json``.
        console: where progress goes.

    Raises:
        UsageError: the folder holds something else, or the default trial cannot be run; before any work.
        UnsupportedError: Optuna is not installed.
        KeyboardInterrupt: finished trials are kept and written.
    """
    at_least("--workers", workers, 0)
    at_most("--workers", workers)
    console = console or Console()
    quiet_optuna()
    tree = trial_tree(config, config.space.values(config.space.defaults()))
    device = resolve_device(str(tree.get("device", "auto")))
    checked = check_trial(config, tree)  # before a folder is created
    build_sampler(config.study.sampler, config.study.seed, len(config.study.objectives))
    build_pruner(config.study.pruner, len(config.study.objectives))
    with open_study_folder(folder, config):
        return _run(config, folder, workers, device, checked, command, console)


def _run(
    config: TuneConfig,
    folder: Path,
    workers: int,
    device: torch.device,
    checked: Any,
    command: Sequence[str],
    console: Console,
) -> dict[str, Any]:
    write_environment(folder, device, command)
    study = SharedStudy(config, folder)
    words = words_of(checked, prepare_experiment(checked) if isinstance(checked, AuditConfig) else None)
    ended = {trial.number for trial in study.trials if trial.state.is_finished()}
    report_ended, held_out = partial(_print_ended, study, console, ended), None
    try:
        lanes = worker_devices(device, workers)[: config.study.trials]
        if len(lanes) == 1 and device.type == "cpu":
            work(config, folder, report_ended)
        else:
            work_in_processes(config, folder, [_visible(lane) for lane in lanes], report_ended)
        held_out = _hold_out(study, len(lanes))
    finally:
        # Also after an interruption: the report then shows what is there.
        results = write_study(study, held_out, words)
        build_report(folder)
    if checked.redact:  # trials and the held-out comparison are separate runs
        for run in {found.parent for name in ATTACKABLE for found in folder.rglob(name)}:
            redact_run(run, checked.redact)
    _summary(results["rows"], held_out, folder, console)
    return results


@contextmanager
def open_study_folder(folder: Path, config: TuneConfig) -> Iterator[None]:
    """Create the folder for its owner only and write what is studied, or check that it is the same study.

    The number of trials may differ: a study can be asked for more.

    Raises:
        UsageError: the folder holds something else.
    """
    saved, asked = folder / CONFIG_FILE, read_yaml(yaml.safe_dump(config.to_dict()))
    with opened_folder(folder, saved, "study", lambda: write_whole(saved, yaml.safe_dump(asked, sort_keys=False))):
        stored = read_settings(saved)
        if SECTION not in stored:
            raise UsageError(f"{folder} holds an audit; choose another --output")
        if _without_trials(stored) != _without_trials(asked):
            raise UsageError(f"{folder} holds another study; choose another --output")
        if stored != asked:
            write_whole(saved, yaml.safe_dump(asked, sort_keys=False))
        yield


def _visible(lane: torch.device) -> str | None:
    """The GPU of a worker, as ``CUDA_VISIBLE_DEVICES`` names it; None for a core."""
    if lane.type != "cuda":
        return None
    known = os.environ.get(VISIBLE)
    return known.split(",")[lane.index or 0] if known else str(lane.index or 0)


def _hold_out(study: SharedStudy, workers: int) -> dict[str, Any] | None:
    """Write ``best.yaml`` and compare the best trial with the default on held-out data; once for all processes."""
    best, _ = best_and_front(study)
    if best is None:
        return None
    settings = study.config.study
    held_out = study.folder / HELD_OUT
    tree = {**held_out_tree(tree_of(study, best), settings.held_out), "workers": 0}
    write_best(study.folder / BEST_FILE, load_trial(tree, held_out / f"trial-{best.number}.yaml"))
    default = default_trial(study)
    if default is None or default.number == best.number or not settings.held_out:
        return None
    file = held_out / f"{default.number}-{best.number}.json"

    def measure() -> None:
        pair = {trial.number: tree_of(study, trial) for trial in (default, best)}
        found = compare(settings.objectives[0], pair, settings.held_out, held_out, workers)
        write_whole(file, json.dumps(without_nan(found)))

    study.claims.once("held-out", file.is_file, measure)
    compared: dict[str, Any] | None = json.loads(file.read_text())
    return compared


def _print_ended(study: SharedStudy, console: Console, printed: set[int]) -> None:
    """Print a line for every trial that has ended since the last call."""
    for trial in study.trials:
        if trial.number in printed or not trial.state.is_finished():
            continue
        printed.add(trial.number)
        row = trial_row(study, trial)
        values = ", ".join(f"{name} {value:.4g}" for name, value in (row["values"] or {}).items())
        outcome = values or row["error"] or ("its process died" if row["state"] == "failed" else "stopped early")
        chosen = ", ".join(f"{key} {_short(value)}" for key, value in row["parameters"].items())
        default = " (the defaults)" if row["is_default"] else ""
        line = f"trial {row['trial']}{default}: {outcome}  [{chosen}]"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _summary(
    rows: Sequence[Mapping[str, Any]], held_out: Mapping[str, Any] | None, folder: Path, console: Console
) -> None:
    """Print the chosen settings and their values.

    Raises:
        LightLeakError: no trial is complete.
    """
    chosen = next((row for row in rows if row["is_best"] or row["is_knee"]), None)
    if chosen is None:
        reason = next((row["error"] for row in rows if row["error"]), "every trial was stopped or died")
        raise LightLeakError(f"no trial is complete: {reason}")
    default = next((row for row in rows if row["is_default"] and row["values"]), None)
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("setting", "default", f"{'best' if chosen['is_best'] else 'knee'} (trial {chosen['trial']})"):
        grid.add_column(name)
    for key, value in chosen["parameters"].items():
        grid.add_row(key, "" if default is None else _short(default["parameters"].get(key, "")), _short(value))
    for name, value in chosen["values"].items():
        grid.add_row(f"validation {name}", "" if default is None else f"{default['values'][name]:.4g}", f"{value:.4g}")
    console.print(grid, highlight=False)
    if held_out is not None:
        gain = held_out["difference"]
        console.print(
            f"held out ({held_out['words']}): {held_out['metric']} {held_out['default']['mean']:.4g} by default, "
            f"{held_out['best']['mean']:.4g} tuned; difference {gain['mean']:+.4g} "
            f"(95% interval {gain['low']:+.4g} to {gain['high']:+.4g})",
            soft_wrap=True,
            highlight=False,
        )
    console.print(f"best config: {folder / BEST_FILE}", soft_wrap=True, highlight=False)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _without_trials(tree: dict[str, Any]) -> dict[str, Any]:
    return {**tree, SECTION: {name: value for name, value in tree[SECTION].items() if name != "trials"}}
