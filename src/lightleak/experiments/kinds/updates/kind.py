"""``kind: updates``: train the target with capture, attack captured and fresh updates."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lightleak.callbacks.capture_store import is_whole, list_captures
from lightleak.core.errors import UsageError
from lightleak.core.stored import set_aside
from lightleak.data.prepared import PreparedTable
from lightleak.experiments.attack_settings import check_attack, check_attacks, require_some
from lightleak.experiments.campaign import update_packs
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import Engine
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.kind import Checked, Kind, Ready, Stage
from lightleak.experiments.kinds.updates.people import (
    captured_people,
    read_summary,
    require_ids,
    set_aside_without_people,
    write_people,
)
from lightleak.experiments.kinds.updates.plan import check_served, plan_units, stored_units
from lightleak.experiments.kinds.updates.run_plan import plan_updates
from lightleak.experiments.kinds.updates.summary import update_tables
from lightleak.experiments.probe import RunPlan
from lightleak.experiments.progress import silent
from lightleak.experiments.terminal import Lines
from lightleak.experiments.training import TRAINING_FILE, train, trains_together
from lightleak.experiments.unit import PEOPLE, Unit, finished_files, kept_cells, unit_file
from lightleak.metrics.people.population import Population

CHECKED_AT_ONCE = 64
"""Captures whose rows are compared with the table together."""


class UpdatesKind(Kind[AuditConfig, Experiment]):
    """Federated learning: what clients send."""

    name = "updates"
    config = AuditConfig
    private = (PEOPLE,)

    def check(self, config: AuditConfig, pass_over: bool = False) -> Checked[AuditConfig, Experiment]:
        """See `Kind.check`."""
        check_attacks(config.attacks)
        if unknown := [name for name in config.capture.sample if name not in config.attacks]:
            raise UsageError(f"capture.sample names {unknown[0]!r}, which is not among attacks: {list(config.attacks)}")
        experiment = prepare_experiment(config)
        left_out = check_served(config, experiment, pass_over)
        attacks = {name: options for name, options in config.attacks.items() if name not in left_out}
        return Checked(replace(config, attacks=attacks), experiment, left_out)

    def stages(
        self, checked: Checked[AuditConfig, Experiment], folder: Path, engine: Engine, console: Console
    ) -> Iterator[Stage]:
        """See `Kind.stages`: the training, and then all attacks."""
        config, experiment = checked.config, checked.world
        _set_aside_captures(folder)
        if config.rounds and not (folder / TRAINING_FILE).is_file():
            if config.engine == "ray":
                from lightleak.experiments.ray_training import train_on_ray

                train_on_ray(config, experiment, folder, engine)
            else:
                train(config, experiment, folder, console)
        units = plan_units(config, experiment, folder)
        set_aside_without_people(config, units, folder)
        present = finished_files(folder)
        captured = [one for one in units if one.facts["source"] == "training"]
        ahead = [one for one in captured if unit_file(folder, one.id).name not in present]
        for start in range(0, len(ahead), CHECKED_AT_ONCE):
            # A capture that its batch does not reproduce is refused before any attack.
            some = [(unit, unit.observe()[1]) for unit in ahead[start : start + CHECKED_AT_ONCE]]
            if of_people := [one for one in some if one[0].keeps_people]:
                require_ids(of_people, experiment)
        yield attack_stage(units, config, folder, engine.device)
        whole = [attack for attack in config.attacks if attack not in config.capture.sample]
        people = partial(Population.of, experiment.table, experiment.encoder, experiment.marginals, config.seed)
        write_people(config, units, folder, people, whole)

    def captured(self, config: AuditConfig, root: Path) -> Ready:
        """See `Kind.captured`."""
        return check_units(config, stored_units(config, root))

    def plan(self, checked: Checked[AuditConfig, Experiment], device: torch.device) -> RunPlan:
        """See `Kind.plan`."""
        return plan_updates(checked.config, checked.world, device)

    def findings(self, folder: Path) -> Mapping[str, Any]:
        """See `Kind.findings`."""
        return read_summary(folder)

    def tables(self, results: Mapping[str, Any]) -> Iterator[Lines]:
        """See `Kind.tables`."""
        return update_tables(results)

    def take_part(self, checked: Checked[AuditConfig, Experiment], folder: Path) -> None:
        """See `Kind.take_part`."""
        config = checked.config
        if trains_together(config) and (not (folder / TRAINING_FILE).is_file() or _damaged_captures(folder)):
            train(config, checked.world, folder, silent())


def attack_stage(units: list[Unit], config: AuditConfig, folder: Path, device: torch.device) -> Stage:
    """Return the stage that runs all units."""
    return Stage(update_packs(units, kept_cells(config.redact, config.raw_csv), folder, device), "attacks")


def check_units(
    config: AuditConfig,
    units: Sequence[Unit],
    pass_over: bool = False,
    left_out: Mapping[str, str] | None = None,
    table: PreparedTable | None = None,
    is_whole: bool = False,
) -> Ready:
    """Check every attack on every update of a plan whose updates exist already.

    Args:
        config: the attacks.
        units: the plan.
        pass_over: leave an attack out of all updates that refuses one.
        left_out: attacks that were left out before the plan was made, with their reasons.
        table: the table whose training rows are behind the updates, where it is known.
        is_whole: the updates are all of whole epochs.

    Raises:
        UsageError: an unknown attack, a truth that is not the update's, an update an attack cannot serve, or a row that
            is not in the table.
    """
    check_attacks(config.attacks)
    refused: dict[str, UsageError] = {}
    for unit in units:
        update, _ = unit.observe()
        try:
            check_attack(unit.make_attack(), update)
        except UsageError as error:
            if not pass_over:
                raise
            refused.setdefault(unit.attack, error)
    left_out = {**(left_out or {}), **require_some(config.attacks, refused)}
    units = [unit for unit in units if unit.attack not in refused]
    noised = {unit.facts["batch_index"] for unit in units if unit.facts["defense"] not in ("none", "clipped")}
    notes = [f"{len(noised)} defended updates cannot be checked against their rows"] if noised else []
    people = captured_people(units, table, config.seed)
    whole = [attack for attack in config.attacks if is_whole and attack not in left_out]

    def stages(folder: Path, engine: Engine) -> Iterator[Stage]:
        set_aside_without_people(config, units, folder)
        yield attack_stage(units, config, folder, engine.device)
        if people is not None:
            population, places = people
            write_people(config, units, folder, lambda: population, whole, places)

    return Ready(stages, notes, left_out)


def _set_aside_captures(folder: Path) -> None:
    """Where a capture is damaged, have the training repeated, which captures the same update again."""
    if damaged := _damaged_captures(folder):
        # First of all, so that a process which joins the training never sees whole captures and a finished training.
        (folder / TRAINING_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for capture in damaged:
        set_aside(capture, "it is damaged; the training is repeated")


def _damaged_captures(folder: Path) -> list[Path]:
    root = folder / "captures"
    return [capture for capture in (list_captures(root) if root.is_dir() else []) if not is_whole(capture)]
