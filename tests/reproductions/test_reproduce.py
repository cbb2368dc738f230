"""A reproduction from a paper's cells to ``comparison.md``, on a made table of a made paper."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.stats import kendalltau

from lightleak.core.errors import UsageError
from lightleak.core.results import read_rows
from lightleak.experiments import campaign
from lightleak.experiments.clients import Federation
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.took import TOOK
from lightleak.experiments.unit import run_pack
from lightleak.reproductions import reproduce as module
from lightleak.reproductions.comparison import COMPARISON_FILE
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.reproduce import RUN_FILE, list_reproductions, reproduce
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.tableak.fedsgd import GradientAttacks, gradient_setting_of

COMMON = {"dataset": "synthetic-d1-c1", "network": "mlp-3", "batch_size": 4}
QUICK = {"attack": "tableak", "restarts": 2, "steps": 5}


def cell(mean: float = 60.0, std: float | None = 5.0, **coordinates: Any) -> PaperCell:
    return PaperCell(
        **{"metric": "cell_accuracy", "unit": "percent", "mean": mean, "std": std, **COMMON, **coordinates}
    )


TABLE = PaperTable(
    "tableak-made1",
    "Nobody, 2026",
    "p. 1",
    "A made table",
    "cell_accuracy",
    "percent",
    (
        cell(**QUICK, labels="true"),
        cell(**QUICK, labels="restored"),
        cell(attack="random"),
        cell(attack="random", batch_size=3, metric="rmse", unit="deviations", mean=1.0),
    ),
    table=1,
    run="tableak.fedsgd.GradientAttacks",
)


@pytest.fixture(autouse=True)
def made_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "load_paper_table", lambda name: {"tableak-made1": TABLE, "tableak-made2": FEDERATED}[name]
    )


def run(folder: Path, console: Console, name: str = "tableak-made1", **selection: Any) -> list[Any]:
    return reproduce(
        name,
        Selection(**{"batches": 2, **selection}),
        folder,
        RunConfig(device="cpu", workers=1),
        ["lightleak", "x"],
        console,
    )


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["rows"]


def test_folder_holds_results_and_comparison(tmp_path: Path, silent: Console) -> None:
    compared = run(tmp_path / "run", silent)
    rows = rows_of(tmp_path / "run")
    assert [(r["attack"], r["labels"], r["batch_size"], r["batch_index"]) for r in rows] == [
        ("tableak", "true", 4, 0),
        ("tableak", "true", 4, 1),
        ("tableak", "restored", 4, 0),
        ("tableak", "restored", 4, 1),
        ("random", "true", 4, 0),
        ("random", "true", 4, 1),
        ("random", "true", 3, 0),
        ("random", "true", 3, 1),
    ]
    for one, part in zip(compared, (rows[:2], rows[2:4], rows[4:6], rows[6:]), strict=True):
        name, scale = ("rmse", 1) if one.cell.metric == "rmse" else ("cell_accuracy", 100)
        assert one.ours.n == 2
        assert one.ours.mean == pytest.approx(scale * (part[0][name] + part[1][name]) / 2)
        assert {row["target"] for row in part} == {"mlp-3"} and {row["seed"] for row in part} == {0}
    page = (tmp_path / "run" / "comparison.md").read_text()
    assert page.startswith("# tableak-made1: A made table")
    assert "Made by `lightleak x`" in page and "| paper | ours |" in page
    assert "Random is that of the published code" in page and "GradInversion" not in page
    assert (tmp_path / "run" / "environment.json").is_file()
    assert not (tmp_path / "run" / "reconstructions").exists()


def test_every_cell_is_a_typed_row_with_both_values(tmp_path: Path, silent: Console) -> None:
    compared = run(tmp_path / "run", silent)
    rows = read_rows(json.loads((tmp_path / "run" / COMPARISON_FILE).read_text()), "here")
    assert [(row.table, row.paper, row.page, row.metric) for row in rows] == [
        ("tableak-made1", "Nobody, 2026", "p. 1", one.cell.metric) for one in compared
    ]
    for row, one in zip(rows, compared, strict=True):
        assert (row.value, row.n, row.low, row.high) == (one.ours.mean, 2, one.ours.low, one.ours.high)
        assert row.printed == one.cell.mean and row.printed_error == pytest.approx(5 / math.sqrt(50))
        assert row.cell["batch_size"] == one.cell.batch_size and row.attack == one.cell.attack
        own = [
            r
            for r in rows_of(tmp_path / "run")
            if r["attack"] == row.attack and r["labels"] == (one.cell.labels or "true")
        ]
        own = [r for r in own if r["batch_size"] == one.cell.batch_size]
        assert row.seconds == pytest.approx(sum(r["seconds"] for r in own))


def test_more_batches_and_attacks_add_to_a_folder(
    tmp_path: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "at once", silent, batches=2)
    ran = []

    def counted(pack: Any, *rest: Any) -> None:
        ran.append([unit.id for unit in pack])
        run_pack(pack, *rest)

    monkeypatch.setattr(campaign, "run_pack", counted)
    folder = tmp_path / "bit by bit"
    run(folder, silent, batches=1, attacks=("random",))
    assert len(ran) == 2
    ran.clear()
    run(folder, silent, batches=1)
    assert len(ran) == 2 and all(unit.startswith("synthetic-d1-c1_mlp-3_tableak") for (unit,) in ran)
    first = {row["unit"]: row for row in rows_of(folder)}
    run(folder, silent, batches=2)
    rows = {row["unit"]: row for row in rows_of(folder)}
    assert first.items() <= rows.items()  # to the second: nothing was measured again
    for row in rows_of(tmp_path / "at once"):  # two batches at once: equal to rounding
        other = rows[row["unit"]]
        assert row.keys() == other.keys()
        for name in row.keys() - set(TOOK):
            is_number = isinstance(row[name], float)
            assert row[name] == (pytest.approx(other[name], rel=1e-4) if is_number else other[name]), name


def test_seeds_repeat_on_other_batches(tmp_path: Path, silent: Console) -> None:
    compared = run(tmp_path / "run", silent, seeds=(0, 1), attacks=("random",))
    assert [one.ours.n for one in compared] == [4, 4]
    assert [row["seed"] for row in rows_of(tmp_path / "run")] == [0, 0, 1, 1] * 2
    assert len({row["rmse"] for row in rows_of(tmp_path / "run")}) == 8


def test_an_interrupted_reproduction_keeps_its_rows(
    tmp_path: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second_stops(pack: Any, *rest: Any) -> None:
        if "restored" in pack[0].id:
            raise KeyboardInterrupt
        run_pack(pack, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(campaign, "run_pack", second_stops)
        run(tmp_path / "run", silent)
    kept = rows_of(tmp_path / "run")
    assert len(kept) == 2 and not (tmp_path / "run" / "comparison.md").exists()
    run(tmp_path / "run", silent)
    assert rows_of(tmp_path / "run")[:2] == kept


def test_a_folder_takes_one_reproduction(tmp_path: Path, silent: Console) -> None:
    run(tmp_path / "run", silent, attacks=("random",), batches=1)
    with pytest.raises(UsageError, match="holds another reproduction"):
        run(tmp_path / "run", silent, seeds=(3,))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no reproduction"):
        run(tmp_path / "mine", silent)
    assert json.loads((tmp_path / "run" / RUN_FILE).read_text()) == {"name": "tableak-made1", "seeds": [0]}


def test_a_folder_takes_measurements_on_one_set_of_files(
    tmp_path: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, few = COMMON["dataset"], {"attacks": ("random",), "batches": 1}
    monkeypatch.setattr(module, "WHOLE", {name: "whole.csv"})
    with monkeypatch.context() as files:
        files.setattr(module, "replaced_by", lambda dataset, folder: f"{dataset} (part of its rows)")
        run(tmp_path / "run", silent, **few)
        run(tmp_path / "run", silent, **few)
    with pytest.raises(UsageError, match=r"measurements on .* \(part of its rows\).*choose another --output"):
        run(tmp_path / "run", silent, **few)
    noted = tmp_path / "run" / RUN_FILE
    assert json.loads(noted.read_text())["measured_on"] == {name: f"{name} (part of its rows)"}
    for unit in (tmp_path / "run").rglob("units/*.json"):
        unit.unlink()
    run(tmp_path / "run", silent, **few)  # nothing had been measured
    assert json.loads(noted.read_text())["measured_on"] == {name: f"{name} (its own rows)"}


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"dataset": "german"}, "dataset german"),
        ({"attacks": ("provfl",), "labels": "true"}, "attacks provfl, labels true"),
        ({"batch_sizes": (1, 2)}, "batch sizes 1,2"),
    ],
)
def test_a_selection_of_nothing_is_refused(
    tmp_path: Path, silent: Console, selection: dict[str, Any], message: str
) -> None:
    # The made baselines name no labels and so fit any: the selection must leave them out by another key.
    selection = {"attacks": ("tableak",), **selection}
    with pytest.raises(UsageError, match="nothing of tableak-made1 is left to run with .*" + message.split(",")[0]):
        run(tmp_path / "run", silent, **selection)
    assert not (tmp_path / "run").exists()


FEDERATED = replace(
    TABLE,
    name="tableak-made2",
    cells=tuple(
        cell(attack="random", dataset="synthetic-d1-c1", batch_size=32, training_epochs=epoch) for epoch in (1, 2)
    ),
)


def test_epochs_are_rounds_of_the_federation(tmp_path: Path, silent: Console) -> None:
    compared = run(tmp_path / "run", silent, name="tableak-made2", batches=2)
    rows = rows_of(tmp_path / "run")
    assert [(row["source"], row["epoch"], row["batch_size"]) for row in rows] == [
        ("training", e, 32) for e in (1, 1, 2, 2)
    ]
    assert [one.ours.n for one in compared] == [2, 2]
    assert "one FedSGD round of 50 clients" in (tmp_path / "run" / "comparison.md").read_text()


def test_more_batches_than_clients_are_refused(tmp_path: Path, silent: Console) -> None:
    limit = Federation.clients
    with pytest.raises(UsageError, match=f"--batches must be at most {limit}, the clients of the federation; got 51"):
        run(tmp_path / "run", silent, name="tableak-made2", batches=limit + 1)


def test_rank_correlation_is_over_batches() -> None:
    tau = cell(attack="random", metric="kendall_tau", unit="correlation", std=None, mean=0.1, feature_kind="numerical")
    name = gradient_setting_of(tau).name
    measured = GradientAttacks(replace(TABLE, cells=(tau,)), Selection()).measured
    values = [(0.1, 0.9), (0.5, 0.7), (0.4, 0.8), (None, 0.2), (0.3, 0.6)]
    rows = [{"setting": name, "mean_entropy_numerical": e, "numerical_accuracy": a} for e, a in values]
    ours = measured(tau, [*rows, {"setting": "another"}])
    expected = kendalltau([0.1, 0.5, 0.4, 0.3], [0.9, 0.7, 0.8, 0.6]).statistic
    assert ours.mean == pytest.approx(expected) and ours.n == 4
    assert math.isnan(measured(tau, rows[:1]).mean)


def test_list_prints_name_and_title(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "paper_tables", lambda: ("tableak-made1", "tableak-made2"))
    list_reproductions(Console(width=300))
    assert capsys.readouterr().out.splitlines() == [
        f"{name:20}A made table" for name in ("tableak-made1", "tableak-made2")
    ]


def test_unknown_name_is_refused_with_the_closest(
    tmp_path: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with pytest.raises(UsageError, match="did you mean 'tableak-table17'"):
        reproduce("tableak-tabel17", Selection(), tmp_path / "run", RunConfig(), [], silent)
