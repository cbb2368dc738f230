"""One trial: an audit with the searched settings filled in, run as far as the pruner lets it, and its values."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.stored import set_aside
from lightleak.experiments.campaign import finished_rows, run_units
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.check import check_served
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.load import kind_of, load_config
from lightleak.experiments.run import open_run_folder, run_audit
from lightleak.experiments.settings import named_settings, plain, read_settings
from lightleak.experiments.training import TRAINING_FILE, train, trains_together
from lightleak.experiments.unit import Unit, write_whole
from lightleak.targets.trainer import quiet_lightning
from lightleak.tuning.budget import steps_within, with_steps
from lightleak.tuning.config import StudyConfig, TuneConfig
from lightleak.tuning.objective import BASELINE, LEAKAGE, ObjectiveConfig, of_training
from lightleak.tuning.parameter import MISSING
from lightleak.tuning.pruning import TrialPruning

TRIALS = "trials"
PLACE = ("device", "workers")
"""Settings that say where a trial runs, not what it is."""

Report = Callable[[int, float], None]
"""Told the objective after so many clients; raises `optuna.TrialPruned` where the pruner stops the trial."""


def trial_tree(config: TuneConfig, values: Mapping[str, Any], rows: str = "validation") -> dict[str, Any]:
    """The audit of these values: searches filled in, steps within the budget, clients of the given training rows.

    Args:
        config: the study.
        values: of searched settings, by dotted key.
        rows: see `InitialConfig`; only an audit of updates has fresh clients to draw.
    """
    tree = with_steps(config.space.fill(values), config.study.budget)
    if tree.get("kind", "updates") == "updates":
        initial = tree.get("initial") or {}
        if not isinstance(initial, dict):
            raise UsageError(f"initial must be a mapping of settings, got {initial!r}")
        tree["initial"] = {**initial, "rows": rows}
    return tree


def trial_folder(root: Path, tree: Mapping[str, Any]) -> Path:
    """Where a trial runs: the same for the same settings, so that one which died goes on where it stopped."""
    settings = {name: value for name, value in plain(tree).items() if name not in PLACE}
    text = json.dumps(settings, sort_keys=True, default=str)
    return root / TRIALS / hashlib.sha256(text.encode()).hexdigest()[:12]


def load_trial(tree: Mapping[str, Any], file: Path) -> Any:
    """Write an audit's config to ``file`` and read it as its kind does.

    Raises:
        UsageError: the audit refuses a setting.
    """
    write_whole(file, yaml.safe_dump(plain(tree), sort_keys=False))
    return load_config(file)


def settled(study: StudyConfig, tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The trial's config with the steps that a budget of seconds leaves its attacks.

    They are measured once and kept beside the folder: a trial that is resumed, and the best one's config, take as many
    again.
    """
    file = folder.with_suffix(".yaml")
    if file.is_file():
        try:
            if _without_steps(held := read_settings(file)) == _without_steps(plain(tree)):
                return held
        except UsageError:
            pass
        set_aside(file, "it is not of this trial; it is made again")
    filled: dict[str, Any] = plain(tree)
    if study.budget.seconds is not None:
        config = load_trial(tree, folder.with_suffix(".asked.yaml"))
        filled["attacks"] = named_settings("attacks", filled["attacks"])
        for unit in plan_units(config, prepare_experiment(config), Path(os.devnull)):
            options = filled["attacks"][unit.attack]
            if "steps" not in options and "steps" in ATTACKS.get(unit.attack)().options():
                options["steps"] = steps_within(unit, study.budget.seconds, resolve_device(config.device))
    write_whole(file, yaml.safe_dump(filled, sort_keys=False))
    return filled


