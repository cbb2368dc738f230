"""Candidates beside each other."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.search.readings import NEAR, common_factor, distinct, unlike, varied
from lightleak.core.seeds import generator


def test_a_factor_needs_rows_that_agree() -> None:
    assert common_factor(torch.tensor([0.5, 0.5]), 3) is None  # two of several rows are too few to tell
    assert common_factor(torch.tensor([0.5, 0.5]), 2) == 0.5 == common_factor(torch.tensor([0.5]), 1)
    assert common_factor(torch.tensor([0.5, 0.4]), 2) is None is common_factor(torch.tensor([0.5]), 2)
    assert common_factor(torch.tensor([0.5, 0.5, 0.5, 0.25]), 5) == 0.5  # one row is there twice
    assert common_factor(torch.tensor([0.5, 0.5, 0.5, 0.1, 0.2, 0.3, 0.4]), 7) is None
    assert common_factor(torch.empty(0), 1) is None


@pytest.mark.parametrize("factor", [0.013, 1.1, 70.0])
def test_a_factor_is_that_of_most_rows_in_any_order(factor: float) -> None:
    coefficients = factor * torch.tensor([1.0, 1.001, 0.999, 1.0, 0.5, 1 / 3, 7.0])
    for seed in range(5):
        found = common_factor(coefficients[torch.randperm(7, generator=generator(seed))], 9)
        assert found == pytest.approx(factor, rel=2e-3)


@pytest.mark.parametrize("factor", [0.98, 0.9999, 0.99999, 1.00001])
def test_a_factor_near_1_is_one_where_rows_agree_on_it_better(factor: float) -> None:
    apart = torch.tensor([-1.0, 0.0, 2.0, -3.0, 1.0])
    assert common_factor(factor + 1e-7 * apart, 5) == pytest.approx(factor, abs=1e-6)
    assert common_factor(factor + (1 - factor) * apart, 5) is None
    assert common_factor(1 + 1e-7 * apart, 5) is None


def test_a_factor_is_positive() -> None:
    assert common_factor(torch.tensor([-2.0, -2.0, -2.0]), 3) is None


def test_varied_candidates_are_all_there_and_none_jumps_the_queue() -> None:
    codes = torch.randint(3, (60, 2), generator=generator(1))
    order = varied(codes, copies=2)
    assert order.sort().values.tolist() == list(range(60))
    for combination in codes.unique(dim=0):
        of_one = [i for i in order.tolist() if torch.equal(codes[i], combination)]
        assert of_one == sorted(of_one)
    first = codes[order[: 2 * len(codes.unique(dim=0))]]
    assert int(first.unique(dim=0, return_counts=True)[1].max()) <= 2
    assert varied(torch.empty(5, 0, dtype=torch.long), copies=2).tolist() == [0, 1, 2, 3, 4]


def test_distinct_rows_are_all_rows_and_none_twice(make_batch: Any) -> None:
    batch = make_batch(rows=(3, 50, 3, 90, 50, 3), labels=(0, 1, 0, 0, 1, 1))
    cells, x, group = distinct(batch.cells, batch.x)
    assert len(x) == 3 == len(x.unique(dim=0))
    assert torch.equal(x[group], batch.x)
    assert all(torch.equal(part[group], whole) for part, whole in zip(cells, batch.cells, strict=True))


def test_of_two_readings_the_better_is_kept_whatever_the_order(make_batch: Any) -> None:
    batch = make_batch(8)
    codes, values = batch.cells
    deviation = batch.encoder.deviation
    near, far = values + 0.9 * NEAR * deviation, values + 1.1 * NEAR * deviation
    assert len(unlike((codes, values), torch.arange(8), deviation)) == 8
    for other, kept in ((near, 8), (far, 16)):
        cells = torch.cat([codes, codes]), torch.cat([values, other])
        assert unlike(cells, torch.arange(16), deviation).tolist() == list(range(kept))
        order = torch.cat([torch.arange(8, 16), torch.arange(8)])  # the others are the better ones
        assert unlike(cells, order, deviation).tolist() == order[:kept].tolist()
    assert len(unlike((codes, values), torch.arange(0), deviation)) == 0


def test_another_category_is_another_row(make_batch: Any) -> None:
    batch = make_batch(1)
    codes, values = batch.cells
    changed = codes.clone()
    changed[0, 0] = 1 - changed[0, 0].clamp(max=1)
    cells = torch.cat([codes, changed]), torch.cat([values, values])
    assert unlike(cells, torch.arange(2), batch.encoder.deviation).tolist() == [0, 1]
