"""``kind: updates``: train the target with capture, attack captured and fresh updates."""

import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.callbacks.capture_store import is_whole, list_captures
from lightleak.core.claims import Claims
from lightleak.core.errors import UsageError
from lightleak.core.stored import set_aside
from lightleak.data.image_scale import is_image_state
from lightleak.experiments.attack_settings import check_attacks, require_some
from lightleak.experiments.campaign import CLAIMS, Plan, update_packs
from lightleak.experiments.captures import named_captures
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.kind import Captured, Checked, Kind, Stage
from lightleak.experiments.kinds.updates.captures import load_capture, recall_update
from lightleak.experiments.kinds.updates.check import check_served
from lightleak.experiments.kinds.updates.plan import audit_units, plan_units, units_on_captures
from lightleak.experiments.kinds.updates.run_plan import plan_updates
from lightleak.experiments.kinds.updates.summary import update_tables
from lightleak.experiments.probe import RunPlan
from lightleak.experiments.terminal import Lines
from lightleak.experiments.training import TRAINING_FILE, train, trains_together
from lightleak.experiments.unit import Unit, finished_files, kept_cells, unit_file
from lightleak.targets.own import trust_network


class UpdatesKind(Kind[AuditConfig, Experiment]):
    """Federated learning: what clients send."""

    name = "updates"
    config = AuditConfig

    def check(self, config: AuditConfig, pass_over: bool = False) -> Checked[AuditConfig, Experiment]:
        """See `Kind.check`."""
        check_attacks(config.attacks)
        experiment = prepare_experiment(config)
        left_out = check_served(config, experiment, pass_over)
        attacks = {name: options for name, options in config.attacks.items() if name not in left_out}
        return Checked(replace(config, attacks=attacks), experiment, left_out)

    def stages(
        self, checked: Checked[AuditConfig, Experiment], folder: Path, device: torch.device, console: Console
    ) -> Iterator[Stage]:
        """See `Kind.stages`: the training, and then all attacks."""
        config, experiment = checked.config, checked.world
        _set_aside_captures(folder)
        _train_once(config, experiment, folder, console)
        units = plan_units(config, experiment, folder)
        present = finished_files(folder)
        for unit in units:
            if unit.facts["source"] == "training" and unit_file(folder, unit.id).name not in present:
                unit.observe()  # a capture that its batch does not reproduce is refused before any attack
        yield attack_stage(units, partial(audit_units, config, folder), config, folder, device)

    def captured(self, config: AuditConfig, root: Path, pass_over: bool = False) -> Captured:
        """See `Kind.captured`."""
        return check_units(config, partial(stored_units, config, root), pass_over)

    def plan(self, checked: Checked[AuditConfig, Experiment], device: torch.device) -> RunPlan:
        """See `Kind.plan`."""
        return plan_updates(checked.config, checked.world, device)

    def tables(self, results: Mapping[str, Any]) -> Iterator[Lines]:
        """See `Kind.tables`."""
        return update_tables(results)


def attack_stage(units: list[Unit], plan: Plan, config: AuditConfig, folder: Path, device: torch.device) -> Stage:
    """The stage that runs all units; ``plan`` makes them in another process."""
    kept = kept_cells(config.redact, config.raw_csv)
    return Stage(
        update_packs(lambda: units, kept, folder, device), "attacks", partial(update_packs, plan, kept, folder)
    )


def check_units(
    config: AuditConfig, plan: Plan, pass_over: bool = False, left_out: Mapping[str, str] | None = None
) -> Captured:
    """Check every attack on every update of a plan whose updates exist already.

    Args:
        config: the attacks.
        plan: makes the units.
        pass_over: leave an attack out of all updates that refuses one.
        left_out: attacks that were left out before the plan was made, with their reasons.

    Raises:
        UsageError: an unknown attack, a truth that is not the update's, or an update an attack cannot serve.
    """
    check_attacks(config.attacks)
    units = plan()
    refused: dict[str, UsageError] = {}
    for unit in units:
        update, _ = unit.observe()
        try:
            ATTACKS.get(unit.attack)(**unit.options).check(update)
        except UsageError as error:
            if not pass_over:
                raise
            refused.setdefault(unit.attack, error)
    left_out = {**(left_out or {}), **require_some(config.attacks, refused)}
    served = partial(_without, plan, frozenset(refused))
    units = served()
    noised = {unit.facts["batch_index"] for unit in units if unit.facts["defense"] not in ("none", "clipped")}
    notes = [f"{len(noised)} defended updates cannot be checked against their rows"] if noised else []
    return Captured(partial(_stages_of, units, served, config), notes, left_out)


def _stages_of(units: list[Unit], plan: Plan, config: AuditConfig, folder: Path, device: torch.device) -> list[Stage]:
    return [attack_stage(units, plan, config, folder, device)]


def _without(plan: Plan, attacks: Collection[str]) -> list[Unit]:
    return [unit for unit in plan() if unit.attack not in attacks]


def stored_units(config: AuditConfig, root: Path) -> list[Unit]:
    """Every attack of the config on every capture below ``root``."""
    trust_network(config.target.network)  # the config is the user's; what a capture names is not trusted
    captures = {}
    for name, path in named_captures(root).items():
        update = recall_update(path)
        if is_image_state(update.encoder):
            raise UsageError(
                f"{path} holds an update on images; attack it from Python, ATTACKS.get(name)().run(update)"
            )
        captures[name] = update, partial(load_capture, path)
    return units_on_captures(config, captures)


def _set_aside_captures(folder: Path) -> None:
    """Where a capture is damaged, have the training repeated, which captures the same update again."""
    root = folder / "captures"
    damaged = [capture for capture in (list_captures(root) if root.is_dir() else []) if not is_whole(capture)]
    for capture in damaged:
        set_aside(capture, "it is damaged; the training is repeated")
    if damaged:
        (folder / TRAINING_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _train_once(config: AuditConfig, experiment: Experiment, folder: Path, console: Console) -> None:
    """Train where that is not done yet: all ranks together, or one while the others wait."""
    is_trained = (folder / TRAINING_FILE).is_file
    if config.rounds == 0 or is_trained():
        return
    if trains_together(config):
        train(config, experiment, folder, console)
    else:
        Claims(folder / CLAIMS).once("training", is_trained, partial(train, config, experiment, folder, console))
