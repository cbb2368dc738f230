"""The clients and the attack behind a cell of the FedAvg paper."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from lightleak.attacks import ATTACKS, UpdateAttack
from lightleak.core.bounds import bounded, require_one_of
from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import ShareLabels
from lightleak.reproductions.paper.values import PaperCell, note, paper_settings
from lightleak.targets.spec import NetworkSpec

StudyDataset = Literal["digits", "framed_digits", "mnist", "femnist", "cifar100"]

DIGITS = ("digits", "framed_digits")
"""Datasets made of scikit-learn's digits."""

SEPARATE = ("fedavg_prior", "fedavg_no_prior")
"""Attacks with variables of their own in every local epoch."""

PUBLISHED_STEPS = 400
"""Optimization steps of the published code; App. B.2 says 200."""

MATCHING_WEIGHT = 2.0
"""What the weight of the distance grows (FEMNIST) or shrinks (CIFAR100) to in the published code."""


@dataclass(frozen=True)
class FedAvgPreset:
    """Settings of one dataset.

    Attributes:
        dataset: ``femnist`` and ``cifar100`` (the paper's), or ``digits``, ``framed_digits`` and
            ``mnist``, which stand in for them.
        stands_for: dataset of the paper whose printed numbers are compared with ours.
        n_classes: classes.
        network: options of the network that is attacked.
        attack: settings of every attack, where the attack's name does not say another.
        prior: settings of the epoch prior of Sec. 5.4: g and D_inv.
        prior_weights: lambda_inv by D_inv and g.
        threshold: PSNR in dB above which an image counts as reconstructed.
        steps: optimization steps of an attack.
        learning_rate: eta of the client.
        rows: images of a client (N).
        clients_per_round: clients of one round of a training.
        rounds: rounds after which accuracy is measured (Table 6).
    """

    dataset: StudyDataset
    stands_for: Literal["femnist", "cifar100"]
    n_classes: int
    network: Mapping[str, Any] = field(hash=False)
    attack: Mapping[str, float] = field(hash=False)
    prior: Mapping[str, str] = field(hash=False)
    prior_weights: Mapping[str, Mapping[str, float]] = field(hash=False)
    threshold: float
    steps: int = 200
    learning_rate: float = 0.004
    rows: int = 50
    clients_per_round: int = 10
    rounds: int = 250

    @classmethod
    def of(cls, dataset: str | None, steps: int | None = None) -> "FedAvgPreset":
        """The preset of a dataset; None is ``framed_digits``, which needs no files and is most like FEMNIST.

        Args:
            dataset: name of the dataset.
            steps: optimization steps of an attack, where they are not the paper's.

        Raises:
            UsageError: an unknown dataset.
        """
        name = dataset or "framed_digits"
        require_one_of("dataset", name, PRESETS)
        return PRESETS[name] if steps is None else replace(PRESETS[name], steps=steps)

    @property
    def stand_in(self) -> str | None:
        """Name of the images that replace the paper's; None where they are the paper's."""
        return f"{self.dataset} (stand-in)" if self.dataset != self.stands_for else None

    @property
    def spec(self) -> NetworkSpec:
        """The network that is attacked."""
        width = math.prod(self.network["shape"])
        return NetworkSpec("image_cnn", self.n_classes, EncodedLayout.of_numerical(width), dict(self.network))

    @property
    def stand_in_notes(self) -> list[str]:
        """The note on images that replace the paper's, where they do."""
        if self.stand_in is None:
            return []
        is_digits = self.dataset in DIGITS
        _, height, width = self.network["shape"]
        images = "scikit-learn's digits" if is_digits else self.dataset.upper()
        size = {"height": height, "width": width, "classes": self.n_classes}
        text = note("fedavg", "stand_in", images=images, original=self.stands_for, **size)
        return [f"{text} {note('fedavg', self.dataset)}" if is_digits else text]

    @property
    def attack_facts(self) -> dict[str, Any]:
        """Values of the note on where the attacks depart from the paper's text."""
        printed = PRESETS[self.dataset].steps
        changed = "" if self.steps == printed else f" (App. B.2: {printed})"
        return {"steps": self.steps, "changed": changed, "published": PUBLISHED_STEPS}

    def attack_options(self, attack: str, epochs: int, batches: int) -> dict[str, Any]:
        """Settings of an attack beyond those that its name already says.

        App. B.2's weights go with the distance of updates that the published code minimizes, not with the cosine
        distance of the text: so does ``published_objective``. That code divides the distance by the batches that a
        simulation has variables for and doubles it in the end (`MATCHING_WEIGHT`).

        Args:
            attack: its name.
            epochs: local epochs that are simulated.
            batches: batches of each.

        >>> PRESETS["cifar100"].attack_options("fedavg_prior", 10, 10)["epoch_prior"]
        6.075
        """
        weight = MATCHING_WEIGHT / (epochs * batches if attack in SEPARATE else batches)
        prior = self.prior_options(**self.prior) if attack == "fedavg_prior" else {}
        return {"published_objective": True, "matching_weight": weight, "steps": self.steps, **self.attack, **prior}

    def prior_options(self, prior_statistic: str, prior_distance: str) -> dict[str, Any]:
        """Settings of an epoch prior.

        >>> PRESETS["femnist"].prior_options("mean", "l2")["epoch_prior"]
        1000.0

        Raises:
            UsageError: a prior that Table 4 does not have.
        """
        weight = self.prior_weights.get(prior_distance, {}).get(prior_statistic)
        if weight is None:
            raise UsageError(f"the paper has no prior with g {prior_statistic!r} and D {prior_distance!r}")
        return {"epoch_prior": weight, "prior_statistic": prior_statistic, "prior_distance": prior_distance}


