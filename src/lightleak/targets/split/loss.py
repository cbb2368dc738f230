"""The loss of split training, its gradient in closed form, and its mean over an epoch."""

import torch
import torch.nn.functional as F
from torch import Tensor

FLUSH_AFTER = 256
"""Batches whose logits wait until their loss is computed: one call for many steps."""


def loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy summed over rows; logits ``[n]`` for two classes, ``[n, n_classes]`` for more.

    >>> round(float(loss_sum(torch.zeros(3), torch.tensor([0, 1, 1]))), 4)
    2.0794
    """
    if logits.ndim == 1:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return F.cross_entropy(logits, labels, reduction="sum")


def loss_gradient(logits: Tensor, labels: Tensor, n_rows: int) -> Tensor:
    """Gradient of ``loss_sum(logits, labels) / n_rows`` with respect to ``logits``, in their shape."""
    if logits.ndim == 1:
        return torch.sigmoid(logits).sub_(labels).div_(n_rows)
    probabilities = torch.softmax(logits, dim=1)
    labels = labels.unsqueeze(1)
    return probabilities.scatter_add_(1, labels, probabilities.new_full((), -1.0).expand(labels.shape)).div_(n_rows)


class EpochLoss:
    """Sum of the loss and number of rows since `reset`; costs a step no more than two references."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a new epoch."""
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._sum: Tensor | None = None
        self._rows = 0

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Count the rows of a step."""
        self._waiting.append((logits, labels))
        if len(self._waiting) >= FLUSH_AFTER:
            self._flush()

    def total(self) -> Tensor | None:
        """``[2]`` float64 on the CPU: sum of the loss, number of rows; ``None`` before the first step."""
        self._flush()
        return None if self._sum is None else torch.tensor([float(self._sum), self._rows], dtype=torch.float64)

    def _flush(self) -> None:
        if self._waiting:
            logits, labels = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
            loss = loss_sum(logits.double() if logits.device.type == "cpu" else logits, labels)
            self._sum = loss if self._sum is None else self._sum + loss
            self._rows += len(labels)
            self._waiting.clear()
