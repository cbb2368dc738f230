"""The unit of work of a released-model audit: one attack is fitted, then evaluated several times with every search."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lightleak.attacks.model_inversion import INVERSION_ATTACKS, InversionAttack, Workplace
from lightleak.attacks.model_inversion.released import rebuild
from lightleak.core.class_samples import ClassSamples
from lightleak.core.csv_text import csv_text
from lightleak.core.errors import ObservationError, UnsupportedError, placed
from lightleak.core.records import to_json
from lightleak.core.released_model import ReleasedModel
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import write_json, write_whole
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.inversion_task import InversionTask
from lightleak.experiments.attack_settings import made_from_label
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.judge import Judge
from lightleak.experiments.kinds.released.models import ROLES, ModelPack, World, load_judge, load_model, prepare_world
from lightleak.experiments.kinds.released.reference import PublicReference, compared_with_public
from lightleak.experiments.kinds.released.rows import Evaluation, FittedAttack, Subject
from lightleak.experiments.observed import named_captures
from lightleak.experiments.pack import Pack
from lightleak.experiments.took import Took
from lightleak.experiments.unit import file_name, unit_file
from lightleak.metrics.inversion.score import sample_statistics
from lightleak.metrics.inversion.sdmetrics_scores import sdmetrics_scores
from lightleak.targets import NetworkSpec
from lightleak.targets.spec import is_differentiable


@dataclass(frozen=True)
class AttackPack(Pack):
    """One attack on one released model, trained by this audit or captured before.

    Attributes:
        config: the audit.
        seed: root seed.
        label: the attack's label in the config.
        capture: folder of a capture; None: the model of this seed in the run folder.
        name: of the capture, unique among those that are attacked.
        setting: name of the setting in results.
        world: made already, for a machine without the table.
    """

    config: ReleasedConfig
    seed: int
    label: str
    capture: Path | None = None
    name: str = ""
    setting: str = ""
    world: World | None = None

    @property
    def ids(self) -> Sequence[str]:
        """One unit per search and evaluation."""
        return [self._unit(search, k) for search in self.config.samples.searches for k in self._evaluations]

    @property
    def kind(self) -> str:
        """The attack."""
        return self.label

    @property
    def cost(self) -> float:
        """The fit counts as much as all evaluations."""
        return 2.0 * len(self.ids)

    @property
    def attack(self) -> InversionAttack:
        """The attack with its settings."""
        return attack_named(self.label, self.config.attacks[self.label])

    @property
    def iterations(self) -> int:
        """Iterations of the attack's training; 0 where it trains nothing."""
        return int(self.attack.options().get("iterations", 0))

    def shortened(self, iterations: int) -> "AttackPack":
        """The same attack with so many iterations, evaluated once."""
        samples = replace(self.config.samples, evaluations=1)
        options = self.config.attacks[self.label] | ({"iterations": iterations} if self.iterations else {})
        attacks = self.config.attacks | {self.label: options}
        return replace(self, config=replace(self.config, samples=samples, attacks=attacks))

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """See `Pack.inputs`: the capture, or the models of the seed and their scores."""
        if self.capture is not None:
            return {"capture": self.capture}
        models = [ModelPack(self.config, self.seed, role) for role in ROLES]
        return {str(path.relative_to(folder)): path for model in models for path in model.results(folder)}

    def shipped(self) -> "AttackPack":
        """See `Pack.shipped`."""
        return self if self.capture else replace(self, world=prepare_world(self.config, self.seed))

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Fit, generate, score; keeps every evaluation when it has finished, and none twice."""
        subject, attack = self._subject(folder, device), self.attack
        place = folder / "generators" / file_name(f"{self.label}-{self.name or f's{self.seed}'}")
        at = Workplace(device, place, lambda fraction: report(fraction * len(self.ids)))
        fitted = attack.fit(subject.seen, derive_seed(self.seed, self.label), at)
        setting = self.setting or self.config.setting
        made = FittedAttack(self.config, self.seed, self.label, setting, attack, fitted, subject)
        reference = PublicReference.of(subject.seen, attack.pseudo_labels, device)
        for search in self.config.samples.searches:
            for k in self._evaluations:
                file = unit_file(folder, self._unit(search, k))
                if search not in fitted.searches:
                    write_json(file, [])  # a baseline that searches nothing
                elif not file.is_file():
                    rows = list(self._evaluate(made, reference, search, k, folder))
                    write_json(file, to_json(rows))
                report(1.0)
        shutil.rmtree(place, ignore_errors=True)

    def _evaluate(
        self, made: FittedAttack, reference: PublicReference, search: str, k: int, folder: Path
    ) -> Iterator[dict[str, Any]]:
        unit, seed = self._unit(search, k), derive_seed(self.seed, "evaluation", k)
        fitted, judge = made.fitted, made.subject.judge
        labels = torch.tensor(list(fitted.classes)).repeat_interleave(self.config.samples.rows_per_class(search))
        with Took() as took:
            samples = fitted.generate(labels, seed, search)
        scores = None if judge is None else judge.score(samples, derive_seed(seed, "memorisation"))
        statistics, quality = None, {}
        if judge is not None and self.capture is None and search == "random":
            # As many rows as there are private ones, classes as they come.
            free = fitted.draw_labels(len(judge.train), derive_seed(seed, "classes"))
            generated = fitted.generate(free, derive_seed(seed, "all"), search).rows
            statistics = sample_statistics(generated, judge.private)
            if self.config.samples.sdmetrics:
                quality = sdmetrics_scores(judge.train, generated, judge.encoder.schema)
        one = Evaluation(unit, k, samples, scores, statistics)
        if k == 0:
            write_json(folder / "inversion" / f"{unit}.json", to_json(made.entry(one)))
            if not self.config.redact:
                write_rows(folder, unit, samples, made.subject.label, self.config.raw_csv)
        public = compared_with_public(reference, fitted, samples, judge, seed)
        yield made.overall_row(one, public) | quality | took.facts()
        yield from made.class_rows(one)

    def _subject(self, folder: Path, device: torch.device) -> Subject:
        if self.capture is not None:
            seen, judge = load_capture(folder / "capture")
            return Subject(seen, judge and judge.to(device))
        world = self.world or prepare_world(self.config, self.seed)
        seen = observe(self.config, world, self.seed, folder)
        return Subject(seen, load_judge(folder, world, self.seed).to(device), task_facts(world.task))

    @property
    def _evaluations(self) -> Sequence[int]:
        """A capture is evaluated once, as its attacker would."""
        return range(self.config.samples.evaluations if self.capture is None else 1)

    def _unit(self, search: str, k: int) -> str:
        if self.capture is not None:
            return file_name(f"{self.label}-{self.name}-{search}")
        return file_name(f"{self.label}-{search}-s{self.seed}-e{k:02d}")


def task_facts(task: InversionTask) -> dict[str, Any]:
    """What the report says of the task."""
    rows = task.facts["rows"]
    return {
        "private_rows": rows["private_train"],
        "private_test_rows": rows["private_test"],
        "private_judge_rows": rows["private_judge"],
        "public_rows": rows["public"],
        "dropped_rows": rows["dropped"],
        "classes": task.schema.n_classes,
        "features": len(task.schema.columns),
    }


def write_rows(folder: Path, unit: str, samples: ClassSamples, label: Column, raw_csv: bool) -> None:
    """Keep the rows themselves, with the class they were made for; formulas escaped, or ``raw_csv``."""
    table = samples.rows.copy()
    table[label.name] = [label.categories[index] for index in samples.labels.tolist()]
    table["(inversion loss)"] = samples.loss.numpy()
    write_whole(folder / "reconstructions" / f"{unit}.csv", csv_text(table, raw_csv))


def observe(config: ReleasedConfig, world: World, seed: int, folder: Path) -> ReleasedModel:
    """What the attacker holds of the target in ``folder``."""
    network = load_model(folder, world, "target", seed)
    facts, tensors = world.encoder.to_state()
    return ReleasedModel(
        network=world.target.to_dict(),
        parameters=dict(network.named_parameters()),
        buffers=dict(network.named_buffers()),
        encoder=facts,
        encoder_tensors=tensors,
        public=world.task.public,
        access="white_box" if is_differentiable(world.target.name) else "black_box",
    )


def plan_models(config: ReleasedConfig) -> list[ModelPack]:
    """Every training, in a fixed order."""
    return [ModelPack(config, seed, role) for seed in config.seeds for role in ROLES]


def plan_attacks(config: ReleasedConfig) -> list[AttackPack]:
    """Every attack, in a fixed order.

    Raises:
        UsageError: an attack that cannot be made.
    """
    for label, options in config.attacks.items():
        attack_named(label, options)
    return [AttackPack(config, seed, label) for seed in config.seeds for label in config.attacks]


def capture_packs(config: ReleasedConfig, root: Path) -> list[AttackPack]:
    """Every attack on every released model below ``root``, checked.

    Raises:
        UsageError: no capture or an unknown attack.
        UnsupportedError: a model that an attack or a search cannot serve.
    """
    attacks = {label: attack_named(label, options) for label, options in config.attacks.items()}
    captures = named_captures(root)
    packs = []
    for name, path in captures.items():
        seen, _ = load_capture(path)
        white_box = rebuild(seen).white_box
        for label, attack in attacks.items():
            attack.check(seen)
            check_searches(config, label, attack, white_box)
        # Of several models each is a setting of its own.
        setting = f"{config.setting}, capture {name}" if len(captures) > 1 else ""
        packs += [AttackPack(config, config.seeds[0], label, path, name, setting) for label in attacks]
    return packs


def check_searches(config: ReleasedConfig, label: str, attack: InversionAttack, white_box: bool) -> None:
    """Raise `UnsupportedError` where the gradient search is asked of a model or an attack without gradients."""
    gradient_search = attack.has_latent_space and "gradient" in config.samples.searches
    if gradient_search and not (white_box and attack.opens_the_model):
        raise UnsupportedError(
            f"samples.searches holds gradient, which attacks.{label} cannot take: it sees the model's answers "
            "alone; take random_best or tpe"
        )


def attack_named(label: str, options: Mapping[str, Any]) -> InversionAttack:
    """The attack that a label of the config names, or that its setting ``attack`` names.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    return made_from_label(INVERSION_ATTACKS, label, options)


def load_capture(folder: Path) -> tuple[ReleasedModel, Judge | None]:
    """Return the observation of one capture, and its truth where that is stored with it.

    Raises:
        ObservationError: a file is missing or damaged, or network, columns and public rows do not fit each other.
    """
    seen = ReleasedModel.load(folder / "observation")
    with placed(str(folder / "observation"), ObservationError):
        spec, encoder = NetworkSpec.from_dict(seen.network), TableEncoder.of(seen)
        if spec.layout != encoder.layout:
            raise ObservationError("the columns of the network (layout) are not those of the encoder (schema)")
        encoder.schema.validate(seen.public, require_label=False)
    return seen, Judge.load(folder / "truth") if (folder / "truth").is_dir() else None