PRESETS: dict[str, FedAvgPreset] = {
    name: FedAvgPreset(**paper_settings("fedavg")["presets"][name]) for name in get_args(StudyDataset)
}
"""Presets by dataset; the reasons for their values are in ``reproductions/paper/fedavg.yaml``."""


NO_DEFENSE = "none"
STRENGTHS = {"gaussian_noise": "scale", "laplacian_noise": "scale", "random_pruning": "probability"}
"""The setting that is the strength of each defense of Table 6."""

SIMULATED = ("fedavg_prior", "fedavg_no_prior", "fedavg_shared")
"""Attacks that know batches; to the others the labels of a batch say nothing."""


@dataclass(frozen=True)
class EachImage(UpdateDefense):
    """The mean of ``images`` independent applications of a defense.

    Noise that is added to the gradient of every image and then averaged is exactly this. Random pruning is not: there
    every image's own gradient is masked; what is masked here is their mean, with as many masks.

    Attributes:
        inner: the defense of one gradient.
        images: gradients in a mean.

    Raises:
        UsageError: fewer than one.
    """

    name: ClassVar[str] = "each_image"
    citation: ClassVar[str] = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, App. C.1 (its code)"

    inner: UpdateDefense
    images: int = bounded(ge=1)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        found = [self.inner.apply(gradient, draws) for _ in range(self.images)]
        return {name: torch.stack([one[name] for one in found]).mean(0) for name in gradient}

    @property
    def strength(self) -> float | None:
        """That of the inner defense."""
        return self.inner.strength

    def describe(self) -> str:
        """See `UpdateDefense.describe`."""
        return f"{self.inner.describe()}, on the gradient of each image ({self.images} per step)"


