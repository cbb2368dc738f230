"""The tables end to end, on four digits a client with attacks of three steps."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.core.errors import DataError, UsageError
from lightleak.experiments.settings import RunConfig
from lightleak.reproductions.fedavg import clients, tables
from lightleak.reproductions.fedavg.setting import PRESETS, EachImage, FedAvgPreset
from lightleak.reproductions.fedavg.tables import DefendedImages, ImageTable
from lightleak.reproductions.paper.values import load_paper_table, paper_tables
from lightleak.reproductions.reproduce import reproduce, reproduction_of
from lightleak.reproductions.reproduction import Outcome, run_stages
from lightleak.reproductions.settings import Selection

CPU = torch.device("cpu")


def run(number: int, folder: Path, **chosen: Any) -> Outcome:
    """A table with one update a cell, unless the selection says otherwise."""
    selection = Selection(**{"batches": 1, **chosen})
    return run_stages(reproduction_of(load_paper_table(f"fedavg-table{number}"), selection, CPU), folder, quiet=True)


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many updates each attack was run on."""
    seen: Counter[str] = Counter()
    plain = FedAvgInversion.run_many

    def counted(self: FedAvgInversion, updates: Any, *rest: Any) -> Any:
        seen[self.name] += len(updates)
        return plain(self, updates, *rest)

    monkeypatch.setattr(FedAvgInversion, "run_many", counted)
    return seen


def test_every_table_and_figure_can_be_run() -> None:
    names = {name for name in paper_tables() if name.startswith("fedavg-")}
    assert names and names <= set(paper_tables())


@pytest.mark.usefixtures("study")
def test_table_1_runs_five_methods_in_every_setting_and_resumes(tmp_path: Path, attacked: Counter[str]) -> None:
    compared, rows, notes = run(1, tmp_path)
    assert len(compared) == 50 and len(rows) == 25
    assert attacked == dict.fromkeys(
        ("fedavg_prior", "fedavg_no_prior", "fedavg_shared", "fedavg_epoch", "fedavg_fedsgd"), 5
    )
    for one in compared:
        assert one.cell.dataset == "femnist" and one.stand_in == "digits (stand-in)" and one.agrees is None
        assert one.ours.n == 1
        [row] = [
            row
            for row in rows
            if (row["attack"], row["local_epochs"], row["local_batch_size"])
            == (one.cell.attack, one.cell.local_epochs, one.cell.local_batch_size)
        ]
        column, scale = ("psnr", 1) if one.cell.metric == "psnr" else ("reconstructed_share", 100)
        assert one.ours.mean == pytest.approx(scale * row[column])
    assert "stand-in" in notes[0] and "8 x 8" in notes[0]
    assert any("cifar100" in note for note in notes)
    assert run(1, tmp_path)[1] == rows and sum(attacked.values()) == 25
    narrowed = run(1, tmp_path, batches=2, attacks=("fedavg_shared",), settings=("5x5", "1x5"))
    assert len(narrowed[0]) == 4 and all(one.ours.n == 2 for one in narrowed[0])
    kept = [row for row in rows if row["setting"] in ("fedavg_shared_5x5", "fedavg_shared_1x5")]
    assert [row for row in narrowed[1] if row["batch_index"] == 0] == kept


@pytest.mark.usefixtures("study")
def test_long_settings_wait_for_a_gpu_or_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LONG_STEPS", 40)  # of four images: 10 epochs of batches of one
    table, selection = load_paper_table("fedavg-table1"), Selection(batches=1, attacks=("fedavg_fedsgd",))
    compared, rows, notes = run(1, tmp_path, attacks=("fedavg_fedsgd",))
    left = [one for one in compared if one.ours.n == 0]
    assert len(compared) == 10 and [(c.cell.local_epochs, c.cell.local_batch_size) for c in left] == [(10, 1)] * 2
    assert not any(row["local_batch_size"] == 1 for row in rows)
    assert any("Not run here: 10x1" in note and "--settings 10x1" in note for note in notes)
    assert not ImageTable(table, selection, torch.device("cuda")).left_out
    assert all(one.ours.n == 1 for one in run(2, tmp_path / "labels")[0])  # nothing is simulated there
    asked, _, notes = run(1, tmp_path, attacks=("fedavg_fedsgd",), settings=("10x1",))
    assert [one.ours.n for one in asked] == [1, 1] and not any("Not run" in note for note in notes)


