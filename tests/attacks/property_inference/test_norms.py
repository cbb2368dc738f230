import math

import pytest
import torch

from lightleak.attacks.property_inference.norms import NORMS, record_norms
from lightleak.core.errors import UsageError


def slow_norm(row: list[float], norm: str) -> float:
    if norm == "l1":
        return sum(abs(z) for z in row) / len(row)
    if norm == "l2":
        return math.sqrt(sum(z * z for z in row) / len(row))
    return max(abs(z) for z in row)


@pytest.mark.parametrize("norm", NORMS)
def test_equals_the_record_by_record_definition(norm):
    results = torch.randn(3, 40, 7, dtype=torch.float64)
    norms = record_norms(results, norm)
    assert norms.shape == (3, 40)
    for group in range(3):
        expected = [slow_norm(row, norm) for row in results[group].tolist()]
        assert torch.allclose(norms[group], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_ignores_signs_and_follows_the_scale(norm):
    results = torch.randn(20, 5, dtype=torch.float64)
    assert torch.equal(record_norms(-results, norm), record_norms(results, norm))
    assert torch.allclose(record_norms(3 * results, norm), 3 * record_norms(results, norm))


def test_an_unknown_norm_is_refused():
    with pytest.raises(UsageError, match=r"l1, l2, linf, got 'l3'"):
        record_norms(torch.zeros(1, 1), "l3")
