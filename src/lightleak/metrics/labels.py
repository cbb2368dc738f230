"""How well the labels of a batch were restored (TabLeak Tables 1 and 17-20, bottom halves)."""

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.metrics.batch_mean import BatchMean


def label_count_error(restored: Tensor, true: Tensor) -> Tensor:
    """Half the L1 distance of the label counts over n: the fraction of labels to change until the counts agree.

    Args:
        restored: LongTensor ``[n]`` class indices, in any order.
        true: LongTensor ``[n]``.

    Returns:
        Float64 scalar in [0, 1].

    Raises:
        UsageError: no labels, or not as many restored as true ones.

    >>> label_count_error(torch.tensor([1, 0, 0, 2]), torch.tensor([0, 1, 1, 0]))
    tensor(0.2500, dtype=torch.float64)
    """
    if len(true) == 0 or restored.shape != true.shape:
        raise UsageError(
            f"as many restored labels as true ones are needed, at least 1; got {len(restored)} for {len(true)}"
        )
    restored, true = restored.cpu(), true.cpu()
    classes = int(torch.cat([restored, true]).max()) + 1
    counts = (torch.bincount(labels, minlength=classes).double() for labels in (restored, true))
    return torch.sub(*counts).abs().sum() / (2 * len(true))


class LabelCountError(BatchMean):
    """`label_count_error`, mean over batches."""

    higher_is_better = False

    def update(self, restored: Tensor, true: Tensor) -> None:
        """Count one batch: labels the attack used and true labels, LongTensor ``[n]`` each."""
        self.add(label_count_error(restored, true))
