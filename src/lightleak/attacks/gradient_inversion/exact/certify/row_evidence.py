"""Rows measured against the spaces of several layers: distances, equations on their numbers, and their rounding."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.row_tests.verification import held_against
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one
from lightleak.core.certificate import NUMBERS_WITHIN
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

ROW_TOLERANCE, UNIT_TOLERANCE, COEFFICIENT_TOLERANCE = 2e-5, 6e-4, 1e-3
"""Of a row alone. True rows of Adult in batches of up to 96 reach 3e-5, 1e-5 and 4e-4 in untrained networks."""

FIRST_LAYER_FACTOR = 10.0
"""The first layer's row space is blurred more, as rare categories make its smallest singular values small."""

VECTOR_ROUNDING = 3e-7
"""Rounding of a row's activations in the client's float32, relative to their norm."""


def number_tolerances(encoder: TableEncoder) -> Tensor:
    """How far a certified number may lie from the true one, in the table's units ``[m]``; whole ones are equal."""
    whole = torch.tensor([column.kind is ColumnKind.INTEGER for column in encoder.schema.numerical], dtype=torch.bool)
    within = NUMBERS_WITHIN * encoder.deviation
    return torch.where(whole.to(within.device), within.clamp_min(0.5), within)


@dataclass(frozen=True)
class RowEvidence:
    """Rows measured against the spaces of several layers.

    Attributes:
        x, counts: the rows ``[r, d]`` and their label counts ``[r, classes]``.
        layers: indices of the layers.
        searched: that of the layer whose coefficient is read.
        row_distance, unit_distance, coefficient: of each layer, see `held_against`, ``[layers, r]``.
        missed: what is left of each equation of the row spaces, in units of its rounding ``[r, Q]``.
        slopes: what a change of one cell does to the equations, in the same units, by encoded position
            ``[r, d, Q]``; see `RowNetwork.cell_steps`.
        tolerance: in the same units ``[r, Q]``.
        spare: equations of the layers behind the first, and the coefficient ``[r]``.
        error: deviation of the coefficient's rounding ``[r]``.
        coefficient_slopes: derivative of the coefficient by every encoded number ``[r, m]``.
        output: derivative of the loss of a row by its logits, times its rows ``[r, classes]``.
        probabilities: of the rows ``[r, classes]``.
        n_rows: of the batch.
    """

    x: Tensor
    counts: Tensor
    layers: tuple[int, ...]
    searched: int
    row_distance: Tensor
    unit_distance: Tensor
    coefficient: Tensor
    missed: Tensor
    slopes: Tensor
    tolerance: Tensor
    spare: Tensor
    error: Tensor
    coefficient_slopes: Tensor
    output: Tensor
    probabilities: Tensor
    n_rows: int


def evidence_of(
    network: RowNetwork, layers: dict[int, Spaces], x: Tensor, counts: Tensor, n_rows: int, encoder: TableEncoder
) -> RowEvidence:
    """Measure rows against the spaces of layers.

    Args:
        network: whose gradient it is.
        layers: spaces by the index of their layer, that of the searched one among them.
        x: rows ``[r, d]``.
        counts: rows of each class that are equal to them ``[r, classes]``.
        n_rows: of the batch.
        encoder: of the rows.
    """
    activations = network.forward(x)
    p, output = activations.probabilities, counts.sum(-1, keepdim=True) * activations.probabilities - counts
    held = [held_against(network, at, spaces, x, counts.unsqueeze(1), n_rows) for at, spaces in layers.items()]
    steps = network.cell_steps(x, encoder)
    missed, slopes, tolerance, spare = [], [], [], torch.ones_like(p[:, 0])
    for at, spaces in layers.items():
        v = with_one(activations.hidden[at])
        norm = v.norm(dim=1, keepdim=True)
        rounding = VECTOR_ROUNDING * norm / v.shape[1] ** 0.5
        noise = ((spaces.noise * (v @ spaces.inverse).norm(dim=1, keepdim=True)).square() + rounding.square()).sqrt()
        missed.append(v @ spaces.row_null / noise)
        slopes.append(steps[at] @ spaces.row_null[:-1] / noise.unsqueeze(-1))
        allowed = ROW_TOLERANCE * (FIRST_LAYER_FACTOR if at == 0 else 1.0) * norm / noise
        tolerance.append(allowed.expand_as(missed[-1]))
        if at > 0 or not network.first_sees_cells:
            active = 1 + (activations.hidden[at] != 0).sum(1)
            spare = spare + active.clamp_max(spaces.row_null.shape[1])
    searched, numbers = network.searched, list(encoder.numerical_positions)
    spaces, v = layers[searched], with_one(activations.hidden[searched])
    d = network.error_of_rows(searched, activations, counts) / spaces.unit_scale
    dual_units, dual_inputs = v @ spaces.inverse, d @ spaces.inverse.T / n_rows
    each_number = torch.eye(x.shape[1])[numbers].to(x)
    by_units = network.error_slopes(activations, counts, each_number)[searched] / spaces.unit_scale
    by_number = (steps[searched][:, numbers] @ dual_inputs[:, :-1].unsqueeze(-1)).squeeze(-1)
    by_number = by_number + (by_units @ dual_units.unsqueeze(-1)).squeeze(-1) / n_rows
    return RowEvidence(
        x,
        counts,
        tuple(layers),
        searched,
        torch.stack([one[0] for one in held]),
        torch.stack([one[1].squeeze(1) for one in held]),
        torch.stack([one[2].squeeze(1) for one in held]),
        torch.cat(missed, 1),
        torch.cat(slopes, 2),
        torch.cat(tolerance, 1),
        spare,
        spaces.noise * dual_units.norm(dim=1) * dual_inputs.norm(dim=1),
        by_number,
        output,
        p,
        n_rows,
    )
