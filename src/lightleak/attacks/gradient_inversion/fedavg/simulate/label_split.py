"""Which label stands at which place of the simulated batches (FedAvg paper, Sec. 4.3 and App. C.3)."""

from collections.abc import Sequence

import torch
from torch import Tensor


def random_split(labels: Tensor, epochs: int, draws: torch.Generator) -> Tensor:
    """The same random order of each client's labels for every epoch.

    Args:
        labels: LongTensor ``[clients, rows]``.
        epochs: simulated epochs.
        draws: where the orders come from.

    Returns:
        LongTensor ``[clients, epochs, rows]``.
    """
    orders = torch.stack([torch.randperm(labels.shape[1], generator=draws) for _ in range(len(labels))])
    return labels.gather(1, orders).unsqueeze(1).repeat(1, epochs, 1)


def shared_positions(labels: Tensor) -> Tensor:
    """For variables that carry the labels of the first epoch: which of them may stand at each place of each epoch.

    A place takes, among the variables of its label, the one of the same rank: what the labels of every batch allow to
    say, and no more. Where all epochs have one order the variables stand in order.

    Args:
        labels: LongTensor ``[..., epochs, rows]``; every epoch a reordering of the first.

    Returns:
        LongTensor of the same shape.

    >>> shared_positions(torch.tensor([[0, 1, 1], [1, 0, 1]]))
    tensor([[0, 1, 2],
            [1, 0, 2]])
    """
    by_label = labels.argsort(dim=-1, stable=True)
    first = by_label[..., :1, :].expand_as(by_label)
    return torch.empty_like(labels).scatter_(-1, by_label, first)


def orders_of(batch_labels: Tensor, labels: Tensor) -> bool:
    """Whether every epoch of ``batch_labels [clients, epochs, rows]`` is an order of its client's part of ``labels``.

    >>> orders_of(torch.tensor([[[1, 0], [0, 1]]]), torch.tensor([0, 1]))
    True
    """
    expected = labels.view(len(batch_labels), 1, -1).sort(-1).values
    return torch.equal(batch_labels.sort(-1).values, expected.expand_as(batch_labels))


def stacked(parts: Sequence[Tensor], restarts: int) -> Tensor:
    """Per update ``[clients, ...]`` to all simulated clients ``[updates * restarts * clients, ...]``."""
    together = torch.stack(list(parts))
    return together.unsqueeze(1).expand(-1, restarts, *together.shape[1:]).flatten(0, 2)
