"""Attack accuracy: how often an evaluation model names the class that a row was made for (thesis Eq. 3.11)."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightleak.core.errors import UsageError
from lightleak.core.summary import wilson
from lightleak.metrics.inversion.table import checked_labels


def class_counts(predicted: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Right answers and rows of each class, LongTensor ``[n_classes]`` each, on the CPU.

    Args:
        predicted: logits ``[n, n_classes]`` or class indices ``[n]``.
        labels: class that each row was made for, ``[n]``.
        n_classes: number of classes.

    Raises:
        UsageError: shapes do not fit, a class is unknown, or a logit is NaN.

    >>> class_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 3)
    (tensor([1, 1, 0]), tensor([2, 1, 0]))
    """
    labels = checked_labels(labels, len(predicted), n_classes)
    if predicted.is_floating_point():
        if predicted.shape != (len(labels), n_classes):
            raise UsageError(f"logits must have shape {(len(labels), n_classes)}, got {tuple(predicted.shape)}")
        if bool(predicted.isnan().any()):
            raise UsageError("logits must be numbers, got NaN")
        predicted = predicted.argmax(-1)
    right = checked_labels(predicted, len(labels), n_classes) == labels
    counts = (torch.bincount(of_rows, minlength=n_classes) for of_rows in (labels[right], labels))
    return tuple(counts)  # type: ignore[return-value]


def wilson_interval(right: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Wilson's 95% interval of ``right / total``, for independent trials: float64 ends of the shape of the counts.

    Both are NaN where nothing was tried.

    >>> low, high = wilson_interval(torch.tensor(8), torch.tensor(10))
    >>> round(float(low), 3), round(float(high), 3)
    (0.49, 0.943)
    """
    low, high = wilson(right.double() / total.double(), total.double())
    return low.clamp(min=0), high.clamp(max=1)


def accuracy_of_counts(right: Tensor, total: Tensor) -> dict[str, Tensor]:
    """What `AttackAccuracy.compute` returns, from right answers and rows of each class ``[C]``."""
    tried = total > 0
    per_class = right.double() / total
    low, high = wilson_interval(right, total)
    pooled_low, pooled_high = wilson_interval(right.sum(), total.sum())
    return {
        "mean": per_class[tried].mean(),
        "per_class": per_class,
        "per_class_low": low,
        "per_class_high": high,
        "pooled": right.sum().double() / total.sum(),
        "pooled_low": pooled_low,
        "pooled_high": pooled_high,
        "n": total.sum(),
    }


class AttackAccuracy(Metric):
    """Share of rows that the evaluation model assigns to the class they were made for (thesis Eq. 3.11, Table 5.5).

    `compute` returns float64 tensors: ``mean`` over the classes that have rows (the thesis leaves out excluded ones),
    ``per_class [C]`` with ``per_class_low`` and ``per_class_high``, ``pooled`` over all rows with ``pooled_low`` and
    ``pooled_high``, and ``n``, the number of rows. Intervals are Wilson's at 95%: they say how many rows were tried,
    not how another training of the generator would come out. A class without rows is NaN.

    Args:
        n_classes: number of private classes C.
        kwargs: passed to ``torchmetrics.Metric``.

    >>> accuracy = AttackAccuracy(2)
    >>> accuracy.update(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    >>> accuracy.compute()["mean"]
    tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False

    right: Tensor
    total: Tensor

    def __init__(self, n_classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if n_classes < 2:
            raise UsageError(f"n_classes must be at least 2, got {n_classes}")
        self.n_classes = n_classes
        for name in ("right", "total"):
            self.add_state(name, torch.zeros(n_classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Count rows: logits ``[n, n_classes]`` or class indices ``[n]``, and the classes they are made for ``[n]``."""
        right, total = class_counts(predicted, labels, self.n_classes)
        self.right = self.right + right.to(self.right)
        self.total = self.total + total.to(self.total)

    def compute(self) -> dict[str, Tensor]:
        """Shares and intervals over all ranks, see the class."""
        return accuracy_of_counts(self.right, self.total)
