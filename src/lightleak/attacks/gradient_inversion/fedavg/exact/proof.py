"""Which rows behind a weight update are proven: judged at the end, against the first layer's update alone.

Together: rows that leave no more of the update than rounding, which has digits enough to name all of their cells beyond
what shares and numbers can be bent to meet, and cells that it determines. To first order it
determines a cell only if moving it changes what no shares can make good (`shares`); that must leave no room for another
category, the share must be that of no other label and count, and the numbers' errors must be small. Digits also need
every unit explained by itself: a share that was left out at a few units bends numbers. Rows of equal
categories and active units mix at no cost, and are not proven.

Alone, where other rows are missing: the row passes the test of its silent units, and the equations of the rows' span,
which hold whatever the other rows are, determine its numbers and leave enough over to refute other categories.
"""

from itertools import combinations_with_replacement
from math import comb, log10

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.alternatives import MARGIN, log_combinations
from lightleak.attacks.gradient_inversion.exact.certify.least_squares import STANDARD_ERRORS
from lightleak.attacks.gradient_inversion.exact.certify.proof import DIGITS_PER_EQUATION
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.counts import LEAST, predicted_shares
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.fedavg.exact.shares import UNEXPLAINED, Fit, least_squares
from lightleak.attacks.gradient_inversion.fedavg.exact.silent_units import SilenceTest, silence, silence_test
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.certificate import NUMBERS_WITHIN

EXPLAINED_WITHIN = 1.5
"""Times what rounding leaves of the first layer's update that all rows together may leave of it."""

INDICATOR_WITHIN = 0.1
"""How near a category's indicators must come out to 0 and 1, were they free."""

MOST_UNKNOWN = 6000
"""Cells that are judged together, beyond which nothing is proven: a matrix of this size squared is inverted."""

SHARE_WITHIN = 0.3
"""Part of a share by which its prediction may miss: the way of the weights is known to 5 to 15 %."""

RIVAL_BEYOND, RIVAL_TIMES = 0.25, 2.0
"""Other labels or counts must miss by this part of the share, and by so many times what the best ones do."""

LEAST_UNITS = 3
"""Units in which a share must be determined."""

MOST_READINGS = 5000
"""Largest number of labels and counts that are distinguished."""


def proven_together(
    observed: WeightUpdate, space: RowDomain, fit: Fit, counts: Tensor, n_rows: int, rank: int
) -> Proof:
    """What is proven of distinct rows that are said to be all of them.

    Args:
        observed: the update.
        space: whose coordinates.
        fit: the rows and their shares.
        counts: rows of each class ``[r, classes]``.
        n_rows: rows behind the update.
        rank: independent rows that the update shows: at least so many are distinct.
    """
    if int(counts.sum()) != n_rows:
        return Proof.nothing(counts)
    settled = settled_together(observed, space, fit, rank)
    predicted = predicted_shares(observed, fit.x, n_rows)
    extra = n_rows - max(rank, _distinct(space, fit, settled))
    cells = settled.cells & _counts_determined(observed, fit.shares, fit.known, predicted, counts, extra)
    # With fewer independent rows than there are, one may be a mixture with another that hardly shows.
    return Proof(cells, cells & settled.digits & (counts.sum(1) == 1) & (rank == n_rows))


def settled_together(observed: WeightUpdate, space: RowDomain, fit: Fit, rank: int) -> Proof:
    """What is proven of distinct rows that explain the first layer's update together, their labels and counts open."""
    if not fit.left < EXPLAINED_WITHIN or not _enough_evidence(observed, space, fit, rank):
        return Proof.nothing(fit.x)
    categories, digits = _settled(observed, space, fit)
    return Proof(categories, categories & digits & (fit.worst < UNEXPLAINED))


def proven_alone(
    observed: WeightUpdate, equations: RowEquations, codes: Tensor, numbers: Tensor, labels: Tensor, n_rows: int
) -> Proof:
    """What is proven of single rows while others are missing.

    Args:
        observed: the update.
        equations: of the span of its rows.
        codes: ``[m, K]``.
        numbers: ``[m, F]``.
        labels: LongTensor ``[m]``.
        n_rows: rows behind the update.
    """
    counts = torch.nn.functional.one_hot(labels, observed.start.n_classes)
    cells, test = tested_alone(observed, equations, codes, numbers)
    if test is None:
        return Proof.nothing(counts)
    shares = test.duals @ equations.span @ equations.gradient.T
    known = torch.ones_like(shares, dtype=torch.bool)
    predicted = predicted_shares(observed, equations.space.rows.of(codes, numbers), n_rows)
    cells = cells & _counts_determined(observed, shares, known, predicted, counts, n_rows - equations.rank)
    return Proof(cells, cells & (equations.rank == n_rows))


