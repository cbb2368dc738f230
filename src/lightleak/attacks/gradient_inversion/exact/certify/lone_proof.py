"""Is a row proven by its own equations, whatever the rest of the batch is?

A row of the batch passes the tests of `verification`: its vectors lie in the row and the column space of each layer's
gradient, and its coefficient is that of its label and multiplicity. A wrong row may pass them too, where its numbers
can be bent to meet them. Under ReLU the column space fixes masks and label but says nothing about a number inside its
mask cell; numbers are constrained by the row spaces and the coefficient. So a row is proven only where

* no other categories, with any numbers, would meet the row spaces' equations as well (`_tell_apart`), and,
* for its digits, these equations determine every number to `NUMBERS_WITHIN`, by standard errors that follow from the
  rounding of the gradient (`_numbers`).
"""

from dataclasses import dataclass
from math import log10

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.row_tests.verification import MOST_EQUAL, backpropagated, held_against
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces, numerical_rank, spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, with_one
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.certificate import NUMBERS_WITHIN
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

LAYER = 1
"""Index of the layer whose coefficient is read: its input depends on one matrix alone, and it has more than the first
layer's few inputs."""

ROW_TOLERANCE, UNIT_TOLERANCE, COEFFICIENT_TOLERANCE = 2e-5, 6e-4, 1e-3
"""Of a row alone. True rows of Adult in batches of up to 96 reach 3e-5, 1e-5 and 4e-4 in untrained networks."""

DOUBTFUL_COEFFICIENT_TOLERANCE = 2e-5
"""Of equal rows, and where the rank does not count all rows. Different rows that share all masks show as one whose
numbers are their weighted mean; the coefficient alone tells it from a row, unless that fits by chance."""

FIRST_LAYER_FACTOR = 10.0
"""The first layer's row space is blurred more, as rare categories make its smallest singular values small."""

CLEAR_GAP = 100.0
"""A spectrum that runs into rounding without a gap tells no rank, and its spaces are not those of the rows. Batches of
96 at width 100 still have a gap of 300."""

SPARE_TESTS = 4
"""Equations on a row beyond its numbers: a wrong row meets each within the tolerance once in thousands of times, and a
search looks at millions of rows."""

SEEN = 30.0
"""Tolerances by which a row with one or two other categories must miss the equations, whatever its numbers."""

MARGIN = 4.0
"""Decimal digits of evidence beyond those that name one combination of categories among all."""

STANDARD_ERRORS = 5.0
"""Standard errors that must fit within a tolerance."""

VECTOR_ROUNDING = 3e-7
"""Rounding of a row's activations in the client's float32, relative to their norm."""

COEFFICIENT_KNOWN = 0.02
"""Relative standard error that numbers may leave in a coefficient which is to tell label and multiplicity."""

LEAST_APART = 1e-4
"""Relative distance of the coefficients of two readings of label and multiplicity that are told apart."""

UNBOUNDED = 1e-12
"""Eigenvalues of the numbers' normal matrix, in units of tolerances, are raised to this: an error without bound."""

ELEMENTS = 4_000_000
"""Derivatives that are held at once."""


