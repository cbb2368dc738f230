"""Table 5: the printed network, where its parts fit each other, and that of the published code."""

from pathlib import Path
from typing import Any

from lightleak.reproductions.fedavg.tables import NetworkFacts
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduction import Outcome, run_stages
from lightleak.reproductions.settings import Selection


def run(folder: Path, **chosen: Any) -> Outcome:
    return run_stages(NetworkFacts(load_paper_table("fedavg-table5"), Selection(**chosen)), folder, quiet=True)


def differing(result: Outcome) -> set[tuple[str | None, str | None, str, float]]:
    """Where ours is not what is printed."""
    return {
        (one.cell.dataset, one.cell.column, one.cell.metric, one.ours.mean)
        for one in result[0]
        if one.ours.mean != one.cell.mean
    }


def test_printed_network_is_ours_but_for_femnists_images(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert len(result[0]) == 34 == len(result[1])
    # 28 x 28 and grey, where Table 5 counts three channels and 9 x 9 positions.
    assert differing(result) == {("femnist", "conv1", "in_channels", 1), ("femnist", "linear1", "in_features", 4096)}
    assert all(one.agrees is (one.ours.mean == one.cell.mean) for one in result[0])


def test_published_code_has_another_second_kernel(tmp_path: Path) -> None:
    found = differing(run(tmp_path, as_published=True))
    assert {entry for entry in found if entry[0] == "cifar100"} == {
        ("cifar100", "conv2", "kernel_size", 3),
        ("cifar100", "linear1", "in_features", 128 * 8 * 8),
    }


def test_digits_stand_beside_femnist_and_are_not_judged(tmp_path: Path) -> None:
    compared, rows, notes = run(tmp_path, dataset="digits")
    assert {one.cell.dataset for one in compared} == {"femnist"} and {row["dataset"] for row in rows} == {"digits"}
    assert all(one.agrees is None and one.stand_in == "digits (stand-in)" for one in compared)
    assert "stand-in" in notes[0]
