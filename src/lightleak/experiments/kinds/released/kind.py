"""``kind: released-model``: a model and its judges are trained, and the model's classes are inverted."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console

from lightleak.callbacks.capture_store import is_whole
from lightleak.core.bounds import require_at_most
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.stored import read_json, set_aside, write_json
from lightleak.experiments.engine import Engine
from lightleak.experiments.kind import Checked, Kind, Ready, Rows, Stage
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.job import (
    AttackPack,
    attack_named,
    capture_packs,
    check_searches,
    observe,
    plan_attacks,
    plan_models,
)
from lightleak.experiments.kinds.released.models import ROLES, load_judge, prepare_world
from lightleak.experiments.kinds.released.summary import released_tables
from lightleak.experiments.probe import Estimate, Probed, RunPlan, measure_pack
from lightleak.experiments.terminal import Lines
from lightleak.experiments.training import check_trainer
from lightleak.experiments.unit import unit_file
from lightleak.metrics.inversion.sdmetrics_scores import require_sdmetrics
from lightleak.targets import build_network
from lightleak.targets.spec import is_differentiable
from lightleak.targets.trainer import quiet_lightning


class ReleasedKind(Kind[ReleasedConfig, None]):
    """A released model: what it has memorized."""

    name = "released-model"
    config = ReleasedConfig
    keys = ("setting", "label", "latent_search", "class")
    per = "seed"  # a measurement is a training: its evaluations are averaged, and intervals are over trainings
    private = ("models",)  # the evaluation model was trained on private rows and is never released

    def check(self, config: ReleasedConfig, pass_over: bool = False) -> Checked[ReleasedConfig, None]:
        """See `Kind.check`; every attack of a config is needed."""
        _check_attacks(config)
        if config.samples.sdmetrics:
            require_sdmetrics()
        check_trainer(config.training.trainer, config.device)
        world = prepare_world(config, config.seeds[0])
        for spec in (world.target, world.evaluation):
            build_network(spec, seed=0)  # refuses options it does not take
        rows = len(world.task.private_train)
        require_at_most("training.batch_size", config.training.batch_size, rows, "private training rows")
        return Checked(config, None)

    def stages(
        self, checked: Checked[ReleasedConfig, None], folder: Path, engine: Engine, console: Console
    ) -> Iterator[Stage]:
        """See `Kind.stages`: all models, and then all attacks."""
        config = checked.config
        yield Stage(plan_models(config), "trainings", has_rows=False)
        if config.keep_captures and not config.redact:
            _keep_observations(config, folder)
        yield Stage(plan_attacks(config), "evaluations of attacks")

    def captured(self, config: ReleasedConfig, root: Path) -> Ready:
        """See `Kind.captured`."""
        packs = capture_packs(config, root)
        return Ready(lambda folder, engine: [Stage(packs, "evaluations of attacks")])

    def plan(self, checked: Checked[ReleasedConfig, None], device: torch.device) -> RunPlan:
        """See `Kind.plan`."""
        config = checked.config
        world = prepare_world(config, config.seeds[0])
        task, samples = world.task, config.samples
        parts = (task.private_train, task.private_validation, task.private_judge, task.private_test)
        rows = [len(part) for part in parts]
        lines = {
            "table": f"{config.data.title}: {rows[0]} private rows to train on, {rows[1]} to validate, {rows[2]} for "
            f"the second judge, {rows[3]} held out; {len(task.public)} public rows",
            "classes": f"{task.schema.n_classes} private: {_shortened(task.schema.label.categories)}",
            "features": f"{len(task.schema.columns)} encoded columns: {_shortened(task.schema.names)}",
            "models": f"{world.target.name} is released; {world.evaluation.name} judges twice, trained on the released "
            f"model's rows and on rows of its own; {len(config.seeds)} of each",
            "attacks": f"{', '.join(config.attacks)}; searches {', '.join(samples.searches)}",
            "samples": f"{samples.evaluations} evaluations of {samples.per_class} rows per class",
        }
        return RunPlan(list(lines.items()), partial(_probe, config, device))

    def tables(self, results: Mapping[str, Any]) -> Iterator[Lines]:
        """See `Kind.tables`."""
        return released_tables(results)

    def leave(self, folder: Path, rows: Rows) -> None:
        """See `gather_entries`."""
        gather_entries(folder)


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
        check_searches(config, label, attack, white_box)
        if spread := sorted({"devices", "num_nodes", "strategy"} & set(attack.trainer)):
            raise UsageError(
                f"attacks.{label}.trainer cannot set {', '.join(spread)} in an audit, which runs attacks side by side; "
                "call the attack's fit from a script of your own"
            )
        check_trainer(attack.trainer, config.device, runs_beside_others=False)


def _probe(config: ReleasedConfig, device: torch.device, seconds: float) -> Probed:
    """Train every model for few epochs, then run every attack with few iterations and one evaluation."""
    trainings, attacks = [], []
    seeds, share = (1,) * len(config.seeds), seconds / (len(ROLES) + len(config.attacks))
    with TemporaryDirectory() as name, quiet_lightning():
        folder = Path(name)
        for model in plan_models(replace(config, seeds=config.seeds[:1])):
            epochs = config.training.max_epochs
            cost = measure_pack(model.shortened, epochs, device, folder, share, reports_steps=True)
            trainings.append(Estimate("training", config.training.batch_size, model.role, seeds, cost))
            scores = unit_file(folder, model.ids[0])
            scores.rename(folder / scores.name)  # `measure_pack` begins with no units; attacks need these
        for pack in plan_attacks(replace(config, seeds=config.seeds[:1])):
            cost = measure_pack(partial(_with_models, pack, folder), pack.iterations, device, folder, share)
            cost = replace(cost, unit=cost.unit * config.samples.evaluations)
            attacks.append(Estimate(pack.label, config.samples.per_class, "target", seeds, cost))
    line = ("training", f"at most: {config.training.max_epochs} epochs, unless the loss stops falling earlier")
    return Probed([trainings, attacks], lines=[line])


def _with_models(pack: AttackPack, folder: Path, iterations: int) -> AttackPack:
    for scores in folder.glob("model-*.json"):
        shutil.copy(scores, folder / "units")
    shutil.rmtree(folder / "generators", ignore_errors=True)
    return pack.shortened(iterations)


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
    entries = [read_json(file) for file in sorted((folder / "inversion").glob("*.json"))]
    write_json(folder / "inversion.json", {"schema_version": 1, "entries": entries})
