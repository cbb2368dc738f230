"""One trial: an audit with the searched settings filled in, run as a pack until it ends or is pruned."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import optuna
import torch

from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.core.results import row_kinds
from lightleak.data.sources import dataset_folder
from lightleak.experiments.campaign import finished_rows, run_units
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import LocalEngine
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.kinds.updates.plan import check_served, plan_units
from lightleak.experiments.load import kind_of, parse_config
from lightleak.experiments.pack import Files, Pack, Report, Shared, contents
from lightleak.experiments.progress import silent
from lightleak.experiments.run import PLACE, open_run_folder, run_audit
from lightleak.experiments.settings import plain
from lightleak.experiments.training import TRAINING_FILE, train, trains_together
from lightleak.experiments.unit import Unit, write_whole
from lightleak.targets.trainer import quiet_lightning
from lightleak.tuning.budget import with_measured_steps, with_steps
from lightleak.tuning.config import StudyConfig, TuneConfig
from lightleak.tuning.objective import VALIDATION
from lightleak.tuning.pruning import JudgedTrial, Reporting, TrialPruning
from lightleak.tuning.samplers import build_pruner
from lightleak.tuning.study import DEFAULT, WORKER, open_storage

TRIALS = "trials"


def trial_tree(config: TuneConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the audit for ``values``: searches filled in, steps within the budget, clients of the validation rows.

    Args:
        config: the study.
        values: of searched settings, by dotted key.
    """
    tree = with_steps(config.space.fill(values), config.study.budget)
    if tree.get("kind", "updates") == "updates":
        initial = tree.get("initial") or {}
        if not isinstance(initial, dict):
            raise UsageError(f"initial must be a mapping of settings, got {initial!r}")
        tree["initial"] = {**initial, "rows": "validation"}
    return tree


def trial_folder(root: Path, tree: Mapping[str, Any]) -> Path:
    """Return the run folder of a trial; it depends on the settings alone, so that an interrupted trial resumes."""
    settings = {name: value for name, value in plain(tree).items() if name not in (*PLACE, "device")}
    text = json.dumps(settings, sort_keys=True, default=str)
    return root / TRIALS / hashlib.sha256(text.encode()).hexdigest()[:12]


def check_trial(config: TuneConfig, tree: Mapping[str, Any]) -> Any:
    """Return the config of the default trial, after checking everything that could fail in the middle of a study.

    Raises:
        UsageError: the study cannot be run.
    """
    for values in config.space.each_choice():
        parse_config(trial_tree(config, values))
    loaded = parse_config(tree)
    if not isinstance(loaded, AuditConfig):
        if wrong := [one.metric for one in config.study.objectives if one.is_of_training]:
            raise UsageError(f"study.objectives: {wrong[0]!r} needs an audit of updates, got {loaded.kind}")
        if config.study.pruner.name != "none":
            raise UsageError(f"study.pruner needs an audit of updates, whose trials can stop early; got {loaded.kind}")
        if config.study.budget.is_given:
            raise UsageError(f"study.budget is about attacks on client updates; got an audit of kind {loaded.kind}")
        for objective in config.study.objectives:
            if (rows := row_kinds().get(loaded.kind)) and objective.metric in rows.ON_TEST_ROWS:
                raise UsageError(
                    f"study.objectives: {objective.metric!r} of an audit of kind {loaded.kind} is of the test rows, "
                    f"which must not choose settings; use a score of an audit of updates such as {VALIDATION}accuracy"
                )
            objective.require(_attacks_of(loaded), is_trained=False)
        kind_of(loaded).check(loaded)
        return loaded
    if trains_together(loaded):
        raise UsageError(
            "a study trains each trial on one device and runs trials side by side (--workers); leave "
            "training.trainer.devices and num_nodes out"
        )
    for objective in config.study.objectives:
        objective.require({name: name for name in loaded.attacks}, bool(loaded.rounds))
    initial = loaded.initial
    if config.study.budget.seconds is not None and not (initial.batches and len(initial.batch_sizes) == 1):
        raise UsageError(
            "study.budget.seconds is measured on fresh clients of one size; initial.batches must be at least 1 and "
            f"initial.batch_sizes one size, got {initial.batches} and {list(initial.batch_sizes)}"
        )
    check_served(loaded, prepare_experiment(loaded))
    return loaded


def _attacks_of(config: Any) -> dict[str, str]:
    """Names of an audit's attacks by label; those of a frontier include guessing and what knows its defenses."""
    if isinstance(config, FrontierConfig):
        return {name: name for point in config.points for name in config.audit_at(point).attacks}
    return {label: options.get("attack", label) for label, options in config.attacks.items()}


def run_trial(
    study: StudyConfig, tree: Mapping[str, Any], folder: Path, trial: Reporting | None = None
) -> tuple[float, ...]:
    """Run or resume one trial and return a value per objective.

    Args:
        study: how it is judged.
        tree: the audit.
        folder: its run folder.
        trial: receives the objective so far, with the number of epochs or clients; ``None`` for a run of its own.

    Raises:
        optuna.TrialPruned: the trial was pruned.
        LightLeakError: the audit cannot be run, or has no value for an objective.
    """
    config = parse_config({**with_measured_steps(study, tree, folder), "workers": 1})
    with quiet_lightning():
        if isinstance(config, AuditConfig):
            with open_run_folder(folder, config):
                rows = _run_audit_of_updates(study, config, folder, trial)
        else:
            rows = run_audit(config, folder, (), silent())["rows"]
    return tuple(objective.of_run(rows, folder) for objective in study.objectives)


