"""A test of one row against a first layer's update that needs no other row, label, epoch or order.

A hidden unit that a row leaves silent (``a_1 <= 0``) at every weight it was trained at gets nothing from it: ``D_i`` is
zero there. And there is a vector ``z_i`` in the rows' span with ``z_i (x_i, 1) = 1`` and ``z_i (x_j, 1) = 0`` for all
other rows, so that ``D_i = G z_i``. So for a row of the batch, and hardly for any other, some z of the span makes
``G z`` vanish on its silent units: with r distinct rows, that is more equations than unknowns as soon as more than r
units are silent. z comes out with it, and with it the row's exact share D_i in the update.

ReLU's zeros were first used so by SPEAR (Dimitrov et al., NeurIPS 2024), on the gradient of one step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate

AT_ONCE = 1000
"""Rows tested at once: each needs a matrix of the size of the rank, squared."""

FITS = 16.0
"""A row passes below this misfit (four deviations of the noise, squared). Of 2,000 rows of Adult batches all had less
than 1.2, and wrong rows mostly over 1,000."""

DISTINCT = 100.0
"""A row's z is its own where the next best direction fits worse than this (ten deviations of the noise, squared)."""

LEAST_SPARE = 5
"""Equations beyond the unknowns that make passing by chance impossible in practice: each would have to hold to a part
in a thousand."""

NOTHING = 4.0
"""Deviations of the noise below which a row's share in a unit's update is none."""

LEVEL = 1e-2
"""Part of the noise's own contribution that is added to the equations, so that they can always be solved."""


@dataclass(frozen=True)
class SilenceTest:
    """Outcome of the test for rows.

    Attributes:
        duals: coordinates of every row's ``z`` in the span ``[n, rank]``, scaled so that ``z (x, 1) = 1``.
        misfit: what ``G z`` leaves on the silent units, squared, relative to what noise explains ``[n]``: about 1 for
            a row of the batch.
        runner_up: what the next best direction of the span leaves, likewise ``[n]``: about 1, too, where several rows
            of the batch share the silent units, so that the z found is a mixture of theirs.
        spare: silent units beyond what some z can always satisfy ``[n]``: with none, the test says nothing.
    """

    duals: Tensor
    misfit: Tensor
    runner_up: Tensor
    spare: Tensor

    def passed(self) -> Tensor:
        """Which rows passed a test that could fail and is not shared with another row, bool ``[n]``."""
        return (self.misfit < FITS) & (self.runner_up > DISTINCT) & (self.spare >= LEAST_SPARE)


def silence(observed: WeightUpdate, x: Tensor) -> Tensor:
    """How far below zero units stay during local training ``[n, h]``; above 0: silent beyond doubt.

    A row's pre-activations are known before and after; between, they are taken to stay within as much again as they
    moved.

    Args:
        observed: the update.
        x: encoded rows ``[n, d]``.
    """
    start, end = observed.start, observed.between(observed.last)
    before = x @ start.weights[0].T + start.biases[0]
    after = x @ end.weights[0].T + end.biases[0]
    return -torch.maximum(before, after) - (after - before).abs()


def silence_test(equations: RowEquations, coordinates: Tensor, silent: Tensor) -> SilenceTest:
    """Test rows.

    Args:
        equations: of the update.
        coordinates: of the rows ``[n, coordinates]``, see `RowEquations.coordinates`.
        silent: their silent units, bool ``[n, h]``.
    """
    rank, noise = equations.rank, equations.noise
    image = equations.gradient @ equations.span.T
    spare = silent.sum(1) - rank + 1
    duals, misfit, runner_up = [], [], []
    identity = torch.eye(rank, dtype=image.dtype, device=image.device)
    for row, mask in zip((coordinates @ equations.span.T).split(AT_ONCE), silent.split(AT_ONCE), strict=True):
        weight = mask.to(image.dtype)
        level = noise**2 * (1 + LEVEL * weight.sum(1))
        normal = torch.einsum("hr,nh,hs->nrs", image, weight, image) + level[:, None, None] * identity
        dual = torch.linalg.solve(normal, row.unsqueeze(-1)).squeeze(-1)
        dual = dual / (row * dual).sum(1, keepdim=True)
        left = ((dual @ image.T).square() * weight).sum(1)
        explained = noise**2 * (weight.sum(1) - rank + 1).clamp_min(1)
        duals.append(dual)
        misfit.append(left / (explained * dual.square().sum(1)))
        runner_up.append(_second(normal, misfit[-1] < FITS) / explained)
    return SilenceTest(torch.cat(duals), torch.cat(misfit), torch.cat(runner_up), spare)


def nothing(equations: RowEquations, vectors: Tensor) -> Tensor:
    """Units to which rows give nothing but noise, bool ``[n, h]``: all their silent ones, where some were enough.

    Args:
        equations: of the update.
        vectors: duals of the rows ``[n, coordinates]``, of any length.
    """
    share = vectors @ equations.gradient.T
    return share.abs() <= NOTHING * equations.noise * vectors.norm(dim=1, keepdim=True)


def _second(normal: Tensor, wanted: Tensor) -> Tensor:
    """Second least eigenvalue of matrices ``[n, r, r]`` where it is wanted, else 0; infinite where there is none."""
    second = normal.new_zeros(len(normal))
    if normal.shape[1] < 2:
        return second + float("inf")
    second[wanted] = torch.linalg.eigvalsh(normal[wanted])[:, 1]
    return second
