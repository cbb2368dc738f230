"""The unit of work of a vertical audit: one split training, and every attack on what it let its parties see."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.property_inference import PROPERTY_ATTACKS, PropertyAttack
from lightleak.attacks.property_inference.attack import TrainingPart
from lightleak.attacks.property_inference.shadow_models import ShadowModels
from lightleak.callbacks.capture_store import is_whole
from lightleak.callbacks.intermediate_capture import IntermediateCapture
from lightleak.callbacks.intermediate_store import TrainingRecord, save_observation, save_training, save_truth
from lightleak.core.errors import UsageError, placed
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.parties import Adversary, Kind
from lightleak.core.records import to_json
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import DAMAGED, set_aside, write_json
from lightleak.data.property import Property
from lightleak.data.vertical import VerticalDataModule
from lightleak.defenses.vertical import VERTICAL_DEFENSES, VerticalDefense, make_defense
from lightleak.experiments.attack_settings import made_from_label
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.rows import estimate_row, norm_entries
from lightleak.experiments.kinds.vertical.world import World, draw_auxiliary, prepare_world
from lightleak.experiments.pack import Pack, Report
from lightleak.experiments.took import Took
from lightleak.experiments.training import one_training
from lightleak.experiments.unit import file_name, unit_file
from lightleak.targets.split import SplitClassifier, SplitSpec


@dataclass(frozen=True)
class Job(Pack):
    """One training, and the attacks on it.

    Attributes:
        config: the audit.
        seed: root seed.
        wanted: the property.
        defense: label of the defense in the config.
        attacks: (label in the config, adversary) of every attack on this training. Attacks that only watch share one;
            one that takes part in the training has it alone.
        world: made already, for a machine without the table.
    """

    config: VerticalConfig
    seed: int
    wanted: Property
    defense: str
    attacks: tuple[tuple[str, Adversary], ...]
    world: World | None = None

    @property
    def ids(self) -> Sequence[str]:
        """One unit per attack and epoch."""
        return [self._unit(*attack, epoch) for epoch in self.config.epochs_attacked for attack in self.attacks]

    @property
    def cost(self) -> float:
        """Epochs of training."""
        return float(self.config.training.epochs)

    @property
    def made_defense(self) -> VerticalDefense:
        """The defense with its settings."""
        return defense_named(self.defense, self.config.defenses[self.defense])

    def shortened(self, epochs: int) -> "Job":
        """The same job with so many epochs, whose last is attacked."""
        training = replace(self.config.training, epochs=epochs)
        return replace(self, config=replace(self.config, training=training, attack_epochs=(-1,)))

    def shipped(self) -> "Job":
        """See `Pack.shipped`."""
        return replace(self, world=prepare_world(self.config, self.wanted, self.seed))

    def forget_damaged(self, folder: Path) -> None:
        """Have a finished job run again of which a capture is damaged or distributions of norms are gone."""
        units = [unit_file(folder, id) for id in self.ids]
        if not all(unit.is_file() for unit in units):  # it is running, or still to be run
            return
        is_first = self.seed == self.config.seeds[0]
        missing = is_first and any(not self._norm_file(folder, e).is_file() for e in self.config.epochs_attacked)
        captures = (folder / "captures").glob(f"{self._name}-*")
        damaged = [capture for capture in captures if DAMAGED not in capture.name and not is_whole(capture)]
        for capture in damaged:
            set_aside(capture, "it is damaged; the training is repeated")
        if missing or damaged:
            units[0].unlink(missing_ok=True)

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Train, attack, and keep a row for every attack."""
        config, defense, spill = self.config, self.made_defense, folder / "spill" / self._name
        done = self.train(device, report, spill)
        facts = self._facts_of_rows(done)
        for seen in done.observations:
            if config.keep_captures and not config.redact:
                self._keep(folder, seen, done)
            if seen.adversary == self.attacks[0][1] and self.seed == config.seeds[0]:
                self._keep_norms(folder, seen, done.truth, facts)
            for label, adversary in self.attacks:
                if adversary != seen.adversary:
                    continue
                attack = attack_named(label, config.attacks[label])
                with Took() as took:
                    found = attack.run(seen, derive_seed(self.seed, label, str(self.wanted), adversary), device)
                unit = self._unit(label, adversary, seen.facts.epoch)
                # Rows of one attack differ in its label, or in how it took part in the training.
                variant = done.augmentation.describe() if label == attack.name else label
                names = {"label": label, "variant": variant, **took.facts()}
                row = estimate_row(unit, attack, found, seen, done.truth, defense) | facts | names
                write_json(unit_file(folder, unit), to_json(row))
        shutil.rmtree(spill, ignore_errors=True)

    def train(self, device: torch.device, report: Report, spill: Path | None = None) -> "Trained":
        """Train with capture, and with the attack that takes part in it, if one does.

        Args:
            device: where.
            report: called with shares of an epoch.
            spill: where captures go that do not fit into memory.
        """
        config, settings, defense = self.config, self.config.training, self.made_defense
        before = self.world or prepare_world(config, self.wanted, self.seed)
        world = before.defended(defense, derive_seed(self.seed, "defense"))
        world, auxiliary = draw_auxiliary(world, self.wanted, config.auxiliary, self.seed)
        at, epochs = world.arrangement, config.epochs_attacked
        label, first_adversary = self.attacks[0]
        augmentation = attack_named(label, config.attacks[label]).training_part(first_adversary, world.n_classes)
        began = time.perf_counter()
        captures = [
            IntermediateCapture(at.adversary, at.victim, adversary, epochs, folder=spill and spill / adversary)
            for adversary in dict.fromkeys(adversary for _, adversary in self.attacks)
        ]
        own, seed = world.rows_of(auxiliary.ids, at.adversary), derive_seed(self.seed, "augmentation")
        every_property = (world.train.ids, world.has_property) if augmentation.needs_every_property else None
        augmenting = augmentation.callbacks(first_adversary, at.adversary, auxiliary, own, seed, every_property)
        module = self._module(world)
        data = VerticalDataModule(
            world.train, world.test, settings.batch_size, settings.shuffle, derive_seed(self.seed, "batches")
        )
        with one_training(settings.trainer, str(device), settings.epochs, [*captures, *augmenting], report) as trainer:
            trainer.fit(module, datamodule=data)
            trainer.test(module, datamodule=data, verbose=False)
        seconds = time.perf_counter() - began
        has_property = world.has_property[world.train.ids.argsort()]
        # Of the rows before a defense: one that withdraws some hides what was there.
        truth = PropertyTruth(str(self.wanted), float(before.has_property.float().mean()), has_property)
        observations = tuple(
            observation_of(config, world, auxiliary, capture.adversary, epoch, *capture.results(epoch))
            for epoch in epochs
            for capture in captures
        )
        return Trained(world, module, augmentation, observations, truth, seconds)

    def _module(self, world: World) -> SplitClassifier:
        """The split network before its training, with what a defense does to what it sends."""
        settings, seed = self.config.training, derive_seed(self.seed, "network")
        spec = SplitSpec(world.train.widths, world.n_classes, **vars(self.config.target))
        module = SplitClassifier(spec, settings.optimizer, settings.decay, settings.decay_top, seed)
        module.transform = self.made_defense.transform(derive_seed(self.seed, "defense"))
        return module

    def _facts_of_rows(self, done: "Trained") -> dict[str, Any]:
        target = self.config.target
        widths = (*target.bottom_hidden, target.output_width, *target.top_hidden)
        scores, defense = done.module.trainer.callback_metrics, self.made_defense
        return {
            "dataset": self.config.data.title,
            "target": "-".join(["split", *map(str, widths)]),
            "defense": self.defense,
            "defense_name": defense.name,
            "defense_strength": defense.strength,
            "seed": self.seed,
            "auc": float(scores["test/auroc"]),
            "accuracy": float(scores["test/accuracy"]),
            "training_seconds": done.seconds,
        }

    def _keep(self, folder: Path, seen: IntermediateResults, done: "Trained") -> None:
        place = folder / "captures" / f"{self._name}-{seen.adversary}-e{seen.facts.epoch:03d}"
        defense, deeds = self.made_defense, done.augmentation
        record = TrainingRecord(
            self.seed, self.defense, defense.name, defense.strength, deeds.describe(), deeds.does, defense.options()
        )
        save_training(record, place)
        save_observation(seen, place / "observation")
        save_truth(done.truth, place / "truth")

    def _keep_norms(self, folder: Path, seen: IntermediateResults, truth: PropertyTruth, facts: dict[str, Any]) -> None:
        common = {key: facts[key] for key in ("dataset", "defense", "seed")} | {"variant": self.who}
        entries = [entry | common for entry in norm_entries(seen, truth)]
        write_json(self._norm_file(folder, seen.facts.epoch), to_json(entries))

    def _norm_file(self, folder: Path, epoch: int) -> Path:
        return folder / "norms" / f"{self._name}-e{epoch:03d}.json"

    @property
    def who(self) -> str:
        """``passive``, or the label of the attack that takes part in the training."""
        label, _ = self.attacks[0]
        return label if attack_named(label, self.config.attacks[label]).takes_part_in_training else "passive"

    @property
    def _name(self) -> str:
        return file_name(f"{self.wanted}-{self.defense}-{self.who}-s{self.seed}")

    def _unit(self, label: str, adversary: Adversary, epoch: int) -> str:
        return file_name(f"{label}-{adversary}-{self.wanted}-{self.defense}-s{self.seed}-e{epoch:03d}")


