"""The course of the exact inversion of a weight update: tests first, a fit of all layers for what they leave open."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.fedavg.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.exact.fedavg.counts import (
    class_counts,
    predicted_shares,
    single_counts,
)
from lightleak.attacks.gradient_inversion.exact.fedavg.decomposition import Decomposition, decompose, refine
from lightleak.attacks.gradient_inversion.exact.fedavg.explain import gather
from lightleak.attacks.gradient_inversion.exact.fedavg.leftovers import Known, fit, problem_of
from lightleak.attacks.gradient_inversion.exact.fedavg.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.exact.fedavg.proof import proven_rows
from lightleak.attacks.gradient_inversion.exact.prior import RowPrior
from lightleak.attacks.gradient_inversion.exact.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.attacks.gradient_inversion.exact.schema_inference import infer_space
from lightleak.data.encoder import TableEncoder

COMPLETE_BELOW = 10.0
"""What rows may leave of the first layer's update, relative to rounding, when they are all of the batch: measured 0.2
to 4 where every row was right, and over 50 with one wrong category."""

PROVEN = 1.5
"""The same for a proof: no more than rounding. Between the two all categories are right, but a number that little
depends on may be off."""

SETTLED = 3e-3
"""Squared distance, relative to that of no rows, at which no further fit is tried: where all rows were right it was
1e-3 or less, by which the straight way of the weights differs from the true one, and with a wrong cell over 1e-2."""

MATCHES = 0.3
"""Part of a row's share that its predicted share may miss while its label is taken as known: the way of the weights
is known to 5 to 15 %, and the wrong label or a wrong scale misses by all of it."""


@dataclass(frozen=True)
class Inverted:
    """Rows of an update.

    Attributes:
        space: whose coordinates.
        codes: LongTensor ``[n, K]``.
        numbers: ``[n, F]``.
        labels: LongTensor ``[n]``.
        multiplicity: rows that are equal to each ``[n]``.
        certain: its categories, label and multiplicity are proven, bool ``[n]``.
        digits: so are its numbers, bool ``[n]``.
        explained: they explain the first layer's update to rounding.
        left: norm of what they leave of it, relative to its own.
        equations: of the update.
    """

    space: RowSpace
    codes: Tensor
    numbers: Tensor
    labels: Tensor
    multiplicity: Tensor
    certain: Tensor
    digits: Tensor
    explained: bool
    left: float
    equations: RowEquations


def invert(
    observed: WeightUpdate,
    encoder: TableEncoder,
    prior: RowPrior,
    n_rows: int,
    config: ExactFedAvgConfig,
    generator: torch.Generator,
) -> Inverted:
    """Find the rows behind an update.

    Args:
        observed: the update.
        encoder: on the same device.
        prior: what is believed of cells.
        n_rows: rows behind it.
        config: limits of the work.
        generator: a CPU generator.
    """
    space = infer_space(observed.gradient[0], encoder, prior, n_rows, noise=observed.noise)
    equations = RowEquations.of(observed.gradient[0], space, n_rows, observed.noise)
    _, rows = gather(observed, equations, config.limits, generator)
    if len(rows) == equations.rank > 0:
        found = decompose(equations, rows.vectors)
        if found.left >= COMPLETE_BELOW:
            found = refine(observed, equations, rows.codes, rows.numbers)
        # With fewer distinct rows than rows, one might hide in the noise instead of being equal to another.
        if found.left < (COMPLETE_BELOW if equations.rank == n_rows else PROVEN):
            return _of_decomposition(observed, equations, found, n_rows)
    scale = (rows.vectors * equations.coordinates(rows.codes, rows.numbers)).sum(1, keepdim=True)
    shares = (rows.vectors @ equations.gradient.T) / scale
    single = single_counts(shares, predicted_shares(observed, space.rows.of(rows.codes, rows.numbers), n_rows))
    fixed = rows.unique & (single.misfit < MATCHES)
    known = Known(rows.codes, rows.numbers, single.counts.argmax(1), fixed, rows.precise)
    return _fitted(observed, equations, known, n_rows, config, generator)


def _of_decomposition(observed: WeightUpdate, equations: RowEquations, found: Decomposition, n_rows: int) -> Inverted:
    """All distinct rows are found: each as often as its share says."""
    space = equations.space
    x = space.encode(space.cells(found.codes, found.numbers))
    of_classes = class_counts(found.shares, predicted_shares(observed, x, n_rows), n_rows, observed.fit_scale)
    counts = of_classes.counts
    times = counts.sum(1)
    each = torch.repeat_interleave(torch.arange(len(times), device=times.device), times)
    classes = torch.arange(counts.shape[1], device=times.device)
    labels = torch.cat([torch.repeat_interleave(classes, of_row) for of_row in counts])
    proof = proven_rows(observed, space, found.codes, found.numbers, counts, n_rows, equations.rank)
    left = _relative(found, equations)
    return Inverted(
        space,
        found.codes[each],
        found.numbers[each],
        labels,
        times[each],
        proof.cells[each],
        proof.digits[each],
        True,
        left,
        equations,
    )


def _relative(found: Decomposition, equations: RowEquations) -> float:
    """What a decomposition leaves, relative to the update instead of to the noise."""
    gradient = equations.gradient
    norm = float(gradient.norm())
    return found.left * equations.noise * gradient.numel() ** 0.5 / norm if norm > 0 else 0.0


def _fitted(
    observed: WeightUpdate,
    equations: RowEquations,
    known: Known,
    n_rows: int,
    config: ExactFedAvgConfig,
    generator: torch.Generator,
) -> Inverted:
    """The best of several fits: the first that is proven, else the one of least distance."""
    space = equations.space
    problem = problem_of(observed, space, n_rows, generator)
    best, least, left = None, float("inf"), 1.0
    for _ in range(config.restarts):
        rows, value = fit(problem, known, n_rows, config.steps, generator)
        refined = refine(observed, equations, rows.codes, rows.numbers)
        remains = _relative(refined, equations)
        if refined.left < PROVEN:
            return _of_fit(observed, equations, refined, rows.labels, n_rows)
        if best is None or value < least:
            best, least, left = rows, value, remains
        if least < SETTLED:
            break
    assert best is not None
    certain = torch.zeros_like(best.labels, dtype=torch.bool)
    certain[: len(known.codes)] = known.fixed & known.sure
    alone = torch.ones_like(best.labels)
    return Inverted(space, best.codes, best.numbers, best.labels, alone, certain, certain, False, left, equations)


def _of_fit(
    observed: WeightUpdate, equations: RowEquations, found: Decomposition, labels: Tensor, n_rows: int
) -> Inverted:
    """All rows are found, some of them perhaps more than once."""
    space = equations.space
    codes, values = space.cells(found.codes, found.numbers)
    _, source = torch.cat([codes.to(values.dtype), values], 1).unique(dim=0, return_inverse=True)
    first = torch.stack([(source == i).nonzero()[0, 0] for i in range(int(source.max()) + 1)])
    counts = labels.new_zeros(len(first), observed.start.n_classes)
    counts.index_put_((source, labels), torch.ones_like(labels), accumulate=True)
    proof = proven_rows(observed, space, found.codes[first], found.numbers[first], counts, n_rows, equations.rank)
    left = _relative(found, equations)
    return Inverted(
        space,
        found.codes,
        found.numbers,
        labels,
        counts.sum(1)[source],
        proof.cells[source],
        proof.digits[source],
        True,
        left,
        equations,
    )
