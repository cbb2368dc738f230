"""Under DDP a rank is a client: what is captured is its own gradient, before the all-reduce."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lightleak.callbacks.capture_store import Capture, list_captures
from lightleak.protocols.fedsgd import require_replay

SCRIPT = Path(__file__).with_name("train_on_two_processes.py")


@pytest.fixture(scope="module")
def out(leave_results: Callable[[Path], Path]) -> Path:
    return leave_results(SCRIPT)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_each_rank_captures_its_own_gradient(out: Path, accumulate: int) -> None:
    captures = [Capture.load(folder) for folder in list_captures(out / f"accumulate-{accumulate}")]
    per_epoch = 16 // (4 * accumulate)
    steps = [0, 1, per_epoch, per_epoch + 1]
    assert [(c.update.facts.step, c.rank) for c in captures] == [(step, rank) for step in steps for rank in (0, 1)]
    reduced = torch.load(out / f"{accumulate}-0.pt", weights_only=True)["reduced"]
    for step, first, second in zip(steps, captures[::2], captures[1::2], strict=True):
        # Each replays from its own batch, to the bit, dropout and BatchNorm included ...
        assert require_replay(first.update, first.truth) == 0.0
        assert require_replay(second.update, second.truth) == 0.0
        assert first.update.facts.n_rows == 4 * accumulate
        assert first.update.facts.n_clients == 1
        assert not torch.equal(first.truth.inputs, second.truth.inputs)
        # ... and together they are what the all-reduce made of them.
        for name, value in reduced[step].items():
            assert torch.equal(first.update.parameters[name], second.update.parameters[name])
            mean = (first.update.update[name] + second.update.update[name]) / 2
            torch.testing.assert_close(mean, value, rtol=1e-5, atol=1e-7)
        weights = "linears.0.weight"
        assert not torch.allclose(first.update.update[weights], reduced[step][weights], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("rank", [0, 1])
def test_training_is_bit_identical_on_every_rank(out: Path, accumulate: int, rank: int) -> None:
    left = torch.load(out / f"{accumulate}-{rank}.pt", weights_only=True)
    assert left["plain"].keys() == left["captured"].keys()
    for name, value in left["plain"].items():
        assert torch.equal(left["captured"][name], value), name
