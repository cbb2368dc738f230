"""Labels to start from: how many rows of each class, read off the last bias with what is believed of rows."""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize.labels import expand_counts, restore_counts, round_counts
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.observations import ClientUpdate

BELIEVED_ROWS = 4000
"""Rows that the mean probability is estimated from: its error is then a tenth of a batch's own at 40 rows."""


def starting_labels(update: ClientUpdate, space: RowDomain, generator: torch.Generator) -> Tensor:
    """Labels in class order, LongTensor ``[n]``; the search corrects counts (off by one row at most on Adult).

    Args:
        update: a gradient.
        space: rows that may be there, drawn by their prior.
        generator: a CPU generator.
    """
    believed = space.rows.of(*space.draw(BELIEVED_ROWS, generator, from_prior=True)).cpu()
    n = update.facts.n_rows
    network, releases = client_network(update), update.releases
    each = [restore_counts(network, u.parameters, u.buffers, u.update, n, believed, "bias") for u in releases]
    counts = torch.stack(each).mean(0)
    return expand_counts(round_counts(counts, n)).to(space.encoder.shift.device)


def labels_behind(problem: JointProblem, is_known: Tensor, generator: torch.Generator) -> Tensor:
    """Labels in class order, LongTensor ``[n]``, by what is known of the last layer's gradient and believed of rows.

    A class's part of it is the mean of ``p_c (h, 1)`` less that of ``(h, 1)`` over the rows of the class.

    Args:
        problem: of the rows.
        is_known: elements that were sent as they are of that layer's gradient ``[classes, in + 1]``.
        generator: a CPU generator.
    """
    terms = problem.terms(*problem.space.draw(BELIEVED_ROWS, generator, from_prior=True))
    hidden, probabilities = terms.hidden[-1][0], terms.probabilities[0]
    mean = is_known * hidden.mean(0)
    left = probabilities.T @ hidden / len(hidden) - problem.target[-1]
    shares = (left * mean).sum(1) / mean.square().sum(1).clamp_min(torch.finfo(mean.dtype).tiny)
    return expand_counts(round_counts(problem.n_rows * shares.cpu(), problem.n_rows)).to(mean.device)


def labels_without(labels: Tensor, known: Tensor) -> Tensor:
    """Labels of the other rows of a batch; of a class that has too few to start with, any others are taken out.

    Args:
        labels: of all rows ``[n]``.
        known: of some of them ``[m]``.

    >>> labels_without(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1, 1, 1, 0])).tolist()
    [0]
    """
    left = labels.tolist()
    for label in known.tolist():
        left.remove(label if label in left else left[-1])
    return labels.new_tensor(left)
