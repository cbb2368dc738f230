"""Facts of tables, accuracy of networks and the variance study: quick versions of each, and the facts on real data."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from lightleak.core.errors import UsageError
from lightleak.experiments.engine import LocalEngine
from lightleak.experiments.settings import RunConfig
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.reproduce import reproduce
from lightleak.reproductions.reproduction import Outcome, Reproduction, run_stages
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.tableak import fedsgd, trainings
from lightleak.reproductions.tableak.fedsgd import RestartSpread, TableFacts, experiment_of
from lightleak.reproductions.tableak.trainings import NetworkAccuracy
from lightleak.targets.classifier import TabularClassifier


def run(kind: type[Reproduction], made: PaperTable, folder: Path, workers: int = 1, **chosen: Any) -> Outcome:
    with LocalEngine(torch.device("cpu"), workers) as engine:
        return run_stages(kind(made, Selection(**chosen)), folder, engine, quiet=True)


def table(metric: str, *cells: PaperCell) -> PaperTable:
    return PaperTable("tableak-made", "Nobody", "p. 1", "Made", metric, "percent", cells, table=1)


def curve_cell(network: str) -> PaperCell:
    return PaperCell("test_accuracy", "percent", 80.0, 1.0, dataset="synthetic-d1-c1", network=network)


SPREAD = PaperTable(
    "tableak-made",
    "Nobody",
    "p. 1",
    "Made",
    "cell_accuracy_std",
    "percent",
    (),
    figure=13,
    drawn=tuple(
        PaperCell("cell_accuracy_std", "percent", math.nan, dataset=name, attack="tableak", restarts=n)
        for name in ("synthetic-d1-c1", "synthetic-d0-c2")
        for n in (1, 2)
    ),
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "EPOCHS", 2)
    monkeypatch.setattr(trainings, "INITIALIZATIONS", 2)
    monkeypatch.setattr(fedsgd, "ENSEMBLE", 4)
    plain = fedsgd.InversionConfig
    monkeypatch.setattr(fedsgd, "InversionConfig", lambda **settings: plain(steps=5, **settings))


@pytest.mark.usefixtures("quick")
def test_network_accuracy_is_the_peak_over_epochs(tmp_path: Path) -> None:
    made = table("test_accuracy", curve_cell("linear"), curve_cell("mlp-4"))
    compared, rows, _ = run(NetworkAccuracy, made, tmp_path)
    assert [(row["target"], row["seed_index"], row["epoch"]) for row in rows] == [
        (network, i, epoch) for network in ("linear", "mlp-4") for i in (0, 1) for epoch in (1, 2)
    ]
    for one, network in zip(compared, ("linear", "mlp-4"), strict=True):
        curves = [[r["test_accuracy"] for r in rows if (r["target"], r["seed_index"]) == (network, i)] for i in (0, 1)]
        assert one.ours.mean == pytest.approx(100 * (max(curves[0]) + max(curves[1])) / 2)
        assert one.ours.n == 2 and 0 <= one.ours.mean <= 100
        assert curves[0] != curves[1]


@pytest.mark.usefixtures("quick")
def test_an_interrupted_curve_is_not_taken_for_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table("test_accuracy", curve_cell("linear"), curve_cell("mlp-4"))
    whole = run(NetworkAccuracy, made, tmp_path / "whole")
    plain, trained = TabularClassifier.training_step, []

    def stops(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        if self.current_epoch == 1 and len(self.network.linears) > 1:
            raise KeyboardInterrupt
        return plain(self, batch, batch_index)

    def counted(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        trained.append(len(self.network.linears))
        return plain(self, batch, batch_index)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TabularClassifier, "training_step", stops)
        run(NetworkAccuracy, made, folder)
    monkeypatch.setattr(TabularClassifier, "training_step", counted)
    assert run(NetworkAccuracy, made, folder)[1] == whole[1]
    assert set(trained) == {2}  # the linear network's two curves were kept


@pytest.mark.usefixtures("quick")
def test_seed_of_the_command_reaches_the_networks(tmp_path: Path) -> None:
    made = table("test_accuracy", curve_cell("linear"))
    _, rows, _ = run(NetworkAccuracy, made, tmp_path, seeds=(0, 1), batches=1)
    first, second = ([row["test_accuracy"] for row in rows if row["seed"] == seed] for seed in (0, 1))
    assert len(first) == len(second) == 2 and first != second


@pytest.mark.usefixtures("quick")
def test_pooling_narrows_the_spread_and_batches_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared, rows, _ = run(RestartSpread, SPREAD, tmp_path, batches=2)
    assert [(row["dataset"], row["batch_index"]) for row in rows] == [
        (name, i) for name in ("synthetic-d1-c1", "synthetic-d0-c2") for i in (0, 1)
    ]
    assert [(c.cell.dataset, c.cell.restarts) for c in compared] == [
        (name, n) for name in ("synthetic-d1-c1", "synthetic-d0-c2") for n in (1, 2)
    ]
    means = [100 * sum(row["std_restarts"] for row in rows[i : i + 2]) / 2 for i in (0, 2)]
    assert [compared[0].ours.mean, compared[2].ours.mean] == pytest.approx(means)
    monkeypatch.setattr(RestartSpread, "attack", lambda *_: pytest.fail("attacked again"))
    assert run(RestartSpread, SPREAD, tmp_path, batches=2)[1] == rows


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("study", [NetworkAccuracy, RestartSpread, TableFacts])
def test_a_dataset_that_is_not_among_them_is_refused(tmp_path: Path, study: type[Reproduction]) -> None:
    made = table("test_accuracy", curve_cell("linear"))
    with pytest.raises(UsageError, match="nothing of tableak-made is left to run with dataset atlantis"):
        run(study, made, tmp_path, dataset="atlantis")


def test_facts_are_read_off_the_table(tmp_path: Path) -> None:
    values = {"features": 5, "discrete_features": 2, "continuous_features": 3, "data_points": 10_000}
    cells = [PaperCell(m, "count", float(v), dataset="synthetic-d2-c3") for m, v in values.items()]
    experiment = experiment_of("synthetic-d2-c3", "mlp-100-100", None)
    cells.append(PaperCell("encoded_features", "count", float(experiment.encoder.width), dataset="synthetic-d2-c3"))
    table_of = experiment.table
    numbers = [*table_of.train["c1"], *table_of.test["c1"]]
    deviation = float(torch.tensor(numbers, dtype=torch.float64).std(correction=0))
    cells.append(PaperCell("tolerance", "column units", 0.319 * deviation, dataset="synthetic-d2-c3", column="c1"))
    compared, rows, notes = run(TableFacts, table("facts", *cells), tmp_path)
    for one in compared:
        assert one.ours.mean == pytest.approx(one.cell.mean, rel=1e-3), one.cell.metric
    assert len(rows) == 6 and notes == []


def test_a_table_nobody_holds_is_noted_and_the_others_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTLEAK_DATA_DIR", str(tmp_path))
    cells = [PaperCell("features", "count", 2.0, dataset=name) for name in ("adult", "synthetic-d1-c1")]
    made = table("features", *cells)
    compared, rows, notes = run(TableFacts, made, tmp_path, data_folder=str(tmp_path))
    assert [one.ours.n for one in compared] == [0, 1]
    assert len(rows) == 1 and len(notes) == 1 and notes[0].startswith("adult: ")


def facts_of(name: str, data_dir: Path, folder: Path, console: Console, dataset: str) -> dict[Any, Compared]:
    selection = Selection(dataset=dataset, data_folder=str(data_dir))
    compared = reproduce(name, selection, folder, RunConfig(device="cpu", workers=1), ["lightleak"], console)
    return {one.cell.column or one.cell.metric: one for one in compared}


def test_tolerances_of_adult_are_those_of_table_7(data_dir: Path, tmp_path: Path, silent: Console) -> None:
    found = facts_of("tableak-table7", data_dir, tmp_path / "run", silent, "adult")
    printed = {
        "age": 4.2,
        "fnlwgt": 33699,
        "education-num": 0.8,
        "capital-gain": 2395,
        "capital-loss": 129,
        "hours-per-week": 3.8,
    }
    assert found.keys() == printed.keys()
    for column, value in printed.items():
        decimals = 1 if value < 100 else 0
        assert round(found[column].ours.mean, decimals) == value
        assert found[column].agrees is True
    assert "6 of 6 cells agree" in (tmp_path / "run" / "comparison.md").read_text()


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("adult", {"features": 14, "discrete_features": 8, "continuous_features": 6, "encoded_features": 105}),
        ("german", {"features": 20, "discrete_features": 13, "continuous_features": 7, "encoded_features": 63}),
    ],
)
def test_widths_are_those_of_table_8(
    data_dir: Path, tmp_path: Path, silent: Console, dataset: str, expected: dict[str, int]
) -> None:
    found = facts_of("tableak-table8", data_dir, tmp_path / "run", silent, dataset)
    for metric, value in expected.items():
        assert found[metric].ours.mean == value == found[metric].cell.mean
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert {row["dataset"] for row in rows} == {dataset}
