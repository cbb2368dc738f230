"""The priors that a configuration adds to the distance of updates."""

from collections.abc import Callable

from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.config import FedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import epoch_prior
from lightleak.attacks.gradient_inversion.fedavg.simulate.image_codec import ImageCodec
from lightleak.attacks.gradient_inversion.fedavg.simulate.image_priors import (
    out_of_range,
    random_features,
    total_variation,
)
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Schedule
from lightleak.attacks.gradient_inversion.fedavg.simulate.update_matcher import RowPrior
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec


def row_priors(config: FedAvgConfig, schedule: Schedule, codec: RowCodec) -> list[RowPrior]:
    """Epoch prior, total variation and range, those whose weight is not zero; each the mean over clients.

    A prior takes ``[updates, restarts, clients, copies, rows, d]``. With one copy of the rows there are no epochs to
    compare.
    """
    priors: list[RowPrior] = []
    if config.epoch_prior and schedule.copies > 1:
        statistic = config.prior_statistic
        features: Callable[[Tensor], Tensor] | None = None
        if statistic.startswith("conv"):
            assert isinstance(codec, ImageCodec)  # the attack's check refuses it for tables
            features = random_features(codec.scale, seed=0)
        priors.append(
            lambda x: config.epoch_prior * epoch_prior(x, config.prior_distance, statistic, features).mean(-1)
        )
    if isinstance(codec, ImageCodec):
        scale = codec.scale
        if config.total_variation:
            priors.append(lambda x: config.total_variation * total_variation(x, scale).mean((-1, -2)))
        if config.clip:
            priors.append(lambda x: config.clip * out_of_range(x, scale).mean((-1, -2)))
    return priors
