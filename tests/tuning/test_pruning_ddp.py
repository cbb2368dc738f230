"""Under DDP rank 0 alone talks to the trial, and both processes stop, finish or fail at the same epoch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("prune_on_two_processes.py")
EPOCHS = 5


@pytest.fixture(scope="module")
def ranks(leave_results: Callable[[Path], Path]) -> Callable[[str], list[dict[str, Any]]]:
    folder = leave_results(SCRIPT)  # it ends: no rank waits for another
    return lambda name: [json.loads((folder / f"{name}-{rank}.json").read_text("utf-8")) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "trained", "pruned"),
    [("finishes", EPOCHS, False), ("pruned", 2, True), ("pruned-without-trial-on-rank-1", 3, True)],
)
def test_both_ranks_stop_at_the_epoch_that_rank_0_says(
    ranks: Callable[[str], list[dict[str, Any]]], name: str, trained: int, pruned: bool
) -> None:
    first, second = ranks(name)
    assert first["trained"] == second["trained"] == trained
    assert first["pruned"] is second["pruned"] is pruned
    assert first["error"] is second["error"] is None
    assert first["reports"] == [[float(epoch), epoch + 1] for epoch in range(trained)]
    assert second["reports"] == []


@pytest.mark.slow
def test_both_ranks_fail_where_the_monitor_is_not_logged(ranks: Callable[[str], list[dict[str, Any]]]) -> None:
    first, second = ranks("unlogged")
    assert (
        first["error"] == second["error"] == "UsageError: monitor 'nothing' is not logged by validation; logged: score"
    )
    assert not first["pruned"] and not second["pruned"]


@pytest.mark.slow
def test_no_rank_waits_for_one_whose_trial_breaks(ranks: Callable[[str], list[dict[str, Any]]]) -> None:
    first, second = ranks("breaks")
    assert first["error"] == "ConnectionError: storage is gone"
    assert second["error"] == "LightLeakError: rank 0 could not report to its trial: ConnectionError: storage is gone"
    assert first["trained"] == second["trained"] == 1