@dataclass(frozen=True)
class ClientSetting:
    """The attacked clients: their training, their defense, and what the server knows.

    Attributes:
        epochs: local epochs (E).
        batch_size: images per local step (m).
        share_labels: what the server knows of the labels.
        reshuffle: batches are drawn anew in every local epoch.
        defense: name of the defense of every local step's gradient, or ``none``.
        strength: its strength.
        each_image: the defense acts on the gradient of every image of a step, as in the published code, not on their
            mean.
        round: communication round, counted from 1; None: an untrained network of the client's own.
        n_clients: clients averaged into one update.
        states_epochs: the server knows E and m; else only their product with the images, the steps.
    """

    epochs: int
    batch_size: int
    share_labels: ShareLabels = "counts"
    reshuffle: bool = True
    defense: str = NO_DEFENSE
    strength: float | None = None
    each_image: bool = False
    round: int | None = None
    n_clients: int = 1
    states_epochs: bool = True

    @property
    def name(self) -> str:
        """Part of a file name.

        >>> ClientSetting(10, 5, defense="gaussian_noise", strength=0.01).name
        '10x5_gaussian_noise-0.01'
        """
        parts = [f"{self.epochs}x{self.batch_size}"]
        parts += [] if self.share_labels == "counts" else [f"labels-{self.share_labels}"]
        parts += [] if self.reshuffle else ["same-batches"]
        parts += [f"{self.defense}-{self.strength:g}"] if self.strength is not None else []
        parts += ["each-image"] if self.each_image else []
        parts += [] if self.round is None else [f"round-{self.round}"]
        parts += [] if self.n_clients == 1 else [f"clients-{self.n_clients}"]
        parts += [] if self.states_epochs else ["epochs-unknown"]
        return "_".join(parts)

    @classmethod
    def of(cls, cell: PaperCell, each_image: bool = False, by_batch: bool = False) -> "ClientSetting":
        """The clients that a cell is about; ``by_batch``: the server knows the labels of every local batch."""
        assert cell.local_epochs is not None and cell.local_batch_size is not None  # every FedAvg client has them
        known: ShareLabels = "batches" if by_batch else "counts"
        defended = cell.defense not in (None, NO_DEFENSE)
        return cls(
            cell.local_epochs,
            cell.local_batch_size,
            share_labels="none" if cell.labels == "restored" else known,
            reshuffle=cell.random_batches is not False,
            defense=cell.defense or NO_DEFENSE,
            strength=cell.strength,
            each_image=defended and each_image,
            round=cell.round,
            n_clients=cell.n_clients or 1,
            states_epochs=cell.assumed_epochs is None,
        )

    def training(self, preset: FedAvgPreset) -> LocalTraining:
        """Local training of every client."""
        return LocalTraining(self.epochs, self.batch_size, preset.learning_rate, reshuffle=self.reshuffle)

    def steps(self, rows: int) -> int:
        """Local steps of a client (U).

        >>> ClientSetting(10, 1).steps(50)
        500
        """
        return self.epochs * -(-rows // self.batch_size)

    def make_defense(self) -> UpdateDefense | None:
        """The clients' defense, of the gradient of every local step.

        Raises:
            UsageError: no such defense in Table 6, or a strength that it does not take.
        """
        if self.defense == NO_DEFENSE:
            return None
        if self.defense not in STRENGTHS or self.strength is None:
            known = ", ".join(STRENGTHS)
            raise UsageError(f"the paper's defenses are {known}, each with a strength; got {self.defense!r}")
        made = UPDATE_DEFENSES.get(self.defense)(**{STRENGTHS[self.defense]: self.strength})
        return EachImage(made, self.batch_size) if self.each_image else made


@dataclass(frozen=True)
class AttackSetting:
    """One experiment: an attack with its settings on clients of one kind.

    Attributes:
        clients: what is attacked.
        attack: attack name.
        changed: settings other than those of the preset, as sorted pairs.
    """

    clients: ClientSetting
    attack: str
    changed: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """A file name.

        >>> AttackSetting(ClientSetting(10, 5), "fedavg_prior", (("assumed_epochs", 5),)).name
        'fedavg_prior_10x5_assumed_epochs-5'
        """
        return "_".join([self.attack, self.clients.name, *(f"{key}-{value}" for key, value in self.changed)])

    @classmethod
    def of(cls, cell: PaperCell, preset: FedAvgPreset, each_image: bool = False) -> "AttackSetting":
        """The experiment whose result the cell prints.

        Args:
            cell: a cell with an attack.
            preset: settings of the dataset.
            each_image: see `ClientSetting`.
        """
        assert cell.attack is not None  # callers pass cells of attacks
        by_batch = bool(cell.known_batch_counts) and cell.attack in SIMULATED
        changed: dict[str, Any] = {}
        if cell.labels == "restored":
            changed["labels"] = "interpolated"
        if by_batch:
            changed["label_order"] = "batches"
        if cell.assumed_epochs is not None:
            changed["assumed_epochs"] = cell.assumed_epochs
        if cell.prior_statistic is not None and cell.prior_distance is not None:
            changed |= preset.prior_options(cell.prior_statistic, cell.prior_distance)
        return cls(ClientSetting.of(cell, each_image, by_batch), cell.attack, tuple(sorted(changed.items())))

    def make_attack(self, preset: FedAvgPreset) -> UpdateAttack:
        """The attack with its settings."""
        return ATTACKS.get(self.attack)(**self.options(preset))

    def options(self, preset: FedAvgPreset) -> dict[str, Any]:
        """Settings of the attack."""
        changed = dict(self.changed)
        steps = self.clients.steps(preset.rows)
        epochs = changed.get("assumed_epochs", self.clients.epochs)
        return preset.attack_options(self.attack, epochs, max(1, steps // epochs)) | changed