@dataclass(frozen=True)
class Trained:
    """What a training leaves.

    Attributes:
        world: the rows it was trained on.
        module: the trained split network.
        augmentation: what the attack did meanwhile.
        observations: what each adversary saw, epoch by epoch.
        truth: what it wants to know.
        seconds: wall time of training and test.
    """

    world: World
    module: SplitClassifier
    augmentation: TrainingPart
    observations: tuple[IntermediateResults, ...]
    truth: PropertyTruth
    seconds: float


def plan_jobs(config: VerticalConfig) -> list[Job]:
    """Every training of the audit, in a fixed order.

    Raises:
        UsageError: an attack or a defense that cannot be made.
    """
    makes = {label: attack_named(label, options) for label, options in config.attacks.items()}
    for label, options in config.defenses.items():
        defense_named(label, options)
    pairs = [(label, adversary) for label in makes for adversary in config.chosen_adversaries]
    watching = tuple(pair for pair in pairs if not makes[pair[0]].takes_part_in_training)
    alone = [(pair,) for pair in pairs if makes[pair[0]].takes_part_in_training]
    return [
        Job(config, seed, Property.parse(text), defense, attacks)
        for defense in config.defenses
        for seed in config.seeds
        for text in config.properties
        for attacks in ([watching] if watching else []) + alone
    ]


