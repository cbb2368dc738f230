"""What the target says about a generated sample and the class that was asked for, one value per sample."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

InversionLoss = Callable[[Tensor, Tensor], Tensor]
"""``(logits [n, n_classes], labels [n]) -> [n]``, differentiable in the logits."""


def max_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Largest other logit minus the logit of the label (thesis Eq. 3.5): the loss that trains the generator.

    Its gradient by the logits is -1 at the label, +1 at the largest other one, the first of equals, and 0 elsewhere
    (Eq. 3.6), so it does not vanish on samples that the target is already sure of.

    >>> import torch
    >>> max_margin(torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([2]))
    tensor([2.])
    """
    column = labels.unsqueeze(-1)
    correct = logits.gather(-1, column).squeeze(-1)
    # max over a dimension, not amax: amax would split the gradient between equals.
    competitor = logits.scatter(-1, column, float("-inf")).max(-1).values
    return competitor - correct


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy in nats (thesis Eq. 3.4): the loss of the latent search; its gradient is Eq. 3.7.

    >>> import torch
    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([3]))
    tensor([1.3863])
    """
    return F.cross_entropy(logits, labels, reduction="none")
