"""TabLeak's noise tables on a made one: noised gradients under attack, and trainings on them."""

import json
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UsageError
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.took import TOOK
from lightleak.reproductions.paper.values import PaperCell, PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.reproduction import Outcome, Work, run_stages
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.tableak import trainings
from lightleak.reproductions.tableak.fedsgd import experiment_of
from lightleak.reproductions.tableak.trainings import NoisedGradients
from lightleak.targets.classifier import TabularClassifier

CPU = torch.device("cpu")
ATTACKED = PaperCell(
    "cell_accuracy",
    "percent",
    58.0,
    2.0,
    dataset="synthetic-d1-c1",
    network="mlp-3",
    protocol="fedsgd",
    attack="tableak",
    labels="true",
    batch_size=4,
    defense="gaussian_noise",
    noise_scale=0.1,
    restarts=2,
    steps=3,
)
TRAINED = replace(
    ATTACKED, metric="test_accuracy", attack=None, labels=None, batch_size=None, restarts=None, steps=None
)
CELLS = (replace(ATTACKED, noise_scale=0.0), ATTACKED, replace(TRAINED, noise_scale=0.0), TRAINED)
TABLE = PaperTable("tableak-made", "Nobody", "p. 1", "Made", "cell_accuracy", "percent", CELLS, table=6)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "NOISED_EPOCHS", 1)
    monkeypatch.setattr(trainings, "TRAININGS", 2)
    monkeypatch.setattr(trainings, "BATCH_SIZE", 2000)


def run(folder: Path, table: PaperTable = TABLE, **selection: Any) -> Outcome:
    return run_stages(NoisedGradients(table, Selection(**{"batches": 3, **selection})), folder, quiet=True)


def packs(**selection: Any) -> list[Any]:
    return NoisedGradients(TABLE, Selection(**selection)).packs(Path(), CPU)


def test_every_cell_has_its_rows(tmp_path: Path) -> None:
    compared, rows, notes = run(tmp_path / "run")
    attacked, trained = rows[:6], rows[6:]
    assert [(row["defense_strength"], row["batch_index"]) for row in attacked] == [
        (s, i) for s in (0.0, 0.1) for i in range(3)
    ]
    assert [(row["defense_strength"], row["seed_index"]) for row in trained] == [
        (s, i) for s in (0.0, 0.1) for i in (0, 1)
    ]
    assert {row["defense"] for row in rows} == {"gaussian_noise"} and {row["protocol"] for row in rows} == {"fedsgd"}
    assert {row["metric"] for row in trained} == {"test_accuracy"} and not any("metric" in row for row in attacked)
    for one, own, name in (
        (compared[0], attacked[:3], "cell_accuracy"),
        (compared[1], attacked[3:], "cell_accuracy"),
        (compared[2], trained[:2], "test_accuracy"),
        (compared[3], trained[2:], "test_accuracy"),
    ):
        assert one.ours.n == len(own)
        assert one.ours.mean == pytest.approx(100 * sum(row[name] for row in own) / len(own))
    summary = json.loads((tmp_path / "run" / "results.json").read_text())["summary"]
    assert [group["defense_strength"] for group in summary] == [0.0, 0.1, 0.0, 0.1]
    assert any("slices its k-th batch up to the end" in note for note in notes)