def _run_audit_of_updates(
    study: StudyConfig, config: AuditConfig, folder: Path, trial: Reporting | None
) -> list[dict[str, Any]]:
    first, experiment = study.objectives[0], prepare_experiment(config)
    judge = trial if len(study.objectives) == 1 else None
    if config.rounds and not (folder / TRAINING_FILE).is_file():
        if judge is not None and first.is_of_training:
            pruning = TrialPruning(judge, first.metric)
            train(config, experiment, folder, silent(), (pruning,), pruning.raise_if_pruned)
        else:
            train(config, experiment, folder, silent())
    if all(objective.is_of_training for objective in study.objectives):
        return []
    units = judged_units(config, plan_units(config, experiment, folder))
    stages = list(_stages(units, study.report_every if study.pruner.name != "none" else len(units)))
    engine, rows = LocalEngine(resolve_device(config.device)), list[dict[str, Any]]()
    for stage in stages:
        run_units(stage, folder, engine, "nothing", quiet=True)
        rows = finished_rows(units, folder)
        if judge is None or first.is_of_training or stage is stages[-1]:  # after the last stage pruning saves nothing
            continue
        if (value := first.of_rows(rows)) is not None:
            judge.report(value, len({_position(row) for row in rows}))
            if judge.should_prune():
                raise optuna.TrialPruned
    return rows


def judged_units(config: AuditConfig, units: Sequence[Unit]) -> list[Unit]:
    """Return the units that a trial is judged by: where there are fresh clients, only those.

    Captures of a training come from all training rows, including those of the held-out clients.
    """
    return [unit for unit in units if not config.initial.batches or unit.facts["source"] == "initial"]


def _position(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    return facts["source"], facts["batch_size"], facts["batch_index"]


def _stages(units: Sequence[Unit], clients: int) -> Iterator[list[Unit]]:
    """Yield the units of so many updates at a time, all attacks on them together."""
    order = sorted({_position(unit.facts) for unit in units})
    for begin in range(0, len(order), clients):
        taken = set(order[begin : begin + clients])
        yield [unit for unit in units if _position(unit.facts) in taken]


@dataclass(frozen=True)
class TableFiles(Shared):
    """The files of a table, for workers on machines that may not have them.

    Attributes:
        data: the section ``data`` of the config.
        files: their content by name.
    """

    data: Mapping[str, Any]
    files: Files

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "TableFiles":
        """Read the files that a section ``data`` names, or those of its dataset."""
        named = [Path(data[key]) for key in ("table", "schema") if data.get(key)]
        files = {path.name: path.read_bytes() for path in named}
        if "name" in data and (folder := dataset_folder(data["name"], data.get("folder"))).is_dir():
            files |= contents({folder.name: folder})
        return cls(plain(data), files)

    def unpack(self, tree: Mapping[str, Any], place: Path) -> dict[str, Any]:
        """Write the files and return an audit that reads them, if it is an audit of this table."""
        source = {key: tree["data"].get(key) for key in ("name", "table", "schema", "folder")}
        if not self.files or source != {key: self.data.get(key) for key in source}:
            return dict(tree)
        for name, content in self.files.items():
            write_whole(place / name, content)
        found = {key: str(place / Path(source[key]).name) for key in ("table", "schema") if source[key]}
        return {**tree, "data": {**tree["data"], **(found or {"folder": str(place)})}}


@dataclass(frozen=True)
class TrialPack(Pack):
    """A trial of a study.

    Attributes:
        number: of the trial.
        trial_id: its id in the storage.
        study: how it is judged.
        study_name: name of the study in the storage.
        storage: see `lightleak.tuning.study.open_storage`.
        tree: the audit.
        tables: the files of the audit's table, where workers do not share the driver's.
    """

    number: int
    trial_id: int
    study: StudyConfig
    study_name: str
    storage: str
    tree: Mapping[str, Any]
    tables: TableFiles | None = None
    cost: ClassVar[float] = 1.0

    @property
    def ids(self) -> Sequence[str]:
        """The trial."""
        return [f"trial-{self.number}"]

    @property
    def values_file(self) -> str:
        """The file that receives the values; ``null`` where the trial was pruned."""
        return f"{TRIALS}/trial-{self.number}.json"

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """Return the steps that an earlier trial of the same settings measured."""
        steps = trial_folder(folder, self.tree).with_suffix(".json")
        return {str(steps.relative_to(folder)): steps} if steps.is_file() else {}

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Run or resume the trial and write its values."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage, pruner = open_storage(self.storage), build_pruner(self.study.pruner)
        study = optuna.load_study(study_name=self.study_name, storage=storage, pruner=pruner)
        trial = optuna.Trial(study, self.trial_id)
        trial.set_user_attr(WORKER, f"{socket.gethostname()} {os.getpid()}")
        judged = JudgedTrial(trial, spare=bool(trial.user_attrs.get(DEFAULT)))
        values: tuple[float, ...] | None
        with TemporaryDirectory() as place:
            tree = self.tree if self.tables is None else self.tables.unpack(self.tree, Path(place))
            here = {**tree, "device": str(device), "workers": 1, "engine": "local"}
            try:
                values = run_trial(self.study, here, trial_folder(folder, self.tree), judged)
            except optuna.TrialPruned:
                values = None
        write_whole(folder / self.values_file, json.dumps(values))
