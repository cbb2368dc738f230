"""Solutions merged."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.pooling import pooled
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.core.seeds import generator


def test_the_order_of_rows_does_not_matter_and_the_majority_wins(posed: Any, wrong_cell: Any) -> None:
    problem, truth = posed(n=8)
    solutions = [truth]
    for seed in range(4):
        spoiled = wrong_cell(problem, truth, seed, seed % len(problem.space.sizes))
        order = torch.randperm(8, generator=generator(seed))
        solutions.append(JointRows(spoiled.codes[order], spoiled.numbers[order], spoiled.labels[order]))
    merged, matched = pooled(problem.space, solutions, 0)
    assert torch.equal(merged.codes, truth.codes) and torch.equal(merged.labels, truth.labels)
    torch.testing.assert_close(merged.numbers, truth.numbers)
    assert all(torch.equal(m.numbers, truth.numbers) for m in matched)
