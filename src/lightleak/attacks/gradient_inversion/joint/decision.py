"""Which rows to return where noise leaves many batches possible: those expected to have most cells right.

The most probable batch is not the one with most cells right. Under strong noise it is the modal row over and over, and
a guess that never read the update has more. If what is believed holds, the true batch is one more draw of the
posterior: what a batch has in common with draws is what it may expect to have in common with the truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.coordinate_descent import TINY, add_term, energies
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.matching import match_rows
from lightleak.data.encoder import TableEncoder

FORGOTTEN, DRAWS = 2, 4
"""Sweeps before the first draw, and draws, one a sweep. Where noise hides rows a sweep forgets what it began with;
where it does not, draws stay near the rows found, which then are the better ones."""

PROPOSED = 8
"""Values proposed for a number at a time."""


@dataclass(frozen=True)
class Cells:
    """Cells of a batch in the table's units.

    Attributes:
        codes: categories ``[n, K]``.
        values: numbers ``[n, m]``.
    """

    codes: Tensor
    values: Tensor

    @classmethod
    def of(cls, problem: JointProblem, rows: JointRows) -> "Cells":
        """Those of rows."""
        return cls(*problem.space.cells(rows.codes, rows.numbers))

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.codes.numel() + self.values.numel()

    def in_common(self, other: "Cells", encoder: TableEncoder) -> float:
        """Share of the cells that are right if the other is the truth, rows paired for most of them."""
        same = (self.codes.unsqueeze(1) == other.codes).sum(-1)
        near = (self.values.unsqueeze(1) - other.values).abs() <= TOLERANCE * encoder.deviation
        right = same + near.sum(-1)
        paired = match_rows(right)
        return float(right[torch.arange(len(paired)), paired].sum()) / self.count


def posterior_draws(problem: JointProblem, rows: JointRows, generator: torch.Generator) -> list[JointRows]:
    """Batches by Gibbs sampling.

    Args:
        problem: with a prior.
        rows: where to begin.
        generator: a CPU generator.
    """
    found = []
    for sweep in range(FORGOTTEN + DRAWS):
        rows = resampled(problem, rows, generator)
        if sweep >= FORGOTTEN:
            found.append(rows)
    return found


def resampled(problem: JointProblem, rows: JointRows, generator: torch.Generator) -> JointRows:
    """Every cell and label of every row drawn anew given all others, once.

    Categories are weighed by likelihood and prior. For a number a few values are drawn from its prior and weighed, with
    the present one, by likelihood alone, which leaves the posterior unchanged.

    Args:
        problem: with plain kernels and a prior.
        rows: a batch.
        generator: a CPU generator.
    """
    assert problem.prior is not None  # a noised problem has one
    kernels, dtype = problem.kernels.to(torch.float32), torch.float32
    applied = tuple(r.to(dtype) for r in problem.kernels.apply(problem.residual(rows)))
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    columns, free = codes.shape[1], numbers.shape[1]

    def drawn(logits: Tensor) -> int:
        uniform = torch.rand(len(logits), generator=generator).clamp(TINY, 1 - TINY).to(logits)
        return int((logits - (-uniform.log()).log()).argmax())

    for i in torch.randperm(len(codes), generator=generator).tolist():
        terms = problem.terms(codes[i : i + 1], numbers[i : i + 1], dtype)
        own = terms.coefficients(problem.n_rows)[:, int(labels[i])]
        applied = add_term(applied, terms, own, kernels)
        for column in torch.randperm(columns + free, generator=generator).tolist():
            is_number = column >= columns
            count = 1 + PROPOSED if is_number else problem.space.sizes[column]
            some_codes, some_numbers = codes[i].repeat(count, 1), numbers[i].repeat(count, 1)
            if is_number:
                some_numbers[1:, column - columns] = problem.prior.draw_number(column - columns, PROPOSED, generator)
            else:
                some_codes[:, column] = torch.arange(count, device=codes.device)
            terms = problem.terms(some_codes, problem.space.clamp(some_numbers), dtype)
            coefficients = terms.coefficients(problem.n_rows)[:, labels[i : i + 1]]
            logits = -energies(terms, coefficients, applied, kernels)[:, 0].double() / problem.prior_weight
            chosen = drawn(logits if is_number else logits - problem.prior.categories[column])
            codes[i], numbers[i] = some_codes[chosen], problem.space.clamp(some_numbers[chosen])
        terms = problem.terms(codes[i : i + 1], numbers[i : i + 1], dtype)
        every = terms.coefficients(problem.n_rows)
        labels[i] = drawn(-energies(terms, every, applied, kernels)[0].double() / problem.prior_weight)
        applied = add_term(applied, terms, -every[:, int(labels[i])], kernels)
    return JointRows(codes, numbers, labels)


def expected_right(batch: Cells, draws: Sequence[Cells], encoder: TableEncoder) -> float:
    """Share of a batch's cells that is expected to be right, by draws of the posterior."""
    return sum(batch.in_common(draw, encoder) for draw in draws) / len(draws)


def is_no_better(problem: JointProblem, rows: JointRows, guess: Cells, generator: torch.Generator) -> bool:
    """Whether a guess is expected to have as many cells right as rows that were found.

    Args:
        problem: with a prior.
        rows: that were found.
        guess: rows that were not.
        generator: a CPU generator.
    """
    encoder = problem.space.encoder
    draws = [Cells.of(problem, draw) for draw in posterior_draws(problem, rows, generator)]
    return expected_right(guess, draws, encoder) >= expected_right(Cells.of(problem, rows), draws, encoder)


def is_guess_better(problem: JointProblem, starts: Sequence[JointRows], guess: Cells) -> bool:
    """Whether the guess has as many cells in common with independent starts as these have with each other."""
    cells, encoder = [Cells.of(problem, rows) for rows in starts], problem.space.encoder
    if len(cells) < 2:
        return False
    with_others = [expected_right(one, [o for o in cells if o is not one], encoder) for one in cells]
    return expected_right(guess, cells, encoder) >= sum(with_others) / len(with_others)