def tested_alone(
    observed: WeightUpdate, equations: RowEquations, codes: Tensor, numbers: Tensor
) -> tuple[Tensor, SilenceTest | None]:
    """Which rows are in the batch whatever the others are, their numbers determined, bool ``[m]``; labels are open.

    Arguments as for `proven_alone`. The test of silent units is None where the equations determine no numbers.
    """
    space, every = equations.space, range(len(equations.space.free))
    spare = len(equations.values) - len(every)
    if not len(codes) or not equations.determines(list(every)):
        return torch.zeros(len(codes), dtype=torch.bool, device=codes.device), None
    own = equations.solve_near(codes, numbers)
    deviation = column_noise(space) * equations.deviation(codes, own)
    missed = torch.maximum(equations.distance(codes, own), STANDARD_ERRORS * deviation)
    enough = spare * -missed.clamp(LEAST, 1.0).log10() > log_combinations(space) + MARGIN
    fits = missed <= STANDARD_ERRORS * deviation * max(1, len(equations.values)) ** 0.5
    allowed = NUMBERS_WITHIN * space.encoder.deviation[list(space.free)] / space.unit
    error = STANDARD_ERRORS * deviation.unsqueeze(1) * torch.linalg.pinv(equations.of_numbers).norm(dim=1)
    near = (((own - numbers).abs() + error) < allowed).all(1)
    x = space.rows.of(codes, numbers)
    test = silence_test(equations, equations.coordinates(codes, numbers), silence(observed, x) > 0)
    return enough & fits & near & test.passed(), test


def _enough_evidence(observed: WeightUpdate, space: RowDomain, fit: Fit, rank: int) -> bool:
    """Whether the update has digits enough to name all cells and labels, beyond those that shares and numbers meet.

    Counted are the elements of the update that are free to disagree, as a matrix of its rank: a row for each unit that
    moved, and a column for each coordinate that distinguishes rows of the space.
    """
    at = observed.gradient[0].any(1).tolist()
    reached = sum(at)
    width = sum(size - 1 for size in space.sizes) + len(space.free) + 1
    rank = min(rank, reached, width)
    unknown = sum(span.shape[1] for span, moved in zip(fit.spans, at, strict=True) if moved) + len(fit.x) * len(
        space.free
    )
    spare = rank * (reached + width - rank) - unknown
    typical = float(observed.gradient[0].square().mean().sqrt())
    digits = min(DIGITS_PER_EQUATION, log10(max(1.0, typical / max(observed.noise, LEAST))))
    names = len(fit.x) * (log_combinations(space) + log10(max(2, observed.start.n_classes)))
    return digits * spare > names + MARGIN


def _distinct(space: RowDomain, fit: Fit, settled: Proof) -> int:
    """The least number of different rows: settled ones, each with a share of its own.

    Rows of the same categories may be one row found twice, unless the numbers of both are settled and lie apart.
    """
    there = settled.cells & ((fit.known & (fit.shares != 0)).sum(1) >= LEAST_UNITS)
    codes, numbers, digits = fit.codes[there], fit.numbers[there], settled.digits[there]
    deviation = space.encoder.deviation[list(space.free)] / space.unit
    apart = ((numbers.unsqueeze(1) - numbers).abs() > 2 * NUMBERS_WITHIN * deviation).any(-1)
    alike = (codes.unsqueeze(1) == codes).all(-1) & ~(apart & digits.unsqueeze(1) & digits)
    return int((~alike.tril(-1).any(1)).sum())


