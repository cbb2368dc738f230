"""Two processes train to the weights of one, whatever the split of the batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).with_name("split_training_on_two_processes.py")
# Sums over ranks are those of one process up to the order of floats.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def out(leave_results: Callable[[Path], Path]) -> Path:
    return leave_results(SCRIPT)


def load(out: Path, name: str) -> dict[str, Any]:
    result: dict[str, Any] = torch.load(out / f"{name}.pt", weights_only=True)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_ends_with_the_weights_of_one_process(out: Path, rank: int) -> None:
    one, ranked = load(out, "one"), load(out, f"rank-{rank}")
    torch.testing.assert_close(ranked["weights"], one["weights"], **CLOSE)
    assert ranked["metrics"].keys() == one["metrics"].keys() >= {"train/loss", "val/auroc", "test/auroc", "test/loss"}
    assert ranked["metrics"] == pytest.approx(one["metrics"], rel=1e-5)


@pytest.mark.slow
def test_the_ranks_exchanges_are_the_parts_of_one(out: Path) -> None:
    one, ranks = load(out, "one"), [load(out, f"rank-{rank}") for rank in (0, 1)]
    assert [[len(ids) for ids in rank["ids"][:5]] for rank in ranks] == [[4, 4, 4, 4, 1], [4, 4, 4, 4, 0]]
    for step, ids in enumerate(one["ids"]):
        assert torch.equal(torch.cat([rank["ids"][step] for rank in ranks]), ids)
        for name in ("outputs", "gradients"):
            together = torch.cat([rank[name][step] for rank in ranks], 1)
            torch.testing.assert_close(together, one[name][step], **CLOSE)


@pytest.mark.slow
def test_a_loader_that_every_rank_would_read_whole_is_refused(out: Path) -> None:
    assert "rows out to 1 rank(s), the Trainer has 2" in load(out, "rank-1")["refused"]