@pytest.mark.usefixtures("study")
def test_table_2_restores_labels_in_three_ways(tmp_path: Path, attacked: Counter[str]) -> None:
    compared, rows, notes = run(2, tmp_path, batches=2)
    assert len(compared) == 15 and len(rows) == 5 * 3 * 2 and not attacked
    for one in compared:
        values = [
            row["label_errors"]
            for row in rows
            if (row["variant"], row["local_epochs"], row["local_batch_size"])
            == (one.cell.variant, one.cell.local_epochs, one.cell.local_batch_size)
        ]
        assert one.ours.mean == pytest.approx(sum(values) / 2) and 0 <= one.ours.mean <= 4
    assert any("3,000 images" in note for note in notes)


@pytest.mark.usefixtures("study")
def test_table_3_restores_labels_first(tmp_path: Path) -> None:
    compared, rows, _ = run(3, tmp_path, settings=("5x5",))
    assert len(compared) == 10 and len(rows) == 5
    assert {row["options"]["labels"] for row in rows} == {"interpolated"}
    assert {row["labels"] for row in rows} == {"restored"}
    assert len({row["label_errors"] for row in rows}) == 1  # one client, one estimate


@pytest.mark.usefixtures("study")
def test_table_4_varies_the_prior(tmp_path: Path) -> None:
    compared, rows, _ = run(4, tmp_path)
    assert len(compared) == 16 and len(rows) == 8
    priors = {(row["options"]["prior_statistic"], row["options"]["prior_distance"]) for row in rows}
    assert len(priors) == 8 and len({row["psnr"] for row in rows}) > 1


@pytest.mark.usefixtures("study")
def test_table_6_shows_what_a_defense_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared, rows, notes = run(6, tmp_path, attacks=("fedavg_fedsgd",))
    assert len(compared) == 7 * 3 and len(rows) == 7 * 2
    costs = {(c.cell.defense, c.cell.strength): c.ours for c in compared if c.cell.metric == "test_accuracy"}
    assert len(costs) == 7 and all(cost.n == 1 and 0 <= cost.mean <= 100 for cost in costs.values())
    noisy = [c.ours.mean for c in compared if c.cell.metric == "psnr" and c.cell.defense == "gaussian_noise"]
    assert len(set(noisy)) == 2
    assert any("mean gradient of every local step" in note and "2 rounds of 2" in note for note in notes)
    monkeypatch.setattr(clients, "train_clients", lambda *_: pytest.fail("trained again"))
    assert run(6, tmp_path, attacks=("fedavg_fedsgd",))[1] == rows


def test_table_6_as_published_defends_every_image() -> None:
    table, selection = load_paper_table("fedavg-table6"), Selection(as_published=True)
    study = DefendedImages(table, selection)
    defended = {one.clients.make_defense() for one in study.attack_settings() if one.clients.defense != "none"}
    assert len(defended) == 6 and all(isinstance(one, EachImage) and one.images == 5 for one in defended)
    assert study.preset.steps == 400
    assert any("the gradient of every image" in note for note in study.notes([]))
    assert not any("the gradient of every image" in note for note in DefendedImages(table, Selection()).notes([]))


@pytest.mark.usefixtures("study")
def test_table_7_attacks_later_rounds_of_one_training(tmp_path: Path) -> None:
    compared, rows, _ = run(7, tmp_path, attacks=("fedavg_fedsgd", "fedavg_shared"), batches=2)
    assert len(compared) == 12 and len(rows) == 12
    assert {(row["source"], row["epoch"]) for row in rows} == {("training", 0), ("training", 5), ("training", 10)}
    assert [one.cell.round for one in compared if one.cell.metric == "psnr"] == [1, 1, 6, 6, 11, 11]


