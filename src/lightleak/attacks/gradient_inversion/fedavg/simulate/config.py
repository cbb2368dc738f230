"""The settings of an attack on FedAvg updates."""

from dataclasses import dataclass
from typing import Literal

from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import PriorDistance, PriorStatistic
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Simulation
from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError

LabelOrder = Literal["counts", "batches"]
FedAvgLabels = Literal["true", "interpolated", "geng_server", "geng_client"]


@dataclass(frozen=True)
class FedAvgConfig(EngineConfig):
    """The settings of an attack on FedAvg updates; see `EngineConfig` for the others.

    Attributes:
        simulation: what is simulated and which variables it has (`schedule_for`).
        labels: ``true`` (their counts are shared with the attacker), or restored: with statistics ``interpolated``
            between the weights before and after (FedAvg paper, Sec. 4.5), or taken at the server's weights
            (``geng_server``) or the client's (``geng_client``) alone.
        label_order: ``counts``: labels are split into batches at random, once for all epochs (Sec. 4.3); ``batches``:
            the labels of every batch are shared, too.
        epoch_prior: weight of the epoch order-invariant prior (lambda_inv).
        prior_distance: its D_inv.
        prior_statistic: its g; ``conv_mean`` and ``conv_max`` act on a random convolution and are for images.
        assumed_epochs: local epochs to simulate, whatever the update says; None: those of the update or, where it does
            not say, every divisor of its steps, the best loss kept (App. C.4).
        published_objective: in place of ``objective`` compare sums of gradients by squared error, each layer counting
            1/e of the one before it, as the code of the FedAvg paper does.
        matching_weight: factor of the distance of updates, relative to the priors.
        total_variation: weight of the total variation; images only.
        clip: weight of what lies outside the range of pixels; images only.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    restarts: int = bounded(15, ge=1)
    simulation: Simulation = "full"
    labels: FedAvgLabels = "true"
    label_order: LabelOrder = "counts"
    epoch_prior: float = bounded(0.0, ge=0)
    prior_distance: PriorDistance = "l2"
    prior_statistic: PriorStatistic = "mean"
    assumed_epochs: int | None = bounded(None, ge=1)
    published_objective: bool = False
    matching_weight: float = bounded(1.0, ge=0)
    total_variation: float = bounded(0.0, ge=0)
    clip: float = bounded(0.0, ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_order == "batches" and self.labels != "true":
            raise UsageError(f"label_order 'batches' needs labels 'true', got {self.labels!r}")
