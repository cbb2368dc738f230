"""``kind: vertical``: vertical federated learning is trained, and its parties infer properties."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console

from lightleak.callbacks.intermediate_store import TRAINING, load_observation, load_training, load_truth
from lightleak.core.bounds import require_at_most
from lightleak.core.errors import ObservationError, placed
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.grouping import by_key
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.parties import VISIBLE
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import read_json, write_json
from lightleak.data.property import Property
from lightleak.defenses.vertical import VerticalDefense
from lightleak.experiments.engine import Engine
from lightleak.experiments.kind import Checked, Kind, Ready, Rows, Stage
from lightleak.experiments.kinds.vertical.config import OWN_COLUMNS, VerticalConfig
from lightleak.experiments.kinds.vertical.job import (
    Job,
    attack_named,
    defense_named,
    defense_of,
    observation_of,
    plan_jobs,
)
from lightleak.experiments.kinds.vertical.rows import as_trained, beside_own_columns, estimate_row
from lightleak.experiments.kinds.vertical.summary import vertical_tables
from lightleak.experiments.kinds.vertical.world import draw_auxiliary, prepare_world
from lightleak.experiments.observed import named_captures
from lightleak.experiments.pack import Place, Task
from lightleak.experiments.probe import Estimate, Probed, RunPlan, measure_pack
from lightleak.experiments.terminal import Lines
from lightleak.experiments.took import Took
from lightleak.experiments.training import check_trainer
from lightleak.experiments.unit import file_name
from lightleak.targets.trainer import quiet_lightning


class VerticalKind(Kind[VerticalConfig, None]):
    """Vertical federated learning: what parties exchange."""

    name = "vertical"
    config = VerticalConfig
    keys = ("property", "adversary", "variant", "defense_strength")

    def check(self, config: VerticalConfig, pass_over: bool = False) -> Checked[VerticalConfig, None]:
        """See `Kind.check`; every attack of a config is needed."""
        attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
        defenses = [defense_named(label, options) for label, options in config.defenses.items()]
        check_trainer(config.training.trainer, config.device)
        for seed, seen in _observations(config, defenses):
            for label, attack in attacks.items():
                with placed(f"attacks.{label} in {seen.adversary}, seed {seed}"):
                    attack.check(seen)
        return Checked(config, None)

    def stages(
        self, checked: Checked[VerticalConfig, None], folder: Path, engine: Engine, console: Console
    ) -> Iterator[Stage]:
        """See `Kind.stages`: a pack is a training with all attacks on it."""
        jobs = plan_jobs(checked.config)
        for job in jobs:
            job.forget_damaged(folder)
        yield Stage(jobs, "attacks in split trainings")

    def captured(self, config: VerticalConfig, root: Path) -> Ready:
        """See `Kind.captured`."""
        packs = capture_packs(config, root)
        return Ready(lambda folder, engine: [Stage(packs, "attacks")])

    def plan(self, checked: Checked[VerticalConfig, None], device: torch.device) -> RunPlan:
        """See `Kind.plan`."""
        config = checked.config
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
        return RunPlan(list(lines.items()), partial(_probe, config, jobs, device))

    def tables(self, results: Mapping[str, Any]) -> Iterator[Lines]:
        """See `Kind.tables`."""
        return vertical_tables(results)

    def rows(self, rows: Rows) -> Rows:
        """See `beside_own_columns`."""
        return beside_own_columns(rows)

    def leave(self, folder: Path, rows: Rows) -> None:
        """Gather what the trainings left of the norm distributions."""
        files = sorted((folder / "norms").glob("*.json"))
        if files:
            entries = [entry for file in files for entry in read_json(file)]
            write_json(folder / "norms.json", {"schema_version": 1, "entries": entries})


def _observations(
    config: VerticalConfig, defenses: Sequence[VerticalDefense]
) -> Iterator[tuple[int, IntermediateResults]]:
    """Yield, by seed, observations of the shapes that attacks will see, made without a training."""
    for seed, text in product(config.seeds, config.properties):
        wanted = Property.parse(text)
        whole = prepare_world(config, wanted, seed)
        for defense in defenses:
            world = whole.defended(defense, derive_seed(seed, "defense"))
            n, left = len(world.train.ids), f"training rows under {defense.name}"
            require_at_most("training.batch_size", config.training.batch_size, n, left)
            world, auxiliary = draw_auxiliary(world, wanted, config.auxiliary, seed)
            ids = world.train.ids.sort().values
            nothing = torch.zeros(len(ids), config.target.output_width)
            for adversary in config.chosen_adversaries:
                results = dict.fromkeys(VISIBLE[adversary], nothing)
                yield seed, observation_of(config, world, auxiliary, adversary, 0, ids, results)


def _probe(config: VerticalConfig, jobs: Sequence[Job], device: torch.device, seconds: float) -> Probed:
    """Run short trainings with all attacks on their last epoch, one for every set of attacks."""
    alike = by_key(jobs, lambda job: job.attacks)
    found, attacked = [], len(config.epochs_attacked)
    for attacks, members in alike.items():
        with TemporaryDirectory() as folder, quiet_lightning():
            share, epochs = seconds / len(alike), config.training.epochs
            cost = measure_pack(members[0].shortened, epochs, device, Path(folder), share, reports_steps=True)
        cost = replace(cost, unit=cost.unit * attacked)
        name = members[0].who
        adversaries = " and ".join(dict.fromkeys(adversary for _, adversary in attacks))
        source = f"{len(attacks) * attacked} of {adversaries}"
        found.append(Estimate(f"training, {name}", config.training.batch_size, source, (1,) * len(members), cost))
    return Probed([found])


def capture_packs(config: VerticalConfig, root: Path) -> list[Task]:
    """Every attack on every capture below ``root``, checked.

    Raises:
        UsageError: no capture, an unknown attack, a truth that is not the observation's, or an observation an attack
            cannot serve.
    """
    attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
    packs = []
    for name, path in named_captures(root).items():
        seen, _ = load_capture(path)
        with placed(f"{path / TRAINING}"):
            defense_of(load_training(path))
        for label, attack in attacks.items():
            if label == OWN_COLUMNS and seen.features is None:  # the null needs the adversary's own columns
                continue
            attack.check(seen)
            unit = file_name(f"{label}-{name}")
            packs.append(Task([unit], partial(_attack_capture, config, label, name, unit), reads={"capture": path}))
    return packs


def _attack_capture(config: VerticalConfig, label: str, name: str, unit: str, at: Place) -> Rows:
    seen, truth = load_capture(at.folder / "capture")
    attack, root = attack_named(label, config.attacks[label]), config.seeds[0]
    seed = derive_seed(root, label, seen.auxiliary.property_name, seen.adversary)
    with Took() as took:
        found = attack.run(seen, seed, at.device)
    training = load_training(at.folder / "capture")
    row = estimate_row(unit, attack, as_trained(found, attack, training), seen, truth, defense_of(training))
    at.report(1.0)
    facts = {"label": label, "variant": label, "defense": None, "seed": root}
    if training is not None:
        own = () if label == attack.name else (label,)
        meanwhile = () if own and not training.does else (training.variant,)
        names = ("seed", "defense", "defense_name", "defense_strength")
        facts |= {name: getattr(training, name) for name in names} | {"variant": ", ".join((*own, *meanwhile))}
    return [row | took.facts() | facts | {"dataset": config.data.title, "capture": name}]


def load_capture(folder: Path) -> tuple[IntermediateResults, PropertyTruth | None]:
    """Return the observation of one capture, and its truth where that is stored with it.

    Raises:
        ObservationError: a file is missing or damaged, or the truth belongs to another observation.
    """
    seen = load_observation(folder / "observation")
    if not (folder / "truth").is_dir():
        return seen, None
    truth = load_truth(folder / "truth")
    if truth.property_name != seen.auxiliary.property_name or len(truth.has_property) != len(seen.ids):
        raise ObservationError(
            f"{folder}/truth is about {truth.property_name} of {len(truth.has_property)} records, the observation "
            f"about {seen.auxiliary.property_name} of {len(seen.ids)}"
        )
    return seen, truth
