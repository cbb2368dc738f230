"""Which of the rows that were found are proven: judged once, at the end, on the rows that are returned.

A row is proven in one of two ways. Alone (`lone_proof`): it passes the tests of `verification` against the whole
observed gradient, and its own equations leave no room for other cells. Or together: all rows are there, they leave no
more of the gradient than rounding, and the gradient determines them. Categories, label and multiplicity are one fact,
digits another: every number within `NUMBERS_WITHIN` deviations of the true one.
"""

from dataclasses import dataclass
from math import log10

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.alternatives import MARGIN, least_exchange, log_combinations
from lightleak.attacks.gradient_inversion.exact.certify.least_squares import STANDARD_ERRORS, solve
from lightleak.attacks.gradient_inversion.exact.certify.lone_proof import lone_proof
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.certify.row_evidence import ROW_TOLERANCE, number_tolerances
from lightleak.attacks.gradient_inversion.exact.repair.group_fit import Expansion, GroupProblem, Groups
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import numerical_rank, unit_scale
from lightleak.attacks.gradient_inversion.exact.spaces.residual import EXPLAINED, NOISE, Residual
from lightleak.attacks.gradient_inversion.network.row_network import with_one
from lightleak.attacks.gradient_inversion.optimize.labels import each_row
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.data.encoder import TableEncoder

OWN_PART = 1e-3
"""Part of what a changed cell would make of the first layer's gradient that what is left of it may amount to."""

BENT = 30.0
"""What is left of the gradient times this is what a row's own error must change by where it changes a category: a batch
that changes so leaves more than is left. Of rows that are almost without error, other parts of it are smaller."""

CLAIMS_APART = 100.0
"""Tolerances of the row space's test by which two claimed rows must differ to be two."""

ROUNDINGS = 10.0
"""By how much a client's rounding of one parameter's gradient may exceed ours; its order of operations may differ."""

DIGITS_PER_EQUATION = 3.0
"""Decimal digits that an element of the gradient adds to the evidence, of the seven that float32 keeps."""


def proven_rows(residual: Residual, space: RowDomain, scaled: bool = False) -> Proof:
    """What is proven of explained rows.

    Args:
        residual: explained rows and what is left.
        space: rows that may be in the batch.
        scaled: the gradient was multiplied by what rows that occur once have in common; were they rows that all occur
            twice, it would be another factor.
    """
    proof = _proven_rows(residual, space, scaled)
    if not bool(proof.digits.any()) or residual.network.numbers_enter_affinely:
        return proof
    return Proof(proof.cells, torch.zeros_like(proof.digits))


def _proven_rows(residual: Residual, space: RowDomain, scaled: bool) -> Proof:
    """The same where numbers enter affinely."""
    if not len(residual.x) or residual.rows_left < 0:
        return Proof.nothing(residual.x)
    distinct, which = residual.x.unique(dim=0, return_inverse=True)
    if len(distinct) < len(residual.x):  # one row was found twice, by its labels
        counts = residual.counts.new_zeros(len(distinct), residual.counts.shape[1]).index_add(0, which, residual.counts)
        return _proven_rows(residual.explaining(distinct, counts), space, scaled)[which]
    explained = residual.rows_left == 0 and residual.relative < EXPLAINED
    cells_first = residual.network.first_sees_cells
    together = proven_together(residual, space) if explained and cells_first else Proof.nothing(residual.x)
    # Embeddings make the first layer's errors nearly dependent, which the proof of the whole reads; others it serves.
    if explained and cells_first and (residual.network.first_input is None or bool(together.digits.all())):
        return together
    # Where no equation is linear in cells, nothing less counts than the whole batch and all parameters' gradients.
    if not cells_first and not (explained and explains_all_parameters(residual)):
        return Proof.nothing(residual.x)
    cells, digits = lone_proof(residual, space, all_distinct=scaled)
    once = _told_apart(residual)
    alone = Proof(cells & once, digits & once)
    if explained:
        return Proof(together.cells | alone.cells, together.digits | alone.digits)
    if residual.rows_left == 0 and bool(alone.cells.all()) and not explains_but_for_digits(residual, space):
        return Proof.nothing(residual.x)  # every row is claimed and yet something is left: at least one claim is wrong
    return alone


