"""The thesis's tables on a small table: every cell comes from the rows that its coordinates name."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.experiments.engine import Engine, LocalEngine
from lightleak.experiments.kinds.released.config import ReleasedConfig, SamplesConfig
from lightleak.experiments.pack import Finished
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduce import reproduction_of
from lightleak.reproductions.reproduction import Outcome, run_stages
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.thesis import tables

SMALL = SamplesConfig(2, 20, ("random", "softmax", "gradient", "tpe", "random_best"), 5, 1)


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs a table with the small audit in place of Diabetes-130."""

    def setting(name: str, selection: Selection, attacks: Any = None, samples: Any = None) -> Any:
        plgmi, sizes = settings["attacks"]["plgmi"], samples or {}
        small = SMALL if "searches" in sizes else SamplesConfig(min(2, sizes.get("evaluations", 2)), 20)
        trained = {
            label: ({} if label.startswith("public") else plgmi) | told
            for label, told in (attacks or {"plgmi": {}, "public_random": {}}).items()
        }
        config = ReleasedConfig.parse({**settings, "attacks": trained, "setting": name, "samples": vars(small)})
        return replace(config, seeds=selection.seeds)

    monkeypatch.setattr(tables, "setting", setting)

    def table(name: str, engine: Engine | None = None, **selected: Any) -> Outcome:
        selection = Selection(**{"settings": ("2",), **selected})
        printed = load_paper_table(name)
        if name == "thesis-tableA.2":  # of its 20 classes the small table has three
            cells = tuple(cell for cell in printed.cells if int(str(cell.value)) < 3)
            printed = replace(printed, cells=cells)
        return run_stages(reproduction_of(printed, selection, torch.device("cpu")), tmp_path, engine, quiet=True)

    return table


class NothingBegins(LocalEngine):
    """An engine whose time is up before any work."""

    def run(self, packs: Any, folder: Path, watch: Any = None) -> Iterator[Finished]:
        """See `Engine.run`."""
        return iter(())


@pytest.mark.parametrize("name", ["thesis-table5.3", "thesis-table5.5", "thesis-table5.6", "thesis-tableA.2"])
def test_a_table_of_which_nothing_began_says_so_of_every_cell(name: str, run: Callable[..., Outcome]) -> None:
    compared, rows, notes = run(name, NothingBegins(torch.device("cpu")))
    assert rows == []
    assert {cell.ours.n for cell in compared} == {0}
    assert not [note for note in notes if "nan" in note]


def test_table_5_5_compares_the_attack_and_notes_its_baselines(run: Callable[..., Outcome]) -> None:
    compared, rows, notes = run("thesis-table5.5")
    assert [(c.cell.value, c.cell.metric) for c in compared] == [
        ("2", "attack_accuracy"),
        ("2", "shapes_score"),
        ("2", "pair_trends_score"),
    ]
    own = [row for row in rows if row["label"] == "plgmi"]
    for cell in compared:
        assert cell.ours.mean == pytest.approx(50 * sum(row[cell.cell.metric] for row in own))
        assert cell.ours.n == 1  # two evaluations of one training are one measurement
        assert cell.agrees is None  # another table: nothing is judged
    assert any("public_random" in note and "held-out" in note for note in notes)


def test_evaluations_are_averaged_within_a_training() -> None:
    rows = [{"seed": s, "attack_accuracy": x} for s, x in ((0, 0.5), (0, 0.7), (0, 0.6), (1, 0.8), (1, 0.8), (2, 0.7))]
    found = tables.over_trainings(rows, "attack_accuracy", 100)
    assert (found.n, found.mean) == (3, pytest.approx(70.0))
    assert found.std == pytest.approx(10.0)  # of 60, 80 and 70


def test_table_5_3_is_the_target_on_training_and_held_out_rows(run: Callable[..., Outcome], tmp_path: Path) -> None:
    compared, _, _ = run("thesis-table5.3")
    scores = json.loads((tmp_path / "setting-2" / "units" / "model-target-s0.json").read_text())
    found = {c.cell.metric: c.ours.mean for c in compared}
    assert found == {
        "train_accuracy": pytest.approx(100 * scores["train_accuracy"]),
        "test_accuracy": pytest.approx(100 * scores["test_accuracy"]),
    }


@pytest.mark.slow
def test_table_5_6_reads_the_loss_at_z_of_each_search(run: Callable[..., Outcome]) -> None:
    compared, rows, notes = run("thesis-table5.6")
    for one in compared:
        own = [r for r in rows if r["label"] == "plgmi" and r["latent_search"] == one.cell.variant]
        key = "inversion_loss_searched" if one.cell.metric == "inversion_loss" else "attack_accuracy"
        scale = 1 if one.cell.metric == "inversion_loss" else 100
        assert one.ours.mean == pytest.approx(scale * sum(r[key] for r in own) / len(own))
    assert sum("shared transform" in note for note in notes) == 5


def test_table_a_2_finds_classes_by_name_and_leaves_columns_out_that_are_not_there(
    run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = {"num_procedures": "visits", "race": "ward=a", "length_of_stay": "gone"}
    monkeypatch.setattr(tables, "THESIS", {**tables.THESIS, "columns": ours})
    compared, _, _ = run("thesis-tableA.2")
    entry = json.loads((tmp_path / "setting-2" / "inversion.json").read_text())["entries"][0]
    pairs = {f"d{i}": pair for i, pair in enumerate(sorted(entry["nearest"], key=lambda pair: pair["class"]))}
    for one in compared:
        pair = pairs[f"d{one.cell.value}"]
        if one.cell.column == "num_procedures":
            assert one.ours.mean == abs(pair["reconstructed"]["visits"] - pair["private"]["visits"])
        elif one.cell.column != "race":
            assert math.isnan(one.ours.mean)


def test_another_dataset_is_refused(run: Callable[..., Outcome]) -> None:
    with pytest.raises(UsageError, match="runs on diabetes130, got --dataset mimic_iv"):
        run("thesis-table5.5", dataset="mimic_iv")