def lone_proof(residual: Residual, space: RowDomain, all_distinct: bool = False) -> tuple[Tensor, Tensor]:
    """Which explained rows are proven by their own equations: their cells and their digits, bool ``[r]`` each.

    Args:
        residual: explained rows and what is left.
        space: rows that may be in the batch.
        all_distinct: prove nothing unless the gradient shows as many distinct rows as the batch has.
    """
    rows, n = len(residual.x), residual.n_rows
    whole = [spaces_of(layer, unit_scale(layer), most=n) for layer in residual.observed[:-1]]
    cells, digits = torch.zeros(2, rows, dtype=torch.bool, device=residual.x.device)
    if len(whole) <= LAYER or any(spaces.rank > n for spaces in whole) or not whole[LAYER].gap > CLEAR_GAP:
        return cells, digits
    if all_distinct and whole[LAYER].rank < n:
        return cells, digits
    # A deeper layer of another rank shows sums of rows only, or has lost them.
    same = [at for at in range(LAYER, len(whole)) if whole[at].rank == whole[LAYER].rank and whole[at].gap > CLEAR_GAP]
    used = {at: whole[at] for at in (0, *same)}
    all_show = _all_show(residual, whole[LAYER])
    width = space.encoder.width * sum(spaces.row_null.shape[1] for spaces in used.values())
    for at in torch.arange(rows).split(max(1, ELEMENTS // max(1, width))):
        tested = _tested(residual.chain, used, residual.x[at], residual.counts[at], n)
        numbers = _numbers(tested, space.encoder)
        sure = _passes(tested, numbers, all_show) & _tell_apart(tested, space)
        cells[at] = sure
        alone = (residual.counts[at].sum(-1) == 1) | (len(space.encoder.schema.numerical) == 0)
        digits[at] = sure & alone & numbers.determined
    return cells, digits


def number_tolerances(encoder: TableEncoder) -> Tensor:
    """How far a certified number may lie from the true one, in the table's units ``[m]``; whole ones are equal."""
    whole = torch.tensor([column.kind is ColumnKind.INTEGER for column in encoder.schema.numerical], dtype=torch.bool)
    within = NUMBERS_WITHIN * encoder.deviation
    return torch.where(whole.to(within.device), within.clamp_min(0.5), within)


def log_combinations(space: RowDomain) -> float:
    """Decimal logarithm of the number of combinations of categories that a row may have."""
    return sum(log10(size) for size in space.sizes)


@dataclass(frozen=True)
class _Tested:
    """Rows held against the spaces of several layers.

    Attributes:
        x, counts: the rows ``[r, d]`` and their label counts ``[r, classes]``.
        layers: indices of the layers.
        row_distance, unit_distance, coefficient: of each layer, see `held_against`, ``[layers, r]``.
        missed: what is left of each equation of the row spaces, in units of its rounding ``[r, Q]``.
        slopes: derivative of the equations by the raw value at every encoded position, in the same units ``[r, d, Q]``.
        tolerance: in the same units ``[r, Q]``.
        spare: equations of the layers behind the first, and the coefficient ``[r]``.
        error: deviation of the coefficient's rounding ``[r]``.
        coefficient_slopes: derivative of its logarithm by the raw value at every position ``[r, d]``.
        output: derivative of the loss of a row by its logits, times its rows ``[r, classes]``.
        probabilities: of the rows ``[r, classes]``.
        n_rows: of the batch.
    """

    x: Tensor
    counts: Tensor
    layers: tuple[int, ...]
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


def _tested(chain: ReLUChain, layers: dict[int, Spaces], x: Tensor, counts: Tensor, n_rows: int) -> _Tested:
    activations = chain.forward(x)
    p, output = activations.probabilities, counts.sum(-1, keepdim=True) * activations.probabilities - counts
    held = [held_against(chain, at, spaces, x, counts.unsqueeze(1), n_rows) for at, spaces in layers.items()]
    steps = tuple(chain.slopes(activations.masks, torch.eye(x.shape[1]).to(x)))
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
        if at > 0:
            active = 1 + (activations.hidden[at] > 0).sum(1)
            spare = spare + active.clamp_max(spaces.row_null.shape[1])
    spaces, v = layers[LAYER], with_one(activations.hidden[LAYER])
    d = backpropagated(chain, LAYER, activations.masks, output) / spaces.unit_scale
    dual_units, dual_inputs = v @ spaces.inverse, d @ spaces.inverse.T / n_rows
    logits = steps[-1] @ chain.weights[-1].T
    moved = p.unsqueeze(1) * (logits - (p.unsqueeze(1) * logits).sum(-1, keepdim=True))
    moved = moved * counts.sum(-1)[:, None, None]
    masks = [mask.unsqueeze(1) for mask in activations.masks]
    by_units = backpropagated(chain, LAYER, masks, moved) / spaces.unit_scale
    by_position = (steps[LAYER] @ dual_inputs[:, :-1].unsqueeze(-1)).squeeze(-1)
    by_position = by_position + (by_units @ dual_units.unsqueeze(-1)).squeeze(-1) / n_rows
    return _Tested(
        x,
        counts,
        tuple(layers),
        torch.stack([one[0] for one in held]),
        torch.stack([one[1].squeeze(1) for one in held]),
        torch.stack([one[2].squeeze(1) for one in held]),
        torch.cat(missed, 1),
        torch.cat(slopes, 2),
        torch.cat(tolerance, 1),
        spare,
        spaces.noise * dual_units.norm(dim=1) * dual_inputs.norm(dim=1),
        by_position,
        output,
        p,
        n_rows,
    )


@dataclass(frozen=True)
class _Numbers:
    """What the equations say of the numbers of rows.

    Attributes:
        determined: every number is, within its tolerance, bool ``[r]``.
        coefficient_error: standard error of the coefficient by what the row spaces leave open of the numbers ``[r]``.
    """

    determined: Tensor
    coefficient_error: Tensor


def _numbers(tested: _Tested, encoder: TableEncoder) -> _Numbers:
    """Least squares for the numbers of each row, categories held: step and standard errors against the tolerances."""
    at, tolerance = encoder.numerical_positions, number_tolerances(encoder)
    if not len(tolerance):
        sure = torch.ones_like(tested.error, dtype=torch.bool)
        return _Numbers(sure, torch.zeros_like(tested.error))
    # A step of one tolerance in every number, in units of rounding.
    steps = tested.slopes[:, at] * (tolerance / encoder.scale[at])[:, None]  # [r, m, Q]
    normal, right = steps @ steps.mT, (steps @ tested.missed.unsqueeze(-1)).squeeze(-1)
    of_coefficient = tested.coefficient_slopes[:, at] * (tolerance / encoder.scale[at])  # [r, m]
    values, vectors = torch.linalg.eigh(normal)
    along = (vectors * of_coefficient.unsqueeze(-1)).sum(1)
    open_error = (along.square() / values.clamp_min(UNBOUNDED)).sum(1).sqrt()
    by_coefficient = of_coefficient / tested.error.clamp_min(VECTOR_ROUNDING).unsqueeze(-1)
    off = (tested.coefficient[tested.layers.index(LAYER)] - 1) / tested.error.clamp_min(VECTOR_ROUNDING)
    values, vectors = torch.linalg.eigh(normal + by_coefficient.unsqueeze(-1) * by_coefficient.unsqueeze(1))
    inverse = (vectors / values.clamp_min(UNBOUNDED).unsqueeze(1)) @ vectors.mT
    right = right + by_coefficient * off.unsqueeze(-1)
    change = (inverse @ right.unsqueeze(-1)).squeeze(-1)
    squares = tested.missed.square().sum(1) + off.square() - (right * change).sum(1)
    misfit = (squares.clamp_min(0) / max(1, tested.missed.shape[1] + 1 - len(at))).sqrt().clamp_min(1)
    error = inverse.diagonal(dim1=1, dim2=2).sqrt() * misfit.unsqueeze(-1)
    determined = (change.abs() + STANDARD_ERRORS * error).amax(1) < 1
    return _Numbers(determined, open_error * misfit)


def _passes(tested: _Tested, numbers: _Numbers, all_show: bool) -> Tensor:
    """Rows that pass every test, whose coefficient allows one reading only, and whose numbers leave tests over."""
    first = torch.tensor([FIRST_LAYER_FACTOR if at == 0 else 1.0 for at in tested.layers]).to(tested.x)
    deeper = torch.tensor([at > 0 for at in tested.layers], device=tested.x.device)
    off = (tested.coefficient[deeper] - 1).abs().amax(0)
    single = tested.counts.sum(-1) == 1
    strict = torch.full_like(off, COEFFICIENT_TOLERANCE)
    strict[~single | (not all_show)] = DOUBTFUL_COEFFICIENT_TOLERANCE
    passed = (tested.row_distance < ROW_TOLERANCE * first.unsqueeze(1)).all(0)
    passed &= (tested.unit_distance[deeper] < UNIT_TOLERANCE).all(0) & (off < strict)
    uncertain = STANDARD_ERRORS * (numbers.coefficient_error.square() + tested.error.square()).sqrt()
    passed &= (numbers.coefficient_error < COEFFICIENT_KNOWN) & _one_reading(tested, uncertain.clamp_min(LEAST_APART))
    return passed


def _one_reading(tested: _Tested, apart: Tensor) -> Tensor:
    """Rows whose output derivative no other label counts have to within a relative distance ``apart``, bool ``[r]``."""
    total = tested.counts.sum(-1)
    limit = torch.where(total == 1, MOST_EQUAL, float(tested.n_rows))
    p, output = tested.probabilities, tested.output
    only = torch.ones_like(total, dtype=torch.bool)
    one = torch.eye(p.shape[1]).to(p)
    moves = (one.unsqueeze(0) - one.unsqueeze(1)).flatten(0, 1)  # one row of a class is of another; or none
    for times in range(1, int(limit.max()) + 1):
        counts = (times * p - output).round().unsqueeze(1) + moves  # [r, moves, classes]
        possible = (counts >= 0).all(-1) & (counts.sum(-1) == times) & (times <= limit).unsqueeze(1)
        other = possible & (counts != tested.counts.unsqueeze(1)).any(-1)
        distance = (times * p.unsqueeze(1) - counts - output.unsqueeze(1)).norm(dim=-1)
        only &= ~(other & (distance < (apart * output.norm(dim=-1)).unsqueeze(1))).any(1)
    return only


def _tell_apart(tested: _Tested, space: RowDomain) -> Tensor:
    """Rows whose equations no other combination of present categories meets, whatever its numbers, bool ``[r]``."""
    encoder = space.encoder
    numbers = list(encoder.numerical_positions)
    enough = tested.spare - len(numbers) >= SPARE_TESTS
    equations = tested.tolerance.shape[1]
    if not sum(size - 1 for size in space.sizes):
        return enough
    if equations <= len(numbers):
        return torch.zeros_like(enough)
    by_position = tested.slopes / encoder.scale[:, None] / tested.tolerance.unsqueeze(1)  # [r, d, Q]
    codes = encoder.project(tested.x)[0]
    blocks, changes = [], []
    for k, (block, present) in enumerate(zip(encoder.layout.categorical, space.present, strict=True)):
        at = block.start + present
        own = by_position[torch.arange(len(codes)), block.start + codes[:, k]]
        change = by_position[:, at] - own.unsqueeze(1)
        changes.append(change)
        blocks += [k] * len(present)
    change = torch.cat(changes, 1)  # [r, options, Q]
    if numbers:
        basis, _ = torch.linalg.qr(by_position[:, numbers].mT)
        change = change - (change @ basis) @ basis.mT
    gram = change @ change.mT
    own_options = torch.cat([p == codes[:, k, None] for k, p in enumerate(space.present)], 1)
    size = gram.diagonal(dim1=1, dim2=2)
    single = torch.where(own_options, torch.inf, size).amin(1)
    of_block = torch.tensor(blocks, device=codes.device)
    excluded = (of_block.unsqueeze(1) == of_block) | own_options.unsqueeze(1) | own_options.unsqueeze(2)
    pairs = torch.where(excluded, torch.inf, size.unsqueeze(1) + size.unsqueeze(2) + 2 * gram).amin((1, 2))
    seen = torch.minimum(single, pairs) > SEEN**2
    spectrum = torch.linalg.eigvalsh(gram)
    evidence = 0.5 * spectrum.clamp_min(1).log10().sum(1) > log_combinations(space) + MARGIN
    all_seen = (spectrum > SEEN**2).sum(1) == sum(size - 1 for size in space.sizes)
    return enough & seen & (evidence | all_seen)


def _all_show(residual: Residual, spaces: Spaces) -> bool:
    """Whether a layer's rank counts all rows but those known to be dependent: then no row found is several in one."""
    explained = residual.chain.gradient(residual.x, residual.counts, residual.n_rows)[LAYER]
    known = int(residual.counts.sum())
    shown = numerical_rank(torch.linalg.svdvals(explained / spaces.unit_scale.unsqueeze(-1)), known)
    return residual.n_rows - spaces.rank == known - min(shown, known)
