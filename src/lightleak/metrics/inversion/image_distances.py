"""How far made images are from private ones: k-NN distance (Eq. 3.13, 3.14) and Frechet distance (Eq. 3.12)."""

import torch
from torch import Tensor, nn
from torchmetrics.image.fid import FrechetInceptionDistance

from lightleak.core.errors import UsageError

DISTANCES_AT_ONCE = 2**24
"""Distances in memory at a time: 64 MiB of float32."""


def knn_distance(
    made: Tensor, labels: Tensor, private: Tensor, private_labels: Tensor, k: int = 1, squared: bool = False
) -> Tensor:
    """Mean Euclidean distance of each made sample to its ``k`` nearest private ones of the same class (Eq. 3.13).

    Pixels give Eq. 3.14. PLG-MI's published code, whose numbers the thesis compares with its own, takes features of the
    evaluation model, one neighbor and the square of the distance.

    Args:
        made: ``[n, ...]`` pixels or features.
        labels: class that each was made for, ``[n]``.
        private: ``[m, ...]`` of the same kind.
        private_labels: ``[m]``.
        k: neighbors; a class with fewer private samples takes all it has.
        squared: mean of the squares instead.

    Returns:
        ``[n]``, on the CPU; NaN for a class without private samples.

    Raises:
        UsageError: shapes that do not fit, or ``k`` below 1.

    >>> knn_distance(torch.tensor([[0.0]]), torch.tensor([0]), torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), k=2)
    tensor([2.])
    """
    if made.shape[1:] != private.shape[1:] or len(labels) != len(made) or len(private_labels) != len(private):
        raise UsageError(
            f"made and private samples must have one shape, and a label each; got {list(made.shape)} with "
            f"{len(labels)} labels and {list(private.shape)} with {len(private_labels)}"
        )
    if k < 1:
        raise UsageError(f"k must be at least 1, got {k}")
    made, private = made.flatten(1).float(), private.flatten(1).float()
    found = torch.full((len(made),), torch.nan)
    for label in labels.unique():
        own, theirs = torch.nonzero(labels == label).squeeze(1), private[private_labels == label]
        if not len(theirs):
            continue
        for part in own.split(max(1, DISTANCES_AT_ONCE // len(theirs))):
            # Not by matrix products: those lose the distance of two samples that are nearly equal.
            apart = torch.cdist(made[part], theirs, compute_mode="donot_use_mm_for_euclid_dist")
            nearest = apart.topk(min(k, len(theirs)), largest=False).values
            found[part.cpu()] = (nearest.square() if squared else nearest).mean(1).cpu()
    return found


class _Given(nn.Module):
    """Identity in place of Inception: the inputs are already features."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features  # torchmetrics asks for it by this name

    def forward(self, features: Tensor) -> Tensor:
        return features


class FeatureFrechetDistance(FrechetInceptionDistance):
    """Squared Frechet distance of two sets of features taken as normal distributions (Eq. 3.12).

    The features are the caller's, of any width: the thesis takes Inception's, which know photographs; small digits are
    measured by those of the evaluation model. torchmetrics sums over batches and ranks; nothing is downloaded.

    >>> distance = FeatureFrechetDistance(2)
    >>> distance.update(torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]]), real=True)
    >>> distance.update(torch.tensor([[3.0, 0.0], [4.0, 2.0], [5.0, 1.0]]), real=False)
    >>> round(float(distance.compute()), 4)
    9.0
    """

    def __init__(self, width: int) -> None:
        super().__init__(feature=_Given(width))


def frechet_distance(made: Tensor, private: Tensor) -> float:
    """`FeatureFrechetDistance` of made ``[n, f]`` and private ``[m, f]`` features.

    With fewer samples than features the covariances are singular and the distance is biased upwards: compare only
    distances of equally many samples.

    Raises:
        UsageError: no matrices of one width, or fewer than two rows.
    """
    if made.ndim != 2 or private.ndim != 2 or made.shape[1] != private.shape[1] or min(len(made), len(private)) < 2:
        raise UsageError(
            f"features must be two matrices of one width with at least 2 rows, got {list(made.shape)} and "
            f"{list(private.shape)}"
        )
    metric = FeatureFrechetDistance(made.shape[1])
    metric.update(private.cpu().double(), real=True)
    metric.update(made.cpu().double(), real=False)
    return float(metric.compute())
