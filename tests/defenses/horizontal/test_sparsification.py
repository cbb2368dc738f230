"""Random pruning and compression set the right share of entries to zero and leave the others."""

import math

import pytest
import torch
from torch import Tensor

from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.sparsification import GradientCompression, RandomPruning


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9])
def test_pruning_removes_its_share_and_leaves_the_rest(probability: float) -> None:
    given = {"a": torch.arange(1.0, 40_001.0)}
    sent = RandomPruning(probability).apply(given, generator(0))["a"]
    kept = sent != 0
    assert torch.equal(sent[kept], given["a"][kept])
    error = math.sqrt(probability * (1 - probability) / 40_000)
    assert float(1 - kept.float().mean()) == pytest.approx(probability, abs=4 * error)
    # Independent of position: both halves lose the same share.
    assert float(kept[:20_000].float().mean() - kept[20_000:].float().mean()) == pytest.approx(0, abs=8 * error)


def test_pruning_with_certainty_leaves_nothing(gradient: dict[str, Tensor]) -> None:
    assert not any(value.any() for value in RandomPruning(1.0).apply(gradient, generator(0)).values())


@pytest.mark.parametrize("keep", [0.001, 0.1, 0.37, 0.999])
def test_compression_keeps_the_largest_of_every_tensor(keep: float, gradient: dict[str, Tensor]) -> None:
    sent = GradientCompression(keep).apply(gradient, generator(0))
    for name in ("weight", "bias"):
        given, kept = gradient[name], sent[name] != 0
        nonzero = int((given != 0).sum())
        assert int(kept.sum()) == min(nonzero, max(1, round(keep * given.numel())))
        assert torch.equal(sent[name][kept], given[kept])
        assert not kept.any() or (given[~kept].abs() <= given[kept].abs().min()).all()
    assert not sent["scale"].any()


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.8])
def test_compression_equals_a_stable_sort(keep: float) -> None:
    given = torch.randint(-4, 5, (50, 8), generator=generator(0)).float()  # ties everywhere
    kept = given.flatten().abs().sort(descending=True, stable=True).indices[: round(keep * 400)]
    expected = torch.zeros(400).index_copy(0, kept, given.flatten()[kept]).view(50, 8)
    assert torch.equal(GradientCompression(keep).apply({"a": given}, generator(0))["a"], expected)


def test_of_equal_magnitudes_the_first_are_kept() -> None:
    # What a binary classifier's output layer gives: two rows that differ in their sign.
    given = {"output": torch.tensor([[1.0, -2.0, 3.0], [-1.0, 2.0, -3.0]])}
    sent = GradientCompression(0.5).apply(given, generator(0))["output"]
    assert sent.tolist() == [[0.0, -2.0, 3.0], [0.0, 0.0, -3.0]]
