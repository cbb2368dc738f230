"""Some rows solved anew."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.continuous import stage_config, widths_of
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.attacks.gradient_inversion.joint.refinement import doubtful_rows, reopen


def test_chosen_rows_are_found_again_and_the_others_stay(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=8)
    codes, chosen = truth.codes.clone(), torch.tensor([2, 5])
    codes[chosen] = 0
    start = JointRows(codes, truth.numbers.clone(), truth.labels)
    config = stage_config(steps=400, learning_rate=0.2, numerical_learning_rate=0.05, temperature_end=0.2)
    found = reopen(problem, start, chosen, 2, config, widths_of(problem), 0)
    others = torch.tensor([0, 1, 3, 4, 6, 7])
    for rows in found:
        assert torch.equal(rows.codes[others], truth.codes[others])
        assert torch.equal(rows.numbers[others], truth.numbers[others])
    best = min(found, key=problem.value)
    assert sorted(best.codes.tolist()) == sorted(truth.codes.tolist())


def test_equal_rows_are_doubtful(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=8)
    codes, numbers = truth.codes.clone(), truth.numbers.clone()
    codes[6], numbers[6] = codes[1], numbers[1]
    assert {1, 6} <= set(doubtful_rows(problem, JointRows(codes, numbers, truth.labels)).tolist())