def _without_steps(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A trial's config without what a budget decides, and without its place."""
    attacks = named_settings("attacks", tree.get("attacks"))
    bare = {name: {key: one for key, one in options.items() if key != "steps"} for name, options in attacks.items()}
    return {**{name: value for name, value in tree.items() if name not in PLACE}, "attacks": bare}


def check_trial(config: TuneConfig, tree: Mapping[str, Any], file: Path) -> Any:
    """The config of the default trial, after a look at everything that could fail in the middle of a study.

    Raises:
        UsageError: what cannot be served, and why.
    """
    for parameter in config.space.parameters:
        for stored in parameter.stored_choices:
            values = config.space.suggest(_Chosen(config, {parameter.name: stored}))
            load_trial(trial_tree(config, values), file)
    loaded = load_trial(tree, file)
    if not isinstance(loaded, AuditConfig):
        if wrong := [one.metric for one in config.study.objectives if one.is_of_training]:
            raise UsageError(f"study.objectives: {wrong[0]!r} needs an audit of updates, got {loaded.kind}")
        if config.study.pruner.name != "none":
            raise UsageError(f"study.pruner needs an audit of updates, whose trials can stop early; got {loaded.kind}")
        if config.study.budget.is_given:
            raise UsageError(f"study.budget is about attacks on client updates; got an audit of kind {loaded.kind}")
        kind_of(loaded).check(loaded)
        return loaded
    if trains_together(loaded):
        raise UsageError(
            "a study trains each trial on one device and runs trials side by side (--workers); leave "
            "training.trainer.devices and num_nodes out"
        )
    for objective in config.study.objectives:
        _check_objective(objective, loaded)
    if config.study.budget.seconds is not None and not (
        loaded.initial.batches and len(loaded.initial.batch_sizes) == 1
    ):
        raise UsageError(
            "study.budget.seconds is measured on fresh clients of one size; initial.batches must be at least 1 and "
            f"initial.batch_sizes one size, got {loaded.initial.batches} and {list(loaded.initial.batch_sizes)}"
        )
    check_served(loaded, prepare_experiment(loaded))
    return loaded


class _Chosen:
    """Stands in for Optuna's trial: the given values, otherwise defaults, otherwise the least of a range."""

    def __init__(self, config: TuneConfig, given: Mapping[str, Any]) -> None:
        known = {one.name: one.encode(one.default) for one in config.space.parameters if one.default is not MISSING}
        self.values = {**known, **given}

    def suggest_float(self, name: str, low: float, high: float, **_: Any) -> float:
        return float(self.values.get(name, low))

    def suggest_int(self, name: str, low: int, high: int, **_: Any) -> int:
        return int(self.values.get(name, low))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self.values.get(name, choices[0])


def _check_objective(objective: ObjectiveConfig, config: AuditConfig) -> None:
    name, attacks = objective.metric, sorted(config.attacks)
    if objective.is_of_training:
        if not config.rounds:
            raise UsageError(f"study.objectives: {name!r} needs a training; training.epochs is 0")
        return
    attack = objective.where.get("attack")
    if attack is not None and attack not in config.attacks:
        raise UsageError(f"study.objectives: where.attack must be one of {', '.join(attacks)}, got {attack!r}")
    if name == LEAKAGE and BASELINE not in config.attacks:
        raise UsageError(f"study.objectives: {name!r} is measured against {BASELINE!r}, which attacks does not name")
    if attack is None and len(set(attacks) - {BASELINE}) > 1:
        raise UsageError(
            f"study.objectives: {name!r} of which attack? add where: {{attack: NAME}}, one of {', '.join(attacks)}"
        )


def run_trial(
    study: StudyConfig, tree: Mapping[str, Any], folder: Path, report: Report, trial: Any = None
) -> tuple[float, ...]:
    """Run one trial, or what is left of one, and return a value per objective.

    Args:
        study: how it is judged.
        tree: the audit.
        folder: its run folder.
        report: see `Report`.
        trial: Optuna's, which a training reports its epochs to.

    Raises:
        optuna.TrialPruned: the pruner stopped it.
        LightLeakError: the audit cannot be run, or gives no such number.
    """
    config = load_trial({**settled(study, tree, folder), "workers": 1}, folder.with_suffix(".yaml"))
    with quiet_lightning():
        if isinstance(config, AuditConfig):
            rows = _run_horizontal(study, config, folder, report, trial)
        else:
            rows = run_audit(config, folder, (), Console(quiet=True, force_interactive=False))["rows"]
    return tuple(_value(objective, rows, folder) for objective in study.objectives)


def _value(objective: ObjectiveConfig, rows: Sequence[Mapping[str, Any]], folder: Path) -> float:
    value = of_training(objective.metric, folder) if objective.is_of_training else objective.of_rows(rows)
    if value is not None and not math.isfinite(value):
        raise LightLeakError(f"study.objectives: {objective.metric!r} is {value}")
    if value is None:
        there = sorted({name for row in rows for name, held in row.items() if isinstance(held, float)})
        raise UsageError(f"study.objectives: no row has {objective.metric!r} {objective.where}; rows have {there}")
    return value


def _run_horizontal(
    study: StudyConfig, config: AuditConfig, folder: Path, report: Report, trial: Any
) -> list[dict[str, Any]]:
    device, quiet = resolve_device(config.device), Console(quiet=True, force_interactive=False)
    first, several = study.objectives[0], len(study.objectives) > 1
    experiment = prepare_experiment(config)
    open_run_folder(folder, config)
    if config.rounds and not (folder / TRAINING_FILE).is_file():
        prunes = first.is_of_training and not several and trial is not None
        pruning = TrialPruning(trial, first.metric) if prunes else None
        if pruning is None:
            train(config, experiment, folder, quiet)
        else:
            train(config, experiment, folder, quiet, (pruning,), pruning.raise_if_pruned)
    if all(objective.is_of_training for objective in study.objectives):
        return []
    units = judged_units(config, plan_units(config, experiment, folder))
    stages = list(_stages(units, study.report_every if study.pruner.name != "none" else len(units)))
    for stage in stages:
        run_units(lambda stage=stage: stage, folder, device, 1, "nothing", quiet=True)  # type: ignore[misc]
        rows = finished_rows(units, folder)
        value = None if several or first.is_of_training else first.of_rows(rows)
        if value is not None and stage is not stages[-1]:  # nothing is left to be saved there
            report(len({_update(row) for row in rows}), value)
    return rows


def judged_units(config: AuditConfig, units: Sequence[Unit]) -> list[Unit]:
    """The units that a trial is judged by: where there are fresh clients, those alone.

    What is captured in a training comes from all training rows, the held-out clients' among them.
    """
    return [unit for unit in units if not config.initial.batches or unit.facts["source"] == "initial"]


def _update(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    return facts["source"], facts["batch_size"], facts["batch_index"]


def _stages(units: Sequence[Unit], clients: int) -> Iterator[list[Unit]]:
    """Units of so many updates at a time, all attacks on them together."""
    order = sorted({_update(unit.facts) for unit in units})
    for begin in range(0, len(order), clients):
        taken = set(order[begin : begin + clients])
        yield [unit for unit in units if _update(unit.facts) in taken]
