"""Under DDP every rank ends up with the records of all ranks, each once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

SCRIPT = Path(__file__).with_name("train_split_on_two_processes.py")


@pytest.fixture(scope="module")
def out(leave_results: Callable[[Path], Path]) -> Path:
    return leave_results(SCRIPT)


@pytest.fixture(scope="module", params=["even", "repeating"])
def ranks(out: Path, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return [torch.load(out / f"{request.param}-{rank}.pt", weights_only=True) for rank in (0, 1)]


def step_by_step(ranks: list[dict[str, Any]], epoch: int) -> dict[int, tuple[Tensor, Tensor]]:
    """Outputs and gradients by id, in the slow and obvious way; of a record given to both ranks, the earlier step's."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    steps = zip(*([step for step in rank["seen"] if step[0] == epoch] for rank in ranks), strict=True)
    for _, ids, outputs, gradients in (exchange for step in steps for exchange in step):
        for row, sample in enumerate(ids.tolist()):
            found.setdefault(sample, (outputs[:, row], gradients[:, row]))
    return dict(sorted(found.items()))


@pytest.mark.slow
def test_some_records_are_given_to_both_ranks(out: Path) -> None:
    """Else nothing here tests that each is kept once."""
    parts = [torch.load(out / f"repeating-{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert sum(len(step[1]) for part in parts for step in part["seen"] if step[0] == 0) > 50


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["C1", "disk", "C2"])
def test_every_record_once_whichever_rank_saw_it(ranks: list[dict[str, Any]], name: str, rank: int) -> None:
    adversary = 0 if name == "C2" else 1
    places = {"AO": (adversary, 0), "AG": (adversary, 1), "VO": (1 - adversary, 0), "VG": (1 - adversary, 1)}
    for epoch, (ids, results) in ranks[rank]["results"][name].items():
        expected = step_by_step(ranks, epoch)
        assert ids.tolist() == list(expected)
        assert len(ids) == 50
        assert list(results) == (["AO"] if name == "C2" else list(places))
        for kind, values in results.items():
            party, place = places[kind]
            assert torch.equal(values, torch.stack([both[place][party] for both in expected.values()])), kind


@pytest.mark.slow
@pytest.mark.parametrize("name", ["C1", "disk", "C2"])
def test_two_processes_record_what_one_does(out: Path, name: str) -> None:
    alone = torch.load(out / "alone.pt", weights_only=True)["results"][name]
    for epoch, (ids, results) in torch.load(out / "even-0.pt", weights_only=True)["results"][name].items():
        assert torch.equal(ids, alone[epoch][0])
        assert results.keys() == alone[epoch][1].keys()
        for kind, values in results.items():
            torch.testing.assert_close(values, alone[epoch][1][kind], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_training_is_bit_identical_on_every_rank(ranks: list[dict[str, Any]], rank: int) -> None:
    plain, recorded = ranks[rank]["plain"], ranks[rank]["recorded"]
    assert plain.keys() == recorded.keys()
    assert all(torch.equal(plain[name], recorded[name]) for name in plain)


@pytest.mark.slow
def test_only_the_merged_files_stay(out: Path) -> None:
    kinds = ("AO", "AG", "VO", "VG")
    expected = {f"epoch-00{epoch}-all-r{rank}.{kind}" for epoch in (0, 1) for rank in (0, 1) for kind in kinds}
    assert {path.name for path in (out / "disk-even").iterdir()} == expected