def _counts_determined(
    observed: WeightUpdate, shares: Tensor, known: Tensor, predicted: Tensor, counts: Tensor, extra: int
) -> Tensor:
    """Which rows' shares are those of their counts and of no others, bool ``[r]``.

    Args:
        observed: the update.
        shares: of distinct rows ``[r, h]``.
        known: where they are determined, bool ``[r, h]``.
        predicted: what one row of each class adds ``[r, classes, h]``.
        counts: what is said of them ``[r, classes]``.
        extra: rows beyond one each that there may be.
    """
    determined = torch.zeros(len(shares), dtype=torch.bool, device=shares.device)
    readings = _readings(counts.shape[1], 1 + extra).to(counts.device)
    if not len(readings) or (extra > 0 and (observed.fit_scale or observed.uneven)):
        return determined
    scale = _scale_of_counts(shares, predicted, counts) if observed.fit_scale else 1.0
    for i, at in enumerate(known):
        share, own = shares[i, at] / scale, (readings == counts[i]).all(1)
        if int((share != 0).sum()) < LEAST_UNITS or not bool(own.any()):
            continue
        missed = share - readings.to(share.dtype) @ predicted[i][:, at]
        misfit = missed.norm(dim=1) / share.norm().clamp_min(LEAST)
        best = float(misfit[own])
        rival = float(misfit[~own].min()) if bool((~own).any()) else float("inf")
        determined[i] = best < SHARE_WITHIN and rival > max(RIVAL_BEYOND, RIVAL_TIMES * best)
    return determined


def _readings(n_classes: int, most: int) -> Tensor:
    """Label counts of one row up to ``most`` equal ones ``[ways, classes]``; none where there are too many of them."""
    if most < 1 or comb(most + n_classes, n_classes) > MOST_READINGS:
        return torch.empty(0, n_classes, dtype=torch.long)
    ways = [way for total in range(1, 1 + most) for way in combinations_with_replacement(range(n_classes), total)]
    return torch.stack([torch.bincount(torch.tensor(way), minlength=n_classes) for way in ways])


def _scale_of_counts(shares: Tensor, predicted: Tensor, counts: Tensor) -> float:
    """Median ratio of shares to what is predicted of the counts."""
    expected = torch.einsum("rc,rch->rh", counts.to(predicted.dtype), predicted)
    ratio = (shares * expected).sum(1) / expected.square().sum(1).clamp_min(LEAST)
    return float(ratio.median().clamp_min(LEAST))


def _settled(observed: WeightUpdate, space: RowDomain, fit: Fit) -> tuple[Tensor, Tensor]:
    """Rows whose categories, and whose numbers, the update determines with all cells of all rows free, bool ``[r]``."""
    directions, allowed = _directions(space)
    n_categories = len(directions) - len(space.encoder.schema.numerical)
    none = torch.zeros(len(fit.x), dtype=torch.bool, device=fit.x.device)
    if not len(directions):
        return ~none, ~none
    if len(fit.x) * len(directions) > MOST_UNKNOWN:
        return none, none
    step, error = least_squares(fit, directions * allowed.unsqueeze(1))
    noise = observed.noise * max(1.0, fit.worst)
    within = (step.abs() + STANDARD_ERRORS * noise * error < 1).view(len(fit.x), -1)
    return within[:, :n_categories].all(1), within[:, n_categories:].all(1)


def _directions(space: RowDomain) -> tuple[Tensor, Tensor]:
    """Ways in which encoded rows may move ``[m, d + 1]``, categories first, and how far along each is too far."""
    encoder, ways, allowed = space.encoder, [], []
    for table in space.rows.categories:
        ways += list(table[1:] - table[:1])
        allowed += [INDICATOR_WITHIN] * (len(table) - 1)
    for j, position in enumerate(encoder.numerical_positions):
        way = encoder.scale.new_zeros(encoder.width)
        way[position] = encoder.deviation[j] / encoder.scale[position]
        ways.append(way)
        allowed.append(NUMBERS_WITHIN)
    stacked = torch.stack(ways) if ways else encoder.scale.new_empty(0, encoder.width)
    return torch.nn.functional.pad(stacked, (0, 1)), torch.tensor(allowed, dtype=stacked.dtype, device=stacked.device)


def column_noise(space: RowDomain) -> float:
    """Most that the errors of the encoded columns grow by in a row's coordinates."""
    encoder = space.encoder
    at = space.free_positions
    per_unit = torch.ones_like(encoder.scale)
    origin = torch.zeros_like(encoder.scale)
    per_unit[at], origin[at] = space.unit, space.center
    grown = (encoder.scale.square() + (encoder.shift - origin).square()).sqrt() / per_unit
    used = [block.slice for block in encoder.layout.categorical]
    kept = torch.cat([grown[one] for one in used] + [grown[at], torch.ones_like(grown[:1])])
    return float(kept.max())
