"""TabLeak's FedAvg tables on a made one: the search on validation clients, and what is reported."""

import json
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.experiments import campaign
from lightleak.experiments.unit import run_pack
from lightleak.reproductions.paper.values import PaperCell, PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.reproduction import Outcome, run_stages
from lightleak.reproductions.settings import Selection, setting_name
from lightleak.reproductions.tableak import prior_search
from lightleak.reproductions.tableak.fedsgd import ON_UPDATES
from lightleak.reproductions.tableak.prior_search import (
    PRIOR_WEIGHTS,
    SEARCH_FILE,
    GradInversionSearch,
    PriorSearch,
    best_weight,
    local_setting_of,
)

CELL = PaperCell(
    "cell_accuracy",
    "percent",
    70.0,
    3.0,
    dataset="synthetic-d1-c1",
    network="mlp-3",
    protocol="fedavg",
    attack="tableak",
    labels="true",
    batch_size=4,
    local_epochs=1,
    local_batches=2,
    restarts=3,
    steps=3,
)
CELLS = (
    CELL,
    replace(CELL, local_epochs=2),
    replace(CELL, local_epochs=2, attack="inverting_gradients", restarts=None),
    PaperCell(
        "cell_accuracy", "percent", 57.7, dataset="synthetic-d1-c1", network="mlp-3", attack="random", batch_size=4
    ),
)
TABLE = PaperTable("tableak-made", "Nobody", "p. 1", "Made", "cell_accuracy", "percent", CELLS, table=1)
SETTINGS = tuple(local_setting_of(cell) for cell in CELLS)
TABLES = [f"tableak-table{n}" for n in (2, 21, 22, 23, 24)]


@pytest.fixture(autouse=True)
def three_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior_search, "PRIOR_WEIGHTS", (0.0, 0.5, 0.1))


def search(**selection: Any) -> PriorSearch:
    return PriorSearch(TABLE, Selection(**selection))


def run(folder: Path, **selection: Any) -> Outcome:
    return run_stages(search(**{"batches": 2, **selection}), folder, quiet=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Any, Any, Any]]:
    folder = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_search, "PRIOR_WEIGHTS", (0.0, 0.5, 0.1))
        return folder, run(folder)


def test_weights_are_those_of_the_published_runs() -> None:
    assert PRIOR_WEIGHTS == (0.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001)  # epoch_prior_params in run_fed_avg_attacks.py


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_the_papers_tables_has_a_setting_of_its_own(name: str) -> None:
    assert name in paper_tables()
    cells = load_paper_table(name).cells
    settings = [local_setting_of(cell) for cell in cells]
    assert len(set(settings)) == len(cells) == 19
    assert {setting.batch_size for setting in settings} == {32}
    assert {(setting.attack, dict(setting.options).get("restarts")) for setting in settings} == {
        ("tableak", 15),
        ("inverting_gradients", None),
        ("random", None),
    }
    named = [setting_name(cell) for cell in cells if cell.attack == "tableak"]
    assert named == ["1x1", "5x1", "10x1", "1x2", "5x2", "10x2", "1x4", "5x4", "10x4"]


def test_clients_are_those_of_the_paper() -> None:
    protocol = local_setting_of(replace(CELL, batch_size=32, local_epochs=10, local_batches=4)).protocol
    assert protocol is not None
    training = protocol.local_training(32)
    assert (training.epochs, training.batch_size, training.learning_rate, training.reshuffle) == (10, 8, 0.01, False)


def test_every_attack_is_told_what_the_server_knows() -> None:
    for setting in SETTINGS:
        if setting.attack != "random":
            known = setting.attack_options
            assert known["labels"] == "true" and known["label_order"] == "batches"


def test_the_search_is_over_all_weights_with_fewer_restarts_and_all_steps() -> None:
    units = search(search_restarts=2).search_units()
    searched = [(u.attack, u.facts["local_epochs"], u.options["epoch_prior"], u.options.get("restarts")) for u in units]
    assert searched == [("tableak_fedavg", 2, weight, 2) for weight in (0.0, 0.5, 0.1)] + [
        ("inverting_gradients_fedavg", 2, weight, None) for weight in (0.0, 0.5, 0.1)
    ]
    assert {unit.options["steps"] for unit in units} == {3}
    assert {unit.options.get("restarts") for unit in search().search_units()} == {3, None}  # 5 at most


def test_validation_clients_are_never_reported_ones() -> None:
    table = search(seeds=(0, 1), batches=3)
    reported = table.reported_units(dict.fromkeys(SETTINGS[:3], 0.1))
    seen = {tuple(unit.observe()[1].inputs.flatten().tolist()) for unit in reported}
    searched = {tuple(unit.observe()[1].inputs.flatten().tolist()) for unit in table.search_units()}
    assert len(seen) == 6 and len(searched) == 1 and not seen & searched
    assert not {unit.seed for unit in reported} & {unit.seed for unit in table.search_units()}


def test_the_most_accurate_weight_is_chosen_and_the_first_of_equal_ones() -> None:
    trials = search().trials()
    assert list(trials) == [SETTINGS[1], SETTINGS[2]]  # one epoch and the baseline have no weight to choose
    scores = {0.0: 0.5, 0.5: 0.7, 0.1: 0.7}
    accuracy = {trials[SETTINGS[1]][weight].name: score for weight, score in scores.items()}
    accuracy[trials[SETTINGS[2]][0.1].name] = 0.99
    assert best_weight(trials[SETTINGS[1]], accuracy) == 0.5
    assert best_weight(trials[SETTINGS[2]], accuracy) == 0.1
    without = search().weights(Path("no such run"))
    assert list(without.values()) == [0.0, 0.0, 0.0, None]


