"""How many rows of each class stand behind a distinct row: from the size and direction of its share in the update."""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate

LEAST = 1e-300
"""Keeps quotients of zeros finite."""

EXHAUSTIVE = 3
"""Equal rows up to which all labels are tried; beyond, a label is added to the best of one row less."""

ABSENT, ALIKE = 3, 0.05
"""Classes that must agree on an update's scale, and the part of it that they may differ by: of Diabetes-130's 20
classes the ratios of those that a batch of 32 lacked agreed to 1 to 4%."""

ABOVE_LEAST = 1.5, 2.0, 1.15
"""Factors of an update's least possible scale to try in turn: of Adult, Bank and Diabetes-130 with three classes it was
1.2 to 2, and a fit bears an error of 1.3."""

NODES = 4
"""Points on the way from start to end at which a row's share is predicted; the way is straight to a few percent."""


def predicted_shares(observed: WeightUpdate, x: Tensor, n_rows: int) -> Tensor:
    """What one row of each class would add to the first layer's update ``[n, classes, h]``.

    Args:
        observed: the update.
        x: encoded rows ``[n, d]``.
        n_rows: rows behind the update.
    """
    total = x.new_zeros(())
    for node in range(NODES):
        chain = observed.between(observed.last * (node + 0.5) / NODES)
        each = torch.eye(chain.n_classes).to(x).expand(len(x), -1, -1)
        total = total + chain.error_of_rows(0, chain.forward(x), each) / (NODES * n_rows)
    return total


@dataclass(frozen=True)
class ClassCounts:
    """What explains the shares of distinct rows.

    Attributes:
        counts: rows of each class ``[r, classes]``.
        misfit: norm of what they leave of the share, relative to the share ``[r]``: a few percent where all is right.
    """

    counts: Tensor
    misfit: Tensor


def single_counts(shares: Tensor, predicted: Tensor) -> ClassCounts:
    """One row behind each share, of the best class.

    Args:
        shares: of the distinct rows ``[r, h]``.
        predicted: see `predicted_shares` ``[r, classes, h]``.
    """
    counts, cost = _options(shares, predicted, 1)
    return ClassCounts(counts, _relative(cost, shares))


def class_counts(shares: Tensor, predicted: Tensor, n_rows: int, fit_scale: bool = False) -> ClassCounts:
    """At least one row behind each share, and ``n_rows`` in all.

    Args:
        shares: of the distinct rows ``[r, h]``, at most ``n_rows`` of them.
        predicted: see `predicted_shares` ``[r, classes, h]``.
        n_rows: rows behind the update.
        fit_scale: learning rate or steps are not known: most rows are taken to occur once.
    """
    if fit_scale and len(shares):
        shares = shares / scale_of_single_rows(shares, predicted)
    counts, cost = _options(shares, predicted, 1)
    for _ in range(n_rows - len(shares) if len(shares) else 0):
        more, more_cost = _one_more(shares, predicted, counts)
        best = int((cost - more_cost).argmax())
        counts[best], cost[best] = more[best], more_cost[best]
    return ClassCounts(counts, _relative(cost, shares))


def _one_more(shares: Tensor, predicted: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The best counts with one row more for every row, and what they leave: see `_options`."""
    size, n_classes = counts.sum(1), predicted.shape[1]
    added = counts.unsqueeze(1) + torch.eye(n_classes, dtype=counts.dtype, device=counts.device)
    left = shares.unsqueeze(1) - torch.einsum("rwc,rch->rwh", added.to(shares.dtype), predicted)
    cost, best = left.square().sum(-1).min(1)
    more = added[torch.arange(len(counts), device=counts.device), best]
    for total in range(2, EXHAUSTIVE + 1):
        at = (size + 1 == total).nonzero().flatten()
        more[at], cost[at] = _options(shares[at], predicted[at], total)
    return more, cost


def _relative(cost: Tensor, shares: Tensor) -> Tensor:
    return (cost / shares.square().sum(1).clamp_min(LEAST)).sqrt()


def _options(shares: Tensor, predicted: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """The best counts with this total for every row ``[r, classes]``, and what they leave of its share, squared."""
    n_classes = predicted.shape[1]
    ways = list(combinations_with_replacement(range(n_classes), total))
    every = torch.stack([torch.bincount(torch.tensor(way), minlength=n_classes) for way in ways]).to(shares.device)
    left = shares[:, None] - torch.einsum("wc,rch->rwh", every.to(shares.dtype), predicted)
    cost, best = left.square().sum(-1).min(1)
    return every[best], cost


def scale_of_single_rows(shares: Tensor, predicted: Tensor) -> float:
    """Median ratio of shares to the predicted ones of the class that points the same way."""
    along = (predicted * shares[:, None]).sum(-1) / predicted.square().sum(-1).sqrt().clamp_min(LEAST)
    best = along.argmax(1)
    norm = predicted.square().sum(-1).sqrt().gather(1, best[:, None])[:, 0].clamp_min(LEAST)
    return float((along.amax(1) / norm).median())


def possible_scales(observed: WeightUpdate, x: Tensor) -> tuple[float, ...]:
    """Factors by which a defense may have multiplied an update, in the order to try them; 1 is none.

    The last bias's gradient is the mean probability of a class less its share of the rows, which is 0 of absent ones
    and never less.

    Args:
        observed: the update.
        x: encoded rows ``[n, d]`` to take mean probabilities from.
    """
    probabilities = observed.start.forward(x).probabilities.mean(0)
    largest = (observed.gradient[-1][:, -1] / probabilities).sort(descending=True).values[:ABSENT]
    if len(largest) == ABSENT and bool(largest[-1] > (1 - ALIKE) * largest[0]):
        return float(largest.mean()), 1.0
    return tuple(share * float(largest[0]) for share in ABOVE_LEAST)