def observation_of(
    config: VerticalConfig,
    world: World,
    auxiliary: AuxiliaryData,
    adversary: Adversary,
    epoch: int,
    ids: Tensor,
    results: Mapping[Kind, Tensor],
) -> IntermediateResults:
    """What an adversary holds after an epoch: what was exchanged, its own columns and, as the active party, labels."""
    at = world.arrangement
    facts = VerticalFacts(
        n_parties=len(at.columns),
        adversary_party=at.adversary,
        victim_party=at.victim,
        adversary_columns=at.columns[at.adversary],
        victim_columns=at.columns[at.victim],
        epoch=epoch,
        batch_size=config.training.batch_size,
        n_classes=world.n_classes,
    )
    labels = world.labels_of(ids) if adversary == "C1" else None
    return IntermediateResults(adversary, ids, results, auxiliary, facts, world.rows_of(ids, at.adversary), labels)


def attack_named(label: str, options: Mapping[str, Any]) -> PropertyAttack:
    """The attack that a label of the config names, or that its setting ``attack`` names.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    if options.get("attack", label) == ShadowModels.name:
        raise UsageError(
            f"attacks.{label}: sm_pia names one of two fractions and estimates none; the command that plays "
            "its game is lightleak reproduce provfl-table7"
        )
    return made_from_label(PROPERTY_ATTACKS, label, options)


def defense_named(label: str, options: Mapping[str, Any]) -> VerticalDefense:
    """The defense that a label of the config names, or that its setting ``defense`` names; errors likewise."""
    with placed(f"defenses.{label}"):
        return make_defense(label, options)


def defense_of(training: TrainingRecord | None) -> VerticalDefense | None:
    """The defense of a captured training; None where it is not known here, or its settings are not stored.

    Raises:
        UsageError: a setting that it does not have, or of the wrong type or range.
    """
    if training is None or training.defense_name not in VERTICAL_DEFENSES:
        return None
    made = make_defense(training.defense_name, training.defense_options)
    return made if made.strength == training.defense_strength else None  # earlier versions stored the strength alone
