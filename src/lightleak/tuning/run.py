"""``lightleak tune``: run or resume a study on an engine, compare its best trial with the defaults, report."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from lightleak.core.console import SteadyConsole
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.ranks import detect_ranks
from lightleak.core.records import to_json
from lightleak.core.results import TrialRow
from lightleak.core.stored import read_json
from lightleak.core.yaml_text import yaml_of
from lightleak.experiments.campaign import keep
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import SCRATCH, Engine, open_engine
from lightleak.experiments.environment import write_environment
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.folder import opened_folder
from lightleak.experiments.load import parse_config
from lightleak.experiments.pack import Finished
from lightleak.experiments.redaction import ATTACKABLE, redact_run
from lightleak.experiments.run import CONFIG_FILE, PLACE, keep_inputs, require_same_inputs, table_digests
from lightleak.experiments.settings import read_settings, read_yaml, require_limits
from lightleak.experiments.unit import write_whole
from lightleak.report import build_report
from lightleak.tuning.config import SECTION, TuneConfig
from lightleak.tuning.held_out import HELD_OUT, compare, held_out_tree, words_of
from lightleak.tuning.results import tree_of, trial_row, trial_rows, write_study
from lightleak.tuning.study import DEFAULT, Study, served
from lightleak.tuning.trial import TableFiles, TrialPack, check_trial, trial_tree

BEST_FILE = "best.yaml"


def run_tune(
    config: TuneConfig, folder: Path, workers: int = 0, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run or resume a study and return the content of its ``results.json``.

    Args:
        config: the study.
        folder: the study's folder; created, readable by its owner only. One that holds the same study is resumed.
        workers: trials at once, with a core or a GPU each; 0 takes one per GPU, or per core.
        command: recorded in ``environment.json``.
        console: where progress goes.

    Raises:
        UsageError: the folder holds something else or is in use, or the default trial cannot be run; before any work.
        KeyboardInterrupt: finished trials are kept and written.
    """
    require_limits("--workers", workers)
    if not detect_ranks().leads:
        return {}
    console, held_out = console or SteadyConsole(), None
    tree = trial_tree(config, config.space.values(config.space.defaults()))
    checked = check_trial(config, tree)  # before a folder is created
    with open_engine(replace(checked, workers=workers)) as engine, opened_study(folder, config) as study:
        write_environment(folder, engine.device, command)
        words = words_of(checked, prepare_experiment(checked) if isinstance(checked, AuditConfig) else None)
        try:
            run_trials(study, engine, console, TableFiles.read(tree["data"]) if checked.engine == "ray" else None)
            engine.close()
            held_out = _hold_out(study, workers)
        finally:
            # Also after an interruption: the report then shows what is there.
            results = write_study(study, held_out, words)
            build_report(folder)
        if checked.redact:  # trials and the held-out comparison are separate runs
            for run in {found.parent for name in ATTACKABLE for found in folder.rglob(name)}:
                redact_run(run, checked.redact)
        _summary(trial_rows(study), held_out, folder, console)
    return results


@contextmanager
def opened_study(folder: Path, config: TuneConfig) -> Iterator[Study]:
    """Open the study in a folder, which this process alone uses within the block.

    The number of trials and the engine may differ from what the folder holds: a study can be asked for more.

    Raises:
        UsageError: the folder holds something else or a study of another content of the table, or another process uses
            it.
    """
    saved, asked = folder / CONFIG_FILE, read_yaml(yaml_of(config.to_dict()))

    def begin() -> None:
        write_whole(saved, yaml_of(asked))

    with opened_folder(folder, saved, "study", begin):
        stored = read_settings(saved)
        if SECTION not in stored:
            raise UsageError(f"{folder} holds an audit; choose another --output")
        if _what_is_studied(stored) != _what_is_studied(asked):
            raise UsageError(f"{folder} holds another study; choose another --output")
        digests = table_digests(asked["data"])
        require_same_inputs(folder, digests)
        keep_inputs(folder, digests)
        if stored != asked:
            begin()
        yield Study(config, folder)


def run_trials(study: Study, engine: Engine, console: Console, tables: TableFiles | None = None) -> None:
    """Run the trials that are left, and print each as it ends.

    Args:
        study: where trials come from.
        engine: where they run.
        console: where progress goes.
        tables: the table, where workers do not share this machine's files and storage.

    Raises:
        UsageError: the default trial cannot be judged.
        OSError: a fault of a machine, not of the settings; rerun to resume.
    """
    printed = {trial.number for trial in study.trials if trial.state.is_finished()}
    with served(study.storage, _own_address()) if tables is not None else nullcontext(study.address) as storage:
        try:
            for finished in engine.run(_packs(study, storage, tables), study.folder):
                _end(study, finished)
                _print_ended(study, console, printed)
        except BaseException:  # this process ends in order: only one that dies counts against its trials
            study.forgive()
            raise
    _print_ended(study, console, printed)
    shutil.rmtree(study.folder / SCRATCH, ignore_errors=True)


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _packs(study: Study, storage: str, tables: TableFiles | None) -> Iterator[TrialPack]:
    while (asked := study.ask()) is not None:
        trial, values = asked
        try:
            tree = trial_tree(study.config, values)
        except UsageError as error:
            _fail(study, trial.number, error)
        else:
            yield TrialPack(trial.number, trial._trial_id, study.config.study, study.name, storage, tree, tables)


