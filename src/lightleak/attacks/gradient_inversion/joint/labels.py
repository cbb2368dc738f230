"""Labels to start from: how many rows of each class, by the last bias, or by bounds on all layers."""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.intervals import MOST_ELEMENTS, Intervals
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


def labels_within(problem: JointProblem, intervals: Intervals, generator: torch.Generator) -> Tensor:
    """Labels in class order, LongTensor ``[n]``, of the counts under which believed rows cost least on average.

    One row after the other changes its class, as long as that helps: the least cost of all for two classes.

    Args:
        problem: of the rows.
        intervals: in which the elements of their gradient lie.
        generator: a CPU generator.
    """
    n, terms = problem.n_rows, problem.terms(*problem.space.draw(BELIEVED_ROWS, generator, from_prior=True))
    means = [terms.gradient(of_class) for of_class in terms.coefficients(BELIEVED_ROWS).unbind(1)]
    layers = [torch.stack(layer) for layer in zip(*means, strict=True)]  # of a batch of one class each
    classes, at_once = len(means), max(1, MOST_ELEMENTS // max(layer[0].numel() for layer in layers))
    each = torch.eye(classes, dtype=torch.long)
    moves = torch.stack([b - a for a in each for b in each]).unique(dim=0)  # one of them none

    def cost(counts: Tensor) -> Tensor:
        shares = (counts / n).to(layers[0])
        return intervals([torch.einsum("mc,cij->mij", shares, layer) for layer in layers])[0]

    counts = round_counts(torch.full((classes,), n / classes), n)
    while True:
        tried = counts + moves
        tried = tried[(tried >= 0).all(1)]
        best = tried[int(torch.cat([cost(some) for some in tried.split(at_once)]).argmin())]
        if torch.equal(best, counts):
            return expand_counts(counts).to(problem.nodes.shares.device)
        counts = best


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