def explains_all_parameters(residual: Residual) -> bool:
    """Whether explained rows leave no more than rounding of the gradient by every parameter.

    Each parameter is compared by itself: in a norm over all of them, a large gradient would hide the others' misfit.
    """
    left, whole, rounding = residual.network.replay(residual.x, residual.counts, residual.n_rows).unbind(1)
    return bool((left <= torch.maximum(EXPLAINED * whole, ROUNDINGS * rounding)).all())


def proven_together(residual: Residual, space: RowDomain) -> Proof:
    """What is proven of a whole batch: nothing unless it explains its gradient to rounding.

    Args:
        residual: the whole batch as explained rows.
        space: rows that may be in it.
    """
    if residual.rows_left != 0 or not residual.relative < EXPLAINED or not _enough_evidence(residual, space):
        return Proof.nothing(residual.x)
    alone, visible = residual.counts.sum(-1) == 1, _visible(residual, space)
    tolerance = number_tolerances(space.encoder)
    determined = torch.ones_like(alone)
    if len(tolerance):
        source, model = _expanded(residual, space)
        change, error, _ = _solved(model, tolerance.repeat(len(source)), _equations(residual))
        within = (change.abs() + STANDARD_ERRORS * error).view(len(source), -1).amax(1) < 1
        determined = determined.index_put((source,), within)
    cells = visible.alone
    # Among rows whose errors depend on each other, numbers that are open could be bent to pay for other categories.
    if bool((determined | ~alone)[~visible.alone].all()):
        cells = cells | visible.unlike
    return Proof(cells, cells & determined & (alone | (len(tolerance) == 0)))


def explains_but_for_digits(residual: Residual, space: RowDomain) -> bool:
    """Whether other numbers in the same rows would leave rounding alone, to first order."""
    tolerance = number_tolerances(space.encoder)
    if not len(tolerance):
        return False
    source, model = _expanded(residual, space)
    left = _solved(model, tolerance.repeat(len(source)), _equations(residual))[2]
    return left < EXPLAINED / NOISE


def _expanded(residual: Residual, space: RowDomain) -> tuple[Tensor, Expansion]:
    """Every row of the batch as one of the explained ones ``[n]``, and the gradient as a function of their numbers."""
    whole = RowDomain.whole(space.encoder, space.prior)
    source, labels = each_row(residual.counts)
    codes, values = space.encoder.project(residual.x[source], clamp=False)
    numbers = (values - whole.center) / whole.unit
    problem = GroupProblem.of(residual, whole, residual.observed)
    model = problem.expand(Groups(codes.unsqueeze(0), numbers.unsqueeze(0), labels.unsqueeze(0)))
    unit = whole.unit.repeat(len(source))  # from the space's units to the table's
    normal = model.normal[0] / unit.unsqueeze(0) / unit.unsqueeze(1)
    return source, Expansion(model.value[0], model.slope[0] / unit, normal)


def _solved(model: Expansion, tolerance: Tensor, equations: int) -> tuple[Tensor, Tensor, float]:
    """The least squares step, its standard errors, both in units of tolerances, and what it leaves, in noise's units.

    Infinite errors where the gradient does not determine a number.
    """
    normal = model.normal * tolerance.unsqueeze(0) * tolerance.unsqueeze(1)
    slope = model.slope * tolerance
    scale = normal.diagonal().sqrt()
    shown = scale > 0
    safe = torch.where(shown, scale, torch.ones_like(scale))
    solution = solve(normal / safe.unsqueeze(0) / safe.unsqueeze(1), slope / safe)
    squares = float((model.value - (slope / safe) @ solution.step).clamp_min(0))
    misfit = squares / max(1, equations - solution.rank)
    error = solution.error / safe * max(1.0, misfit) ** 0.5
    return solution.step / safe, torch.where(shown, error, torch.inf), misfit**0.5


def _equations(residual: Residual) -> int:
    """Elements of the gradient that are free to disagree: those of matrices whose rank is the number of rows."""
    total, rows = 0, len(residual.x)
    for layer in residual.observed:
        out, into = int(layer.any(1).sum()), int(layer.any(0).sum())
        if out:
            rank = min(rows, numerical_rank(torch.linalg.svdvals(layer / unit_scale(layer).unsqueeze(-1)), rows))
            total += rank * (out + into - rank)
    return total