def _end(study: Study, finished: Finished) -> None:
    """Record the end of a trial."""
    assert isinstance(finished.pack, TrialPack)
    if isinstance(finished.error, OSError):
        raise finished.error  # a fault of a machine, not of the settings: the trial runs again when it is resumed
    if finished.error is not None:
        _fail(study, finished.pack.number, finished.error)
        return
    keep(finished, study.folder)
    study.tell(finished.pack.number, json.loads(finished.files[finished.pack.values_file]))


def _fail(study: Study, number: int, error: Exception) -> None:
    study.tell_failed(number, f"{type(error).__name__}: {error}")
    is_default = bool(study.trials[number].user_attrs.get(DEFAULT))
    if (is_default and isinstance(error, UsageError)) or "CUDA error" in str(error):
        raise error  # the study cannot be run


def _hold_out(study: Study, workers: int) -> dict[str, Any] | str | None:
    """Write ``best.yaml`` and compare the best trial with the default on held-out data; a text where that fails."""
    best, _ = study.best_and_front()
    if best is None:
        return None
    settings, folder = study.config.study, study.folder / HELD_OUT
    config = parse_config({**held_out_tree(tree_of(study, best), settings.held_out), "workers": 0})
    write_whole(study.folder / BEST_FILE, yaml_of(config.to_dict()))
    default = study.default_trial
    if default is None or default.number == best.number or not settings.held_out:
        return None
    file = folder / f"{default.number}-{best.number}.json"
    if not file.is_file() or read_json(file) is None:  # null: earlier versions wrote it where nothing could be paired
        pair = {trial.number: tree_of(study, trial) for trial in (default, best)}
        found = compare(settings.objectives[0], pair, settings.held_out, folder, workers)
        if isinstance(found, str):
            return found
        write_whole(file, json.dumps(to_json(found)))
    return dict(read_json(file))


def _print_ended(study: Study, console: Console, printed: set[int]) -> None:
    """Print a line for every trial that has ended since the last call."""
    for trial in study.trials:
        if trial.number in printed or not trial.state.is_finished():
            continue
        printed.add(trial.number)
        row = trial_row(study, trial)
        values = ", ".join(f"{name} {value:.4g}" for name, value in row.values.items())
        chosen = ", ".join(f"{key} {_short(value)}" for key, value in row.parameters.items())
        default = " (the defaults)" if row.is_default else ""
        line = f"trial {row.trial}{default}: {values or row.error or 'stopped early'}  [{chosen}]"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _summary(
    rows: Sequence[TrialRow], held_out: Mapping[str, Any] | str | None, folder: Path, console: Console
) -> None:
    """Print the chosen settings and their values.

    Raises:
        LightLeakError: no trial is complete.
    """
    chosen = next((row for row in rows if row.is_best or row.is_knee), None)
    if chosen is None:
        reason = next((row.error for row in rows if row.error), "every trial was stopped or died")
        raise LightLeakError(f"no trial is complete: {reason}")
    default = next((row for row in rows if row.is_default and row.values), None)
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("setting", "default", f"{'best' if chosen.is_best else 'knee'} (trial {chosen.trial})"):
        grid.add_column(name)
    for key, value in chosen.parameters.items():
        grid.add_row(key, "" if default is None else _short(default.parameters.get(key, "")), _short(value))
    for name, value in chosen.values.items():
        grid.add_row(f"validation {name}", "" if default is None else _short(default.values[name]), _short(value))
    console.print(grid, highlight=False)
    if isinstance(held_out, str):
        console.print(f"no comparison on held-out data: {held_out}", soft_wrap=True, markup=False, highlight=False)
    elif held_out is not None:
        gain = held_out["difference"]
        line = (
            f"held out ({held_out['words']}): {held_out['metric']} {held_out['default']['mean']:.4g} by default, "
            f"{held_out['best']['mean']:.4g} tuned; difference {gain['mean']:+.4g} "
            f"(95% interval {gain['low']:+.4g} to {gain['high']:+.4g})"
        )
        console.print(line, soft_wrap=True, highlight=False)
    console.print(f"best config: {folder / BEST_FILE}", soft_wrap=True, highlight=False)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _what_is_studied(tree: Mapping[str, Any]) -> dict[str, Any]:
    section = {name: value for name, value in tree[SECTION].items() if name != "trials"}
    return {name: value for name, value in tree.items() if name not in PLACE} | {SECTION: section}
