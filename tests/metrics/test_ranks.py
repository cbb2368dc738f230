"""Metrics over two gloo processes are those of one process that saw every batch."""

import json
import runpy
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("two_ranks.py")
RANKS = 2


def test_two_ranks_agree_with_one_process(make_case: Callable, leave_results: Callable, tmp_path: Path):
    batches = []
    for seed, n in enumerate((6, 9, 4, 7, 5)):
        batch = make_case(seed, n, wrong=0.1 + 0.1 * seed).batch
        batches.append({field.name: getattr(batch, field.name) for field in fields(batch)})
    # Shared out unevenly, and with a rank that has nothing to say.
    shares = [[batches[0::2], batches[1::2]], [batches, []]]
    torch.save(shares, tmp_path / "shares.pt")
    leave_results(SCRIPT, tmp_path)
    expected = runpy.run_path(str(SCRIPT))["compute"](batches)
    assert len(set(expected.values())) > 8  # metrics that all say the same would prove little
    for rank in range(RANKS):
        for values in json.loads((tmp_path / f"rank{rank}.json").read_text()):
            assert values == pytest.approx(expected, abs=1e-12, nan_ok=True)
