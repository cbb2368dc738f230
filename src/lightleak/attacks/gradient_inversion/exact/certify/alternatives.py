"""Whether another row could pass the same tests: other categories, or another label and multiplicity."""

from itertools import combinations
from math import log10

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.row_evidence import RowEvidence
from lightleak.attacks.gradient_inversion.exact.row_tests.verification import MOST_EQUAL
from lightleak.attacks.gradient_inversion.network.cells import Affine
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

APART = 1e-9
"""Inner products of two columns' exchanges, relative, that are rounding."""

SPARE_TESTS = 4
"""Equations on a row beyond its numbers: a wrong row meets each within the tolerance once in thousands of times, and a
search looks at millions of rows."""

SEEN = 30.0
"""Tolerances by which a row with one or two other categories must miss the equations, whatever its numbers."""

MARGIN = 4.0
"""Decimal digits of evidence beyond those that name one combination of categories among all."""


def log_combinations(space: RowDomain) -> float:
    """Decimal logarithm of the number of combinations of categories that a row may have."""
    return sum(log10(size) for size in space.sizes)


def least_exchange(space: RowDomain, seen: Affine | None) -> float:
    """Least change of what the first layer sees, as a row exchanges categories, whatever it does to its numbers.

    Args:
        space: rows that may be in the batch.
        seen: what the first layer sees of an encoded row; None: the row itself.
    """
    scale, blocks = space.encoder.scale, space.encoder.layout.categorical
    if seen is None:
        positions = [i for block in blocks for i in range(block.start, block.stop)]
        return 2**0.5 * float((1 / scale[positions]).min()) if positions else 1.0
    vectors = [(seen.weight / scale).T[block.start + at] for block, at in zip(blocks, space.present, strict=True)]
    numbers = torch.linalg.qr(seen.weight[:, list(space.encoder.numerical_positions)])[0]
    changes = [each[1:] - each[:1] for each in vectors if len(each) > 1]
    if not changes:
        return 1.0
    changes = [change - change @ numbers @ numbers.T for change in changes]
    largest = max(float(change.norm()) for change in changes)
    apart = all(float((a @ b.T).norm()) <= APART * largest**2 for a, b in combinations(changes, 2))
    if apart:
        # Exchanges in several columns do not undo each other.
        return min(float(torch.pdist(torch.cat([torch.zeros_like(c[:1]), c])).min()) for c in changes)
    # Of an exchange that keeps each column's sum, in zeros and ones at least sqrt(2) long.
    every = torch.cat([each - each.mean(0) for each in vectors])
    every = every - every @ numbers @ numbers.T
    free = sum(len(each) - 1 for each in vectors)
    singular = torch.linalg.svdvals(every)
    return 2**0.5 * float(singular[free - 1]) if len(singular) >= free else 0.0


def has_one_reading(tested: RowEvidence, apart: Tensor) -> Tensor:
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


def excludes_other_categories(tested: RowEvidence, space: RowDomain) -> Tensor:
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