def test_rows_carry_the_chosen_weight_and_no_validation_client(finished: tuple[Path, Any]) -> None:
    folder, (compared, rows, notes) = finished
    assert [(row["attack"], row["local_epochs"], row["batch_index"]) for row in rows] == [
        (ON_UPDATES[cell.attack or ""], cell.local_epochs or 1, i) for cell in CELLS for i in (0, 1)
    ]
    tried = json.loads((folder / SEARCH_FILE).read_text())
    assert len(tried) == 6 and sum(entry["chosen"] for entry in tried) == 2
    for entry in tried:
        best = max(e["cell_accuracy"] for e in tried if e["attack"] == entry["attack"])
        assert not entry["chosen"] or entry["cell_accuracy"] == best
    chosen = {entry["attack"]: entry["epoch_prior"] for entry in tried if entry["chosen"]}
    for row in rows:
        has_prior = row["attack"] != "random" and row["local_epochs"] > 1
        assert row["epoch_prior"] == (
            chosen[row["attack"]] if has_prior else None if row["attack"] == "random" else 0.0
        )
        assert row["attack"] == "random" or row["options"]["epoch_prior"] == row["epoch_prior"]
    for i, (cell, one) in enumerate(zip(CELLS, compared, strict=True)):
        own = [row["cell_accuracy"] for row in rows[2 * i : 2 * i + 2]]
        assert one.cell == cell and one.ours.n == 2 and one.ours.mean == pytest.approx(50 * sum(own))
    assert any(f"2x2: {chosen['tableak_fedavg']:g}" in note for note in notes)
    kept = json.loads((folder / "results.json").read_text())
    assert kept["rows"] == rows and all("epoch_prior" in group for group in kept["summary"])


def test_search_comes_first_and_nothing_is_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def counted(pack: Any, *rest: Any) -> None:
        if len(ran) == stop_after:
            raise KeyboardInterrupt
        ran.extend(unit.id for unit in pack)
        run_pack(pack, *rest)

    monkeypatch.setattr(campaign, "run_pack", counted)
    stop_after = 4
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run")
    assert len(ran) == 4 and all(name.startswith("search-") for name in ran)
    stop_after = 8
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run")
    assert len(json.loads((tmp_path / "run" / "results.json").read_text())["rows"]) == 2
    stop_after = -1
    _, rows, _ = run(tmp_path / "run")
    assert len(ran) == len(set(ran)) == 6 + 8 and len(rows) == 8
    assert not any(name.startswith("search-") for name in ran[6:])


def test_settings_pick_cells(tmp_path: Path) -> None:
    compared, rows, _ = run(tmp_path / "run", settings=("1x2",), attacks=("tableak",), batches=1)
    assert [one.cell for one in compared] == [CELL] and len(rows) == 1
    assert json.loads((tmp_path / "run" / SEARCH_FILE).read_text()) == []
    with pytest.raises(UsageError, match="--settings must be among 1x2, 2x2, got '3x3'"):
        run(tmp_path / "run", settings=("3x3",))
    with pytest.raises(UsageError, match="nothing of tableak-made is left to run with dataset adult"):
        run(tmp_path / "run", dataset="adult")


def test_plans_travel_to_worker_processes() -> None:
    table = search(batches=2)
    for plan in (table.search_units, partial(table.reported_units, dict.fromkeys(SETTINGS[:3], 0.5))):
        there = pickle.loads(pickle.dumps(plan))()
        assert [(unit.id, unit.options, unit.facts) for unit in there] == [(u.id, u.options, u.facts) for u in plan()]
        assert torch.equal(there[0].observe()[1].inputs, plan()[0].observe()[1].inputs)


def test_gradinversion_gets_the_weights_that_are_best_on_a_validation_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prior_search, "GRID", (1.0, 0.0))
    of = {"dataset": "synthetic-d1-c1", "labels": "true", "batch_size": 2, "steps": 3}
    networks = ("linear", "resnet")
    cells = [PaperCell("cell_accuracy", "percent", 50.0, attack="gradinversion", network=one, **of) for one in networks]
    cells.append(PaperCell("cell_accuracy", "percent", 50.0, attack="random", network="linear", **of))
    table = GradInversionSearch(replace(TABLE, cells=tuple(cells)), Selection(batches=2))
    linear, resnet, guess = table.settings()
    assert list(table.trials()) == [linear, resnet]  # the guess has no weight to choose
    assert list(table.trials()[linear]) == [(1.0,), (0.0,)] and len(table.trials()[resnet]) == 4  # 2 x 2 with BatchNorm
    tried = [unit.options for unit in table.search_units()]
    assert tried[2] == {"steps": 3, "initialization": "symmetric", "l2_prior": 1.0, "batch_norm_prior": 1.0}

    compared, rows, notes = run_stages(table, tmp_path / "run", quiet=True)
    record = json.loads((tmp_path / "run" / SEARCH_FILE).read_text())
    best = {one["target"]: one for one in record if one["chosen"]}
    assert set(best) == set(networks) and len(record) == 6
    for row in rows[:4]:
        assert row["options"]["l2_prior"] == best[row["target"]]["l2_prior"]
    assert [one.ours.n for one in compared] == [2, 2, 2]
    assert any(note.startswith("Weights chosen for gradinversion: linear: ") for note in notes)
    assert table.weights(Path("no such run")) == dict.fromkeys((linear, resnet, guess))  # as it is registered
    table.leave([], tmp_path)  # a search of which nothing was begun
    assert json.loads((tmp_path / SEARCH_FILE).read_text()) == [] and table.unfinished == 6
    assert table.chosen_words(linear) == "linear: the usual ones"
