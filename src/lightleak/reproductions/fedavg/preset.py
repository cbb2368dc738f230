"""Settings of the FedAvg paper by dataset (Dimitrov et al. 2022, Sec. 5, App. B)."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import PriorDistance, PriorStatistic
from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.reproductions.paper.settings import paper_settings, with_tuples
from lightleak.targets.spec import NetworkSpec

StudyDataset = Literal["digits", "mnist", "femnist", "cifar100"]

SEPARATE = ("fedavg_prior", "fedavg_no_prior")
"""Attacks with variables of their own in every local epoch."""

PUBLISHED_STEPS = 400
"""Optimization steps of the published code; App. B.2 says 200."""

MATCHING_WEIGHT = 2.0
"""What the weight of the distance grows (FEMNIST) or shrinks (CIFAR100) to in the published code."""

PriorWeights = tuple[tuple[PriorStatistic, PriorDistance, float], ...]


@dataclass(frozen=True)
class FedAvgPreset:
    """Settings of one dataset.

    Attributes:
        dataset: ``femnist`` and ``cifar100`` (the paper's), or ``digits`` and ``mnist``, which stand in for them.
        stands_for: dataset of the paper whose printed numbers are compared with ours.
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
        steps: optimization steps of an attack.
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
        """Name of the images that replace the paper's; None where they are the paper's."""
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


PRESETS: dict[str, FedAvgPreset] = {
    name: FedAvgPreset(**with_tuples(paper_settings("fedavg")["presets"][name])) for name in get_args(StudyDataset)
}
"""Presets by dataset; the reasons for their values are in ``reproductions/paper/fedavg.yaml``."""


def preset_of(dataset: str | None, steps: int | None = None) -> FedAvgPreset:
    """The preset of a dataset; None is ``digits``, which needs no files.

    Args:
        dataset: name of the dataset.
        steps: optimization steps of an attack, where they are not the paper's.

    Raises:
        UsageError: an unknown dataset.
    """
    name = dataset or "digits"
    if name not in PRESETS:
        raise UsageError(f"dataset must be one of {', '.join(get_args(StudyDataset))}, got {dataset!r}")
    return PRESETS[name] if steps is None else replace(PRESETS[name], steps=steps)