@pytest.mark.usefixtures("study")
def test_table_8_varies_what_is_known_of_batches(tmp_path: Path) -> None:
    compared, rows, _ = run(8, tmp_path)
    assert len(compared) == 40 and len(rows) == 3 * 4 + 2 * 2
    shown = {
        (c.cell.known_batch_counts, c.cell.random_batches): c.ours.mean
        for c in compared
        if c.cell.metric == "psnr" and c.cell.attack == "fedavg_fedsgd"
    }
    assert shown[True, True] == shown[False, True] != shown[True, False]


def test_table_9_assumes_other_epochs(study: FedAvgPreset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 50 images, so that all assumed epochs divide the 50 local steps.
    monkeypatch.setitem(PRESETS, "framed_digits", replace(study, rows=50))
    compared, rows, notes = run(9, tmp_path, attacks=("fedavg_fedsgd",), iterations=1)
    assert len(compared) == 8 and [row["options"]["assumed_epochs"] for row in rows] == [5, 10, 25, 50]
    assert any("not epochs and batch size" in note for note in notes)


@pytest.mark.usefixtures("study")
def test_table_10_attacks_aggregates(tmp_path: Path) -> None:
    compared, rows, _ = run(10, tmp_path, attacks=("fedavg_prior",))
    assert len(compared) == 6
    assert [(row["n_clients"], row["batch_size"]) for row in rows] == [(1, 4), (2, 8), (4, 16)]


@pytest.mark.usefixtures("study")
def test_table_11_tells_the_hours_of_100_clients(tmp_path: Path) -> None:
    compared, rows, notes = run(11, tmp_path, attacks=("fedavg_epoch",), settings=("1x5",))
    [one] = compared
    assert one.ours.mean == pytest.approx(rows[0]["seconds"] * 100 / 3600) and one.agrees is None
    assert any("times 100" in note for note in notes)


@pytest.mark.usefixtures("study")
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"dataset": "emnist"}, "dataset must be one of digits, framed_digits, mnist, femnist, cifar100, got 'emnist'"),
        ({"attacks": ("tableak",)}, "nothing of fedavg-table10 is left to run with dataset digits, attacks tableak"),
        ({"settings": ("10x4",)}, "--settings must be among 10x5, got '10x4'"),
        ({"settings": ("ten",)}, "--settings must be among 10x5, got 'ten'"),
        (
            {"batches": 90},
            "--batches must be at most 89: digits has 359 clients of 4 images, and an update is of",
        ),
        ({"dataset": "cifar100"}, "nothing of fedavg-table10 is left to run with dataset cifar100"),
    ],
)
def test_wrong_use_is_refused_before_any_work(
    tmp_path: Path, attacked: Counter[str], chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run(10, tmp_path, **chosen)
    assert not attacked and not list(tmp_path.iterdir())


def test_a_dataset_nobody_holds_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="FEMNIST needs JSON files"):
        run(1, tmp_path / "run", dataset="femnist", data_folder=str(tmp_path))
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("study")
def test_the_command_writes_both_columns_under_their_own_names(tmp_path: Path, silent: Console) -> None:
    folder = tmp_path / "run"
    selection = Selection(batches=2, attacks=("fedavg_shared",), settings=("5x5",))
    compared = reproduce("fedavg-table1", selection, folder, RunConfig(device="cpu", workers=1), ["lightleak"], silent)
    page = (folder / "comparison.md").read_text()
    assert "| paper: femnist | ours: digits (stand-in) |" in page and "nothing is judged" in page
    results = json.loads((folder / "results.json").read_text())
    [summary] = results["summary"]
    assert summary["setting"] == "fedavg_shared_5x5" and summary["psnr"]["n"] == 2
    assert summary["psnr"]["mean"] == pytest.approx(next(c.ours.mean for c in compared if c.cell.metric == "psnr"))
    assert not math.isnan(summary["reconstructed_share"]["low"])
