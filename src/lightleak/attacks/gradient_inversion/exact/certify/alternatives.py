"""Whether another row could pass the same tests: other categories, or another label and multiplicity."""

from math import log10

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.row_evidence import RowEvidence
from lightleak.attacks.gradient_inversion.exact.row_tests.verification import MOST_EQUAL
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

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
