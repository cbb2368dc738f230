"""Under DDP each rank is a client, and one report speaks of all of them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("watch_on_two_processes.py")


@pytest.mark.slow
def test_the_report_holds_the_captures_of_every_rank(leave_results: Callable[[Path], Path]) -> None:
    out = leave_results(SCRIPT)
    ranks = [torch.load(out / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert [len(rank["inputs"]) for rank in ranks] == [2, 2]
    assert not torch.equal(ranks[0]["inputs"][0], ranks[1]["inputs"][0])
    rows = json.loads((out / "run" / "results.json").read_text())["rows"]
    assert len(rows) == 4
    # The figure that was logged, of all ranks, is the mean of the rows: what was found was scored with its own truth.
    mean = sum(row["cell_accuracy"] for row in rows) / len(rows)
    assert ranks[0]["logged"] == pytest.approx(mean) and ranks[1]["logged"] == pytest.approx(mean)