def _enough_evidence(residual: Residual, space: RowDomain) -> bool:
    """Whether the gradient has digits enough to name all cells, beyond those that the numbers can be bent to meet."""
    spare = _equations(residual) - len(residual.x) * len(space.encoder.schema.numerical)
    names = len(residual.x) * (log_combinations(space) + log10(max(2, residual.network.n_classes)))
    return DIGITS_PER_EQUATION * spare > names + MARGIN


@dataclass(frozen=True)
class _Visible:
    """Which changes of a row's categories would show in the first layer's gradient.

    Attributes:
        alone: any change, whatever the numbers of all rows: the error vectors of its copies lie outside the span of all
            others, so that nothing else makes up for it, bool ``[r]``.
        unlike: the numbers of all rows held, a change of its own, an exchange with another row, or one with several
            rows, as every change of a category would change its error vector as well, bool ``[r]``.
    """

    alone: Tensor
    unlike: Tensor


def _visible(residual: Residual, space: RowDomain) -> _Visible:
    network, counts, encoder = residual.network, residual.counts, space.encoder
    shows = residual.left[0].norm() / (OWN_PART * least_exchange(space, network.first_input))
    each = _errors_by_label(residual, residual.x)
    claimed, seen = counts > 0, each.norm(dim=-1) > shows
    # A row of a class that the network is sure of adds nothing: if one is claimed, it may be a copy of any other row.
    adds = (seen if bool((claimed & ~seen).any()) else seen | ~claimed).all(1)
    row, label = claimed.nonzero(as_tuple=True)
    errors = each[row, label]  # of one copy of each row under each of its labels
    # Distance of each error vector from the span of the others: 1 over the norm of its dual.
    values, vectors = torch.linalg.eigh(errors @ errors.T)
    tiny = torch.finfo(values.dtype).eps * values[-1].clamp_min(torch.finfo(values.dtype).tiny) * len(values)
    is_near = (vectors.square() / values.clamp_min(tiny)).sum(1).rsqrt() <= shows
    # Two copies of one error may exchange cells, two of opposite errors change alike: their sum stays the same.
    codes = encoder.project(residual.x)[0][row]
    differ = (codes.unsqueeze(1) != codes.unsqueeze(0)).any(-1)
    exchanged = (torch.cdist(errors, errors) <= shows) & differ | (torch.cdist(errors, -errors) <= shows)

    def has(which: Tensor) -> Tensor:
        return torch.zeros_like(adds).index_put((row[which],), adds.new_tensor(True))

    alone, unlike = adds & ~has(is_near), adds & ~has(exchanged.any(1))
    for at in (unlike & ~alone).nonzero().flatten().tolist():
        unlike[at] = _changes_show(residual, encoder, at)
    return _Visible(alone, unlike)


def _errors_by_label(residual: Residual, x: Tensor) -> Tensor:
    """First layer's error vector of one copy of rows ``[r, d]`` under every label ``[r, classes, out]``."""
    classes = residual.counts.shape[1]
    each_label = torch.eye(classes).to(residual.counts).expand(len(x), -1, -1)
    return residual.network.error_of_rows(0, residual.network.forward(x), each_label, residual.n_rows)


def _changes_show(residual: Residual, encoder: TableEncoder, at: int) -> bool:
    """Whether another category in any one column of a row would change its error vector, under each of its labels.

    Where one would not, rows whose error vectors depend on each other may change cells together, and their sum stays.
    """
    x, labels = residual.x[at], residual.counts[at] > 0
    codes = encoder.project(x.unsqueeze(0))[0][0].tolist()
    changes = [x.unsqueeze(0)]
    for block, own in zip(encoder.layout.categorical, codes, strict=True):
        one = torch.eye(block.width).to(x) / encoder.scale[block.slice]
        changed = x.repeat(block.width - 1, 1)
        changed[:, block.slice] += (one - one[own])[torch.arange(block.width) != own]
        changes.append(changed)
    errors = _errors_by_label(residual, torch.cat(changes))[:, labels]
    return bool(((errors[1:] - errors[:1]).norm(dim=-1) > BENT * residual.left[0].norm()).all())


def _told_apart(residual: Residual) -> Tensor:
    """Rows that the tests tell from every other explained row: else one row of the batch is claimed twice, ``[r]``."""
    v = with_one(residual.network.forward(residual.x).hidden[residual.network.searched])
    distance = torch.cdist(v, v) / v.norm(dim=1)
    return (distance < CLAIMS_APART * ROW_TOLERANCE).sum(1) == 1
