"""What the FedAvg paper sets per dataset (Dimitrov et al. 2022, Sec. 5, App. B), under a name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import PriorDistance, PriorStatistic
from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets.spec import NetworkSpec

StudyDataset = Literal["digits", "mnist", "femnist", "cifar100"]

SEPARATE = ("fedavg_prior", "fedavg_no_prior")
"""Attacks with variables of their own in every local epoch."""

PUBLISHED_STEPS = 400
"""Optimisation steps of the published code; App. B.2 says 200."""

MATCHING_WEIGHT = 2.0
"""What the weight of the distance grows (FEMNIST) or shrinks (CIFAR100) to in the published code."""

PriorWeights = tuple[tuple[PriorStatistic, PriorDistance, float], ...]

_FEMNIST_WEIGHTS: PriorWeights = (
    ("mean", "l1", 250.846),
    ("conv_mean", "l1", 263.623),
    ("max", "l1", 77.298),
    ("conv_max", "l1", 81.365),
    ("mean", "l2", 1000.0),
    ("conv_mean", "l2", 1054.413),
    ("max", "l2", 92.378),
    ("conv_max", "l2", 97.776),
)
"""The published scripts of Table 4: lambda_inv by g and D_inv, all priors of one weight at the first step."""

_CIFAR100_WEIGHTS: PriorWeights = (
    ("mean", "l1", 15.708),
    ("conv_mean", "l1", 16.206),
    ("max", "l1", 4.848),
    ("conv_max", "l1", 5.0),
    ("mean", "l2", 62.675),
    ("conv_mean", "l2", 65.573),
    ("max", "l2", 5.814),
    ("conv_max", "l2", 6.075),
)


@dataclass(frozen=True)
class FedAvgPreset:
    """Settings of one dataset.

    Attributes:
        dataset: ``femnist`` and ``cifar100`` (the paper's), or ``digits`` and ``mnist``, which stand in for them.
        stands_for: dataset of the paper whose printed numbers stand beside ours.
        shape: channels, height and width of an image.
        n_classes: classes.
        channels: of the network's two convolutions (Table 5).
        hidden: width of its hidden linear layer.
        prior_statistic: g of the epoch prior.
        prior_distance: its D_inv.
        prior_weights: lambda_inv by g and D_inv.
        total_variation: lambda_TV.
        clip: lambda_clip.
        attack_learning_rate: eta_rec.
        learning_rate_decay: gamma_rec.
        decay_every: steps between two decays.
        threshold: PSNR in dB above which an image counts as reconstructed.
        steps: optimisation steps of an attack.
        learning_rate: eta of the client.
        rows: images of a client (N).
        clients_per_round: clients of one round of a training.
        rounds: rounds after which accuracy is measured (Table 6).
    """

    dataset: StudyDataset
    stands_for: Literal["femnist", "cifar100"]
    shape: tuple[int, int, int]
    n_classes: int
    channels: tuple[int, int]
    hidden: int
    prior_statistic: PriorStatistic
    prior_distance: PriorDistance
    prior_weights: PriorWeights
    total_variation: float
    clip: float
    attack_learning_rate: float
    learning_rate_decay: float
    decay_every: int
    threshold: float
    steps: int = 200
    learning_rate: float = 0.004
    rows: int = 50
    clients_per_round: int = 10
    rounds: int = 250

    @property
    def is_stand_in(self) -> bool:
        """Whether these are not the paper's images."""
        return self.dataset != self.stands_for

    @property
    def stand_in(self) -> str | None:
        """What the images are called in the place of the paper's; None where they are the paper's."""
        return f"{self.dataset} (stand-in)" if self.is_stand_in else None

    @property
    def spec(self) -> NetworkSpec:
        """The network that is attacked: that of the published code, whose second kernel is not the printed one."""
        channels, height, width = self.shape
        options = {
            "shape": list(self.shape),
            "channels": list(self.channels),
            "hidden": self.hidden,
            "second_kernel": 3,
            "initialization": "flax",
        }
        return NetworkSpec("image_cnn", self.n_classes, EncodedLayout.of_numerical(channels * height * width), options)

    def prior_weight(self, statistic: str, distance: str) -> float:
        """lambda_inv of a prior.

        >>> PRESETS["femnist"].prior_weight("mean", "l2")
        1000.0

        Raises:
            UsageError: a prior that Table 4 does not have.
        """
        for known, of, weight in self.prior_weights:
            if (known, of) == (statistic, distance):
                return weight
        raise UsageError(f"the paper has no prior with g {statistic!r} and D {distance!r}")

    def attack_options(self, attack: str, epochs: int, batches: int) -> dict[str, Any]:
        """Settings of an attack beyond those that its name already says.

        App. B.2's weights go with the distance of updates that the published code minimises, not with the cosine
        distance of the text: so does ``published_objective``. That code divides the distance by the batches that a
        simulation has variables for and doubles it in the end (`MATCHING_WEIGHT`).

        Args:
            attack: its name.
            epochs: local epochs that are simulated.
            batches: batches of each.

        >>> PRESETS["cifar100"].attack_options("fedavg_prior", 10, 10)["epoch_prior"]
        6.075
        """
        separate = epochs * batches if attack in SEPARATE else batches
        options: dict[str, Any] = {
            "published_objective": True,
            "matching_weight": MATCHING_WEIGHT / separate,
            "steps": self.steps,
            "learning_rate": self.attack_learning_rate,
            "learning_rate_decay": self.learning_rate_decay,
            "decay_every": self.decay_every,
            "total_variation": self.total_variation,
            "clip": self.clip,
        }
        if attack == "fedavg_prior":
            options |= self.prior_options(self.prior_statistic, self.prior_distance)
        return options

    def prior_options(self, statistic: str, distance: str) -> dict[str, Any]:
        """Settings of an epoch prior.

        Raises:
            UsageError: see `prior_weight`.
        """
        weight = self.prior_weight(statistic, distance)
        return {"epoch_prior": weight, "prior_statistic": statistic, "prior_distance": distance}


FEMNIST = FedAvgPreset(
    "femnist",
    "femnist",
    shape=(1, 28, 28),
    n_classes=62,
    channels=(32, 64),
    hidden=100,
    prior_statistic="mean",
    prior_distance="l2",
    prior_weights=_FEMNIST_WEIGHTS,
    total_variation=0.001,
    clip=2.0,
    attack_learning_rate=0.4,
    learning_rate_decay=0.995,
    decay_every=10,
    threshold=20.0,
)
"""App. B.2, FEMNIST; the prior of Sec. 5.4."""

CIFAR100 = FedAvgPreset(
    "cifar100",
    "cifar100",
    shape=(3, 32, 32),
    n_classes=100,
    channels=(64, 128),
    hidden=200,
    prior_statistic="conv_max",
    prior_distance="l2",
    prior_weights=_CIFAR100_WEIGHTS,
    total_variation=0.0002,
    clip=10.0,
    attack_learning_rate=0.1,
    learning_rate_decay=0.997,
    decay_every=20,
    threshold=19.0,
)
"""App. B.2, CIFAR100; the prior of Sec. 5.4."""

DIGITS = replace(
    FEMNIST,
    dataset="digits",
    shape=(1, 8, 8),
    n_classes=10,
    attack_learning_rate=0.1,
    prior_weights=tuple((statistic, distance, weight / 100) for statistic, distance, weight in _FEMNIST_WEIGHTS),
    rounds=50,
)
"""scikit-learn's 8 x 8 digits with FEMNIST's settings but for the image, the classes, the rounds, and two that were
searched for by PSNR on one client of seed 1000 with E = m = 5: the attack's learning rate among 0.05, 0.1, 0.2 and 0.4,
and the weight of the prior among 10, 30, 100 and 1000. FEMNIST's weight costs 4 dB there: the prior is a mean over
pixels, so each of 64 feels twelve times as much of it as each of 784."""

MNIST = replace(FEMNIST, dataset="mnist", n_classes=10)
"""MNIST's digits with FEMNIST's settings, a stand-in too."""

PRESETS: dict[str, FedAvgPreset] = {preset.dataset: preset for preset in (DIGITS, MNIST, FEMNIST, CIFAR100)}


def preset_of(dataset: str | None, steps: int | None = None) -> FedAvgPreset:
    """The preset of a dataset; None is ``digits``, which needs no files.

    Args:
        dataset: name of the dataset.
        steps: optimisation steps of an attack, where they are not the paper's.

    Raises:
        UsageError: an unknown dataset.
    """
    name = dataset or "digits"
    if name not in PRESETS:
        raise UsageError(f"dataset must be one of {', '.join(get_args(StudyDataset))}, got {dataset!r}")
    return PRESETS[name] if steps is None else replace(PRESETS[name], steps=steps)


def local_settings(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Local epochs and batch sizes as the command line names them.

    >>> local_settings(["10x1", "5x5"])
    ((10, 1), (5, 5))

    Raises:
        UsageError: a name of another form.
    """
    found = []
    for name in names:
        epochs, x, size = name.partition("x")
        if not (x and epochs.isdecimal() and size.isdecimal()):
            raise UsageError(f"--settings takes local epochs x batch size, such as 10x5, got {name!r}")
        found.append((int(epochs), int(size)))
    return tuple(found)
