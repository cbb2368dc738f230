"""Is a candidate in the batch, how often, and with which labels: three tests in float64."""

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one

MOST_EQUAL = 3
"""Equal rows whose label counts are tried one by one, whatever the number of classes; of more, see `_many_equal`."""

MUCH_BETTER = 0.01
"""Counts of many equal rows are taken where their error is this part of that of the best counts of few: there are many,
and some fit roughly."""

READ_WITHIN = 1e-4
"""Relative error of an output derivative below which the least number of equal rows is taken that has it."""

LEAST_DIRECTION = 1e-9
"""Ridge, relative, where the column space leaves the direction of an output derivative open."""


@dataclass(frozen=True)
class Verdict:
    """How candidates fare.

    Attributes:
        row_distance: part of ``v`` outside the row space ``[n]``.
        unit_distance: part of the scaled ``d`` outside the column space, for the best label counts ``[n]``.
        coefficient_error: relative distance of the coefficient from that of the counts ``[n]``.
        counts: best label counts ``[n, classes]``.
        single: coefficient of a row that is alone, for the label that suits the column space best among those for
            which it is positive ``[n]``: 1 for a true row, and the inverse of what a client scaled its gradient by.
        single_distance: part of the scaled ``d`` outside the column space for that label ``[n]``.
    """

    row_distance: Tensor
    unit_distance: Tensor
    coefficient_error: Tensor
    counts: Tensor
    single: Tensor
    single_distance: Tensor


@cache
def label_hypotheses(n_classes: int) -> tuple[tuple[int, ...], ...]:
    """Label counts that up to `MOST_EQUAL` equal rows can have: of one class or of two.

    >>> label_hypotheses(2)[:5]
    ((1, 0), (0, 1), (2, 0), (0, 2), (3, 0))
    """
    found = []
    for times in range(1, MOST_EQUAL + 1):
        for one in range(n_classes):
            found.append(tuple(times if c == one else 0 for c in range(n_classes)))
    for one, other in combinations(range(n_classes), 2):
        for first, second in [(1, 1), (2, 1), (1, 2)] if n_classes == 2 else [(1, 1)]:
            found.append(tuple(first if c == one else second if c == other else 0 for c in range(n_classes)))
    return tuple(found)


def verify(network: RowNetwork, layer: int, spaces: Spaces, x: Tensor, n_rows: int, most_equal: int = 1) -> Verdict:
    """Test rows against the spaces of a layer's gradient.

    Args:
        network: float64.
        layer: index of the layer, from 0.
        spaces: of that layer's gradient.
        x: rows ``[n, d]``, float64.
        n_rows: rows of the batch.
        most_equal: of them that may be equal; beyond `MOST_EQUAL` they are read off the output derivative.
    """
    few = x.new_tensor(label_hypotheses(network.n_classes))
    hypotheses = few.expand(len(x), -1, -1)
    if most_equal > MOST_EQUAL:
        hypotheses = torch.cat([hypotheses, _many_equal(network, layer, spaces, x, n_rows, most_equal).unsqueeze(1)], 1)
    row_distance, unit_distance, coefficient = held_against(network, layer, spaces, x, hypotheses, n_rows)
    error = (coefficient - 1).abs()
    # The coefficient distinguishes counts whose directions are the same; the column space those that differ.
    distance = error + unit_distance
    best = distance[:, : len(few)].argmin(1, keepdim=True)
    if most_equal > MOST_EQUAL:
        better = distance[:, -1:] < MUCH_BETTER * distance.gather(1, best)
        best = torch.where(better, len(few), best)
    single, single_distance = coefficient[:, : network.n_classes], unit_distance[:, : network.n_classes]
    single_distance = torch.where(single > 0, single_distance, torch.full_like(single_distance, torch.inf))
    nearest = single_distance.argmin(1, keepdim=True)
    return Verdict(
        row_distance=row_distance,
        unit_distance=unit_distance.gather(1, best).squeeze(1),
        coefficient_error=error.gather(1, best).squeeze(1),
        counts=hypotheses[torch.arange(len(x)), best.squeeze(1)],
        single=single.gather(1, nearest).squeeze(1),
        single_distance=single_distance.gather(1, nearest).squeeze(1),
    )


def _many_equal(network: RowNetwork, layer: int, spaces: Spaces, x: Tensor, n_rows: int, most: int) -> Tensor:
    """Label counts of rows, however many of the batch are equal to each, ``[n, classes]``.

    The output derivative ``o = N p - counts`` of a row is determined: its ``d`` lies in the column space, and its
    coefficient is 1. The least N is taken for which ``N p - o`` are whole numbers that sum to N.
    """
    activations = network.forward(x)
    classes = network.n_classes
    # Derivatives by the logits sum to zero.
    basis = torch.linalg.qr(torch.eye(classes).to(x) - 1 / classes)[0][:, : classes - 1]
    every = basis.T.expand(len(x), -1, -1)
    d = network.error_parts(layer, activations, every) / spaces.unit_scale  # [n, classes - 1 or classes, out]
    outside = d @ spaces.unit_null
    gram = outside @ outside.mT
    size = gram.diagonal(dim1=1, dim2=2).sum(1).clamp_min(torch.finfo(x.dtype).tiny)
    gram = gram + LEAST_DIRECTION * torch.diag_embed(size.unsqueeze(1).expand(-1, gram.shape[1]))
    toward = (d @ (with_one(activations.hidden[layer]) @ spaces.inverse).unsqueeze(-1)) / n_rows
    solved = torch.linalg.solve(gram, toward)
    output = (solved / (toward.mT @ solved)).squeeze(-1)[:, : classes - 1] @ basis.T  # [n, classes]
    times = torch.arange(1, most + 1).to(x).view(1, -1, 1)
    raw = times * activations.probabilities.unsqueeze(1) - output.unsqueeze(1)  # [n, most, classes]
    counts = raw.round()
    possible = (counts >= 0).all(-1) & (counts.sum(-1) == times.squeeze(-1))
    error = (raw - counts).norm(dim=-1) / output.norm(dim=-1, keepdim=True)
    error = torch.where(possible, error, torch.inf).nan_to_num(torch.inf)
    fits = error < READ_WITHIN
    chosen = torch.where(fits.any(1), fits.int().argmax(1), error.argmin(1))
    return counts[torch.arange(len(x)), chosen].nan_to_num().clamp_min(0)


def held_against(
    network: RowNetwork, layer: int, spaces: Spaces, x: Tensor, counts: Tensor, n_rows: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The three tests of rows ``[n, d]`` for label counts ``[n or 1, hypotheses, classes]``.

    Returns:
        Part of ``v`` outside the row space ``[n]``; part of the scaled ``d`` outside the column space and the
        coefficient, 1 for a true row, ``[n, hypotheses]``.
    """
    activations = network.forward(x)
    v = with_one(activations.hidden[layer])
    d = network.error_of_rows(layer, activations, counts) / spaces.unit_scale
    unit_distance = (d @ spaces.unit_null).norm(dim=-1) / d.norm(dim=-1).clamp_min(torch.finfo(d.dtype).tiny)
    coefficient = ((v @ spaces.inverse).unsqueeze(1) * d).sum(-1) / n_rows
    return (v @ spaces.row_null).norm(dim=1) / v.norm(dim=1), unit_distance, coefficient
