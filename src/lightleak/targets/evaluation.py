"""Loss, accuracy and area under the ROC curve over all rows of all ranks; they say so where rows lack a class."""

import warnings

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, MulticlassAccuracy, MulticlassAUROC
from torchmetrics.utilities.data import dim_zero_cat


class RowMean(Metric):
    """Mean over the rows of all batches on all ranks.

    ``log(..., sync_dist=True)`` divides by a number of rows that it has rounded down to whole rows per rank.
    """

    total: Tensor
    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("rows", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, mean: Tensor, rows: int) -> None:
        """Add the mean, a scalar, of so many rows; of none it counts nothing."""
        self.total = self.total + mean.detach().float() * rows
        self.rows = self.rows + rows

    def compute(self) -> Tensor:
        """The mean, a scalar."""
        return self.total / self.rows


DIVERGED = "predictions are NaN, as of a network that has diverged"
"""Why there is no area: torchmetrics would rank NaN by position, so that the order of rows decides."""


class TwoClassAUROC(BinaryAUROC):
    """Area under the ROC curve, exact; NaN with a warning where all rows are of one class or a prediction is NaN."""

    def compute(self) -> Tensor:  # type: ignore[override]
        """The area, a scalar."""
        target = dim_zero_cat(self.target)
        if target.min() == target.max():
            return _undefined("all rows are of one class", target.device)
        if dim_zero_cat(self.preds).isnan().any():
            return _undefined(DIVERGED, target.device)
        area: Tensor = super().compute()
        return area


class PresentClassAUROC(MulticlassAUROC):
    """Mean of the one-against-rest areas of those classes that the rows hold, exact.

    A class without rows has no area; torchmetrics counts it as 0. Here it is left out, with a warning.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__(n_classes, average="none")

    def compute(self) -> Tensor:  # type: ignore[override]
        """The mean, a scalar; NaN where fewer than two classes have rows or a prediction is NaN."""
        target = dim_zero_cat(self.target)
        present = torch.bincount(target, minlength=self.num_classes) > 0
        if present.sum() < 2:
            return _undefined("all rows are of one class", target.device)
        if dim_zero_cat(self.preds).isnan().any():
            return _undefined(DIVERGED, target.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No positive samples")  # said below, with the count
            areas: Tensor = super().compute()
        if not present.all():
            absent = int((~present).sum())
            warnings.warn(f"AUROC leaves out {absent} of {self.num_classes} classes, which have no rows", stacklevel=2)
        return areas[present].mean()


def _undefined(reason: str, device: torch.device) -> Tensor:
    """Warn that there is no area, and return NaN, a scalar."""
    warnings.warn(f"AUROC is undefined: {reason}", stacklevel=3)
    return torch.full((), torch.nan, device=device)


def classification_metrics(n_classes: int, prefix: str) -> MetricCollection:
    """Accuracy over all rows and area under the ROC curve (mean over classes beyond two), exact.

    A network that has diverged has no AUROC. Its accuracy is that of what it answers: the first class for every row
    whose prediction is NaN.

    Args:
        n_classes: classes; two are read as a binary problem whose positive class is 1.
        prefix: stands before ``accuracy`` and ``auroc`` in the logs.
    """
    if n_classes == 2:
        return MetricCollection({"accuracy": BinaryAccuracy(), "auroc": TwoClassAUROC()}, prefix=prefix)
    accuracy = MulticlassAccuracy(n_classes, average="micro")
    return MetricCollection({"accuracy": accuracy, "auroc": PresentClassAUROC(n_classes)}, prefix=prefix)
