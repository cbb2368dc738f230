"""``lightleak audit`` of a released model: train it and its judge, attack it, write the run folder."""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lightleak.attacks.model_inversion.tpe_search import import_optuna
from lightleak.callbacks.capture_store import is_whole
from lightleak.core.claims import Claims
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.stored import set_aside
from lightleak.experiments.campaign import CLAIMS, run_packs
from lightleak.experiments.environment import write_environment
from lightleak.experiments.finish import console_of_rank, leave_results
from lightleak.experiments.kinds.released.choices import attack_named
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.job import observe, plan_attacks, plan_models
from lightleak.experiments.kinds.released.models import load_judge
from lightleak.experiments.kinds.released.world import prepare_world
from lightleak.experiments.launch import check_one_device
from lightleak.experiments.released_summary import print_released_summary
from lightleak.experiments.run import open_run_folder
from lightleak.experiments.training import make_trainer
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.targets import build_network
from lightleak.targets.spec import is_differentiable
from lightleak.targets.trainer import quiet_lightning

SUMMARY_KEYS = ("setting", "label", "latent_search", "class")
PER = "seed"
"""A measurement is a training: its evaluations are averaged, and intervals are over trainings."""


def run_released_audit(
    config: ReleasedConfig, folder: Path, command: Sequence[str] = (), console: Console | None = None
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
        KeyboardInterrupt: finished trainings and evaluations are kept and written.
    """
    console = console_of_rank(console)
    device = resolve_device(config.device)
    check_released(config)
    open_run_folder(folder, config)
    write_environment(folder, device, command)
    return run_stages(config, folder, device, console)


def run_stages(config: ReleasedConfig, folder: Path, device: torch.device, console: Console) -> dict[str, Any]:
    """Train what is not trained, attack what is not attacked, and write results and report."""
    quiet = not console.is_interactive
    try:
        run_packs(partial(plan_models, config), folder, device, config.workers, quiet, "models trained")
        if config.keep_captures and not config.redact:
            with Claims(folder / CLAIMS).wait_for("observations"):
                _keep_observations(config, folder)
        run_packs(partial(plan_attacks, config), folder, device, config.workers, quiet, "evaluations of attacks")
        shutil.rmtree(folder / "generators", ignore_errors=True)
        if config.redact:  # the evaluation model was trained on private rows and is never released
            shutil.rmtree(folder / "models", ignore_errors=True)
    finally:
        results = leave_results(
            folder,
            partial(finished_rows, config, folder),
            config.redact,
            SUMMARY_KEYS,
            lambda rows: gather_entries(folder),
            PER,
        )
    print_released_summary(results, console)
    return results


def finished_rows(config: ReleasedConfig, folder: Path) -> list[dict[str, Any]]:
    """Rows of the evaluations that are finished, in the plan's order."""
    files = (unit_file(folder, id) for pack in plan_attacks(config) for id in pack.ids)
    return [row for file in files if file.is_file() for row in json.loads(file.read_text())]


def check_released(config: ReleasedConfig) -> None:
    """Try what could fail in the middle of a run: networks, attacks, searches, the Trainer.

    Raises:
        UsageError: what cannot be served, and why.
        UnsupportedError: an attack that needs gradients which the target does not give.
    """
    plan_attacks(config)
    check_one_device(config.training.trainer, config.device)
    with quiet_lightning():
        make_trainer(config.training.trainer, config.device, logger=False, enable_checkpointing=False)
    _check_attacks(config)
    if "tpe" in config.samples.searches:
        import_optuna()  # before anything is trained
    world = prepare_world(config, config.seeds[0])
    for spec in (world.target, world.evaluation):
        build_network(spec, seed=0)  # refuses options it does not take
    if config.training.batch_size > len(world.task.private_train):
        raise UsageError(
            f"training.batch_size must be at most {len(world.task.private_train)} (private training rows), "
            f"got {config.training.batch_size}"
        )


def _check_attacks(config: ReleasedConfig) -> None:
    """Raise where an attack or a search needs gradients the target does not give, or a Trainer that cannot be."""
    white_box = is_differentiable(config.target.network)
    for label, options in config.attacks.items():
        attack = attack_named(label, options)
        if attack.needs_gradients_of_target and not white_box:
            raise UnsupportedError(
                f"attacks.{label} needs gradients of the target; {config.target.network!r} provides none. Use "
                "plgmi_black_box"
            )
        gradient_search = attack.has_latent_space and "gradient" in config.samples.searches
        if gradient_search and not (white_box and attack.opens_the_model):
            raise UnsupportedError(
                f"samples.searches holds gradient, which attacks.{label} cannot take: it sees the model's answers "
                "alone; take random_best or tpe"
            )
        if spread := sorted({"devices", "num_nodes", "strategy"} & set(attack.trainer)):
            raise UsageError(
                f"attacks.{label}.trainer cannot set {', '.join(spread)} in an audit, which runs attacks side by side; "
                "call the attack's fit from a script of your own"
            )
        with quiet_lightning():
            make_trainer(attack.trainer, config.device, logger=False, enable_checkpointing=False)


def describe_released_plan(config: ReleasedConfig, console: Console) -> None:
    """Print what an audit would do, without doing it."""
    check_released(config)
    world = prepare_world(config, config.seeds[0])
    task, samples = world.task, config.samples
    parts = (task.private_train, task.private_validation, task.private_judge, task.private_test)
    rows = [len(part) for part in parts]
    lines = {
        "table": f"{config.data.title}: {rows[0]} private rows to train on, {rows[1]} to validate, {rows[2]} for the "
        f"second judge, {rows[3]} held out; {len(task.public)} public rows",
        "classes": f"{task.schema.n_classes} private: {_shortened(task.schema.label.categories)}",
        "features": f"{len(task.schema.columns)} encoded columns: {_shortened(task.schema.names)}",
        "models": f"{world.target.name} is released; {world.evaluation.name} judges twice, trained on the released "
        f"model's rows and on rows of its own; {len(config.seeds)} of each",
        "attacks": f"{', '.join(config.attacks)}; searches {', '.join(samples.searches)}",
        "samples": f"{samples.evaluations} evaluations of {samples.per_class} rows per class",
    }
    for name, text in lines.items():
        console.print(f"{name:10}{text}", soft_wrap=True, highlight=False)
    console.print("time and memory: not estimated for this kind of audit", soft_wrap=True, highlight=False)


def _shortened(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f", and {len(names) - most} more" if len(names) > most else "")


def _keep_observations(config: ReleasedConfig, folder: Path) -> None:
    """What an attacker would hold, for ``lightleak attack``; the truth is apart."""
    for seed in config.seeds:
        place = folder / "captures" / f"s{seed}"
        if place.is_dir() and is_whole(place):
            continue
        if place.is_dir():
            set_aside(place, "it is damaged and made again")
        world, partial_place = prepare_world(config, seed), place.with_suffix(".part")
        shutil.rmtree(partial_place, ignore_errors=True)
        observe(config, world, seed, folder).save(partial_place / "observation")
        load_judge(folder, world, seed).save(partial_place / "truth")
        partial_place.rename(place)  # whole or not at all


def gather_entries(folder: Path) -> None:
    """Gather what the attacks left for the report."""
    files = sorted((folder / "inversion").glob("*.json"))
    entries = [json.loads(file.read_text()) for file in files]
    write_whole(folder / "inversion.json", json.dumps({"schema_version": 1, "entries": entries}))