def test_an_interrupted_table_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole")[1]
    trained: list[int] = []
    plain = TabularClassifier.training_step

    def stops(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        trained.append(batch_index)
        if len(trained) == 5:  # of 4 batches each: the second training has begun; trainings are costlier than attacks
            raise KeyboardInterrupt
        return plain(self, batch, batch_index)

    folder = tmp_path / "run"
    monkeypatch.setattr(TabularClassifier, "training_step", stops)
    with pytest.raises(KeyboardInterrupt):
        run(folder)
    kept = json.loads((folder / "results.json").read_text())["rows"]
    assert len(kept) == 1
    _, rows, _ = run(folder)
    assert kept[0] in rows and len(trained) == 4 + 1 + 3 * 4
    assert [row | dict.fromkeys(TOOK, 0) for row in rows] == [row | dict.fromkeys(TOOK, 0) for row in whole]


def test_gradients_are_those_of_the_clean_table_with_noise() -> None:
    experiment = experiment_of("synthetic-d1-c1", "mlp-3", None)
    clean, truth = FreshClients(experiment.population, experiment.spec, 0, True).observe(4, 1)
    units = [unit for pack in packs(batches=2) if not isinstance(pack, Work) for unit in pack.units]
    for unit in units:
        if unit.facts["batch_index"] == 1:
            update, same = unit.observe()
            assert same is not None and torch.equal(same.inputs, truth.inputs)
            far = max(float((update.update[name] - value).abs().max()) for name, value in clean.update.items())
            assert far == 0 if unit.facts["defense_strength"] == 0 else 0.1 < far < 0.6  # 17 draws of deviation 0.1


def test_the_same_networks_are_trained_at_every_scale_and_other_ones_by_other_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[float] = []
    plain = TabularClassifier.on_fit_start

    def noted(self: TabularClassifier) -> None:
        started.append(float(next(self.network.parameters()).detach().sum()))
        plain(self)

    monkeypatch.setattr(TabularClassifier, "on_fit_start", noted)
    table = replace(TABLE, cells=CELLS[2:])
    _, rows, _ = run(tmp_path / "run", table, batches=None, seeds=(0, 1))
    assert [(row["seed"], row["seed_index"]) for row in rows] == [(s, i) for s in (0, 1) for i in (0, 1)] * 2
    assert started[:4] == started[4:] and len(set(started)) == 4


def test_noise_reaches_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[torch.Tensor] = []

    def noted(self: TabularClassifier) -> None:
        ended.append(torch.cat([p.detach().flatten() for p in self.network.parameters()]))

    monkeypatch.setattr(TabularClassifier, "on_fit_end", noted)
    table = replace(TABLE, cells=(CELLS[2], TRAINED, replace(TRAINED, noise_scale=0.2)))
    run(tmp_path / "run", table, batches=1)
    clean, weak, strong = ended
    ratio = float((strong - clean).norm() / (weak - clean).norm())
    assert 1.5 < ratio < 2.5  # twice the noise; the gradients differ a little after the first step


def test_table_6_and_figures_5_to_8_can_be_run() -> None:
    assert {"tableak-table6", *(f"tableak-fig{n}" for n in (5, 6, 7, 8))} <= set(paper_tables())
    cells = load_paper_table("tableak-table6").cells
    trained = [cell for cell in cells if cell.attack is None]
    assert [(cell.metric, cell.noise_scale) for cell in trained] == [
        ("test_accuracy", s) for s in (0.0, 0.001, 0.01, 0.1)
    ]
    for cell in cells:
        assert cell.defense == "gaussian_noise" and (cell.attack is None or cell.attack in ATTACKS)
    for number, dataset in ((5, "adult"), (6, "german"), (7, "lawschool"), (8, "health-heritage")):
        drawn = load_paper_table(f"tableak-fig{number}").drawn
        assert len({tuple(cell.coordinates.items()) for cell in drawn}) == 3 * 2 * 8
        assert {cell.dataset for cell in drawn} == {dataset}
        assert {cell.noise_scale for cell in drawn} == {0.001, 0.01, 0.1}  # App. C.1


def test_selection_narrows_attacks_and_trainings(tmp_path: Path) -> None:
    attacks = sum(len(pack.ids) for pack in packs() if not isinstance(pack, Work))
    assert attacks == 2 * 50 and sum(isinstance(pack, Work) for pack in packs()) == 2 * 2
    assert sum(len(pack.ids) for pack in packs(batches=1)) == 2 + 2
    with pytest.raises(UsageError, match="nothing of tableak-made is left to run with dataset adult"):
        run(tmp_path / "run", dataset="adult")


def test_plan_travels_to_worker_processes() -> None:
    [stage] = NoisedGradients(TABLE, Selection(batches=1)).stages()
    plan = partial(stage.plan, Path())
    assert [p.ids for p in pickle.loads(pickle.dumps(plan))(CPU)] == [pack.ids for pack in plan(CPU)]


def test_as_published_a_batch_runs_to_the_end_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "MOST_ROWS", 20)
    sampler = trainings.Remainders(50, 8, True, seed=3)
    batches, order = list(sampler.batches(1)), sampler.order(1).tolist()
    assert [len(batch) for batch in batches] == [20, 20, 20, 20, 18, 10, 2] and len(sampler) == 7
    assert all(set(batch.tolist()) <= set(order[8 * i :]) for i, batch in enumerate(batches))
    assert all(len(batch.unique()) == len(batch) for batch in batches)
