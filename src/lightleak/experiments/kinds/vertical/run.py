"""``lightleak audit`` of vertical federated learning: train, attack, write the run folder."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lightleak.attacks.property_inference import PropertyAttack
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.core.intermediate_results import VISIBLE, Adversary, AuxiliaryData
from lightleak.data.property import Property
from lightleak.experiments.campaign import rows_of, run_packs
from lightleak.experiments.environment import write_environment
from lightleak.experiments.finish import console_of_rank, leave_results
from lightleak.experiments.kinds.vertical.choices import attack_named, defense_named
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.job import observation_of, plan_jobs
from lightleak.experiments.kinds.vertical.rows import beside_own_columns
from lightleak.experiments.kinds.vertical.world import World, draw_auxiliary, prepare_world
from lightleak.experiments.launch import check_one_device
from lightleak.experiments.run import open_run_folder
from lightleak.experiments.training import make_trainer
from lightleak.experiments.unit import write_whole
from lightleak.experiments.vertical_summary import print_vertical_summary
from lightleak.targets.trainer import quiet_lightning

SUMMARY_KEYS = ("property", "adversary", "variant", "defense_strength")


def run_vertical_audit(
    config: VerticalConfig, folder: Path, command: Sequence[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Run an audit, or what is left of one, and return the content of its ``results.json``.

    Args:
        config: the audit.
        folder: the run folder; created, readable by its owner only. A folder that holds a run of the same config is
            continued, and joined where the run is still on.
        command: recorded in ``environment.json``.
        console: where progress goes.

    Raises:
        UsageError: the folder holds another run, or the config cannot be served; before any training.
        KeyboardInterrupt: finished trainings are kept and written.
    """
    console = console_of_rank(console)
    device = resolve_device(config.device)
    check_vertical(config)
    open_run_folder(folder, config)
    write_environment(folder, device, command)
    return run_jobs(config, folder, device, console)


def run_jobs(config: VerticalConfig, folder: Path, device: torch.device, console: Console) -> dict[str, Any]:
    """Train and attack what is not done yet, and write results and report."""
    jobs, plan = plan_jobs(config), partial(plan_jobs, config)
    ids = [id for job in jobs for id in job.ids]
    for job in jobs:
        job.forget_damaged(folder)
    try:
        run_packs(plan, folder, device, config.workers, not console.is_interactive, "attacks in split trainings")
    finally:
        results = leave_results(
            folder,
            lambda: beside_own_columns(rows_of(ids, folder)),
            config.redact,
            SUMMARY_KEYS,
            lambda rows: _write_norms(folder),
        )
    print_vertical_summary(results, console)
    return results


def check_vertical(config: VerticalConfig) -> None:
    """Try what could fail in the middle of a run: attacks, defences, parties, auxiliary rows, the Trainer.

    Raises:
        UsageError: what cannot be served, and why.
    """
    attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
    defenses = [defense_named(label, options) for label, options in config.defenses.items()]
    plan_jobs(config)
    check_one_device(config.training.trainer, config.device)
    with quiet_lightning():
        make_trainer(config.training.trainer, config.device, logger=False, enable_checkpointing=False)
    for text in config.properties:
        wanted = Property.parse(text)
        whole = prepare_world(config, wanted, config.seeds[0])
        for defense in defenses:
            world = whole.defended(defense, seed=0)
            world, auxiliary = draw_auxiliary(world, wanted, config.auxiliary, config.seeds[0])
            for adversary in config.chosen_adversaries:
                _check_attacks(config, attacks, world, auxiliary, adversary)


def _check_attacks(
    config: VerticalConfig,
    attacks: Mapping[str, PropertyAttack],
    world: World,
    auxiliary: AuxiliaryData,
    adversary: Adversary,
) -> None:
    """Show every attack an observation of the right shape before anything is trained."""
    ids = world.train.ids.sort().values
    nothing = torch.zeros(len(ids), config.target.output_width)
    results = dict.fromkeys(VISIBLE[adversary], nothing)
    seen = observation_of(config, world, auxiliary, adversary, 0, ids, results)
    for label, attack in attacks.items():
        try:
            attack.check(seen)
        except UsageError as error:
            raise UsageError(f"attacks.{label} in {adversary}: {error}") from error


def describe_vertical_plan(config: VerticalConfig, console: Console) -> None:
    """Print what an audit would do, without doing it."""
    check_vertical(config)
    jobs = plan_jobs(config)
    wanted = Property.parse(config.properties[0])
    world = prepare_world(config, wanted, config.seeds[0])
    _, auxiliary = draw_auxiliary(world, wanted, config.auxiliary, config.seeds[0])
    held = [", ".join(names) for names in world.arrangement.columns]
    lines = {
        "table": f"{world.dataset}: {len(world.train.ids)} training and {len(world.test.ids)} test rows",
        "target": f"{world.arrangement.victim} is attacked by {world.arrangement.adversary} for {wanted}; "
        f"encoded widths {', '.join(map(str, world.train.widths))}",
        **{f"party {i}": names for i, names in enumerate(held)},
        "known": f"the property of {len(auxiliary.ids)} rows, {len(auxiliary.ids.unique())} of them distinct",
        "training": f"{len(jobs)} split trainings of {config.training.epochs} epochs",
        "attacks": f"{sum(len(job.ids) for job in jobs)}: {', '.join(config.attacks)}",
    }
    for name, text in lines.items():
        console.print(f"{name:10}{text}", soft_wrap=True, highlight=False)
    console.print("time and memory: not estimated for this kind of audit", soft_wrap=True, highlight=False)


def _write_norms(folder: Path) -> None:
    """Gather what the trainings left of the norm distributions."""
    files = sorted((folder / "norms").glob("*.json"))
    entries = [entry for file in files for entry in json.loads(file.read_text())]
    write_whole(folder / "norms.json", json.dumps({"schema_version": 1, "entries": entries}))
