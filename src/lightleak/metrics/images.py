"""How many private images were recovered, and how well (Dimitrov et al. 2022, Sec. 5.1).

Match a batch once (`lightleak.core.image_similarity.matched_psnr`), then update either metric with it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torchmetrics import Metric

from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts
from lightleak.metrics.accuracy import fraction
from lightleak.metrics.batch_mean import BatchMean

RECONSTRUCTED_ABOVE: Mapping[str, float] = {
    **dict.fromkeys(("digits", "framed_digits", "mnist", "femnist"), 20.0),
    "cifar100": 19.0,
}
"""Decibels above which the paper counts an image of a dataset as reconstructed; those of stand-ins are FEMNIST's."""


class ImagePSNR(BatchMean):
    """Mean peak signal-to-noise ratio of matched images, in decibels; mean over batches.

    >>> import torch
    >>> ImagePSNR()(torch.tensor([18.0, 22.0]))
    tensor(20., dtype=torch.float64)
    """

    higher_is_better = True

    def update(self, psnr: Tensor) -> None:
        """Count one batch: PSNR of each true image with its match, ``[n]``.

        Raises:
            UsageError: not a vector of at least one number.
        """
        self.add(_per_image(psnr).double().mean())


class ReconstructedShare(BatchMean):
    """Fraction of images whose matched PSNR is above a threshold; mean over batches.

    Args:
        above: decibels that are not yet enough; see `RECONSTRUCTED_ABOVE`.
        kwargs: passed to ``torchmetrics.Metric``.

    >>> import torch
    >>> ReconstructedShare()(torch.tensor([18.0, 20.0, 22.0, 25.0]))
    tensor(0.5000, dtype=torch.float64)
    """

    higher_is_better = True

    def __init__(self, above: float = 20.0, **kwargs: Any) -> None:
        super().__init__(above, **kwargs)
        self.above = above

    def update(self, psnr: Tensor) -> None:
        """Count one batch: PSNR of each true image with its match, ``[n]``.

        Raises:
            UsageError: not a vector of at least one number.
        """
        self.add(fraction(_per_image(psnr) > self.above))


def _per_image(psnr: Tensor) -> Tensor:
    if psnr.ndim != 1 or not len(psnr):
        raise UsageError(f"psnr must hold one number per image, [n], got shape {list(psnr.shape)}")
    return psnr


IMAGE_METRICS: Mapping[str, Callable[..., Metric]] = {"psnr": ImagePSNR, "reconstructed_share": ReconstructedShare}
"""What measures each column of an audit of images."""

FEDAVG = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, Sec. 5.1"

IMAGE_FACTS: Mapping[str, Facts] = {name: Facts(citation=FEDAVG) for name in IMAGE_METRICS}
"""Facts on the cards of these metrics that their code does not show."""
