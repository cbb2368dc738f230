import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.experiments.kinds.vertical.job import attack_named, defense_named, plan_jobs
from lightleak.reproductions.paper.values import PaperCell, load_paper_table, paper_tables
from lightleak.reproductions.provfl import grid, studies
from lightleak.reproductions.provfl.grid import (
    SplitTrainings,
    attack_of,
    audit_of,
    correlation,
    defense_of,
    resolved,
    training_of,
)
from lightleak.reproductions.reproduce import reproduction_of
from lightleak.reproductions.reproduction import run_stages
from lightleak.reproductions.settings import Selection

CPU = torch.device("cpu")
NAMES = [name for name in paper_tables() if name.startswith("provfl-")]
TABLES = [name for name in NAMES if name.startswith("provfl-table")]
ONE = PaperCell("absolute_error", "fraction", 0.02, dataset="adult", property_name="sex=Male", adversary="C1")


def run(table, folder, **chosen):
    return run_stages(reproduction_of(table, Selection(**chosen), CPU), folder, quiet=True)


def values_of(cell, rows, published):
    """Our values of one cell by rows that were not run."""
    table = replace(load_paper_table("provfl-table13"), cells=(cell,))
    return SplitTrainings(table, Selection(as_published=published)).values(cell, rows)


@pytest.fixture
def quick(monkeypatch, data_dir):
    """Adult in one epoch; the folder of raw tables is returned."""
    monkeypatch.setitem(grid.DATASETS, "adult", {**grid.DATASETS["adult"], "training.epochs": 2})
    monkeypatch.setattr(grid, "PUBLISHED_EPOCH", 0)
    return str(data_dir)


def test_every_table_of_the_paper_can_be_run():
    assert NAMES and set(NAMES) <= set(paper_tables())


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_names_an_audit_that_can_be_made(name, published):
    for cell in load_paper_table(name).cells:
        if cell.dataset is None:  # Table II names none; what is run for it is said in its notes
            continue
        for attack in {cell.attack, SplitTrainings.strongest.get(cell.attack)} - {None, "sm_pia"}:
            attack_named(*attack_of(replace(cell, attack=attack), published))
        defense_named(*defense_of(cell, published))
        training = training_of(cell, published)
        named = replace(cell, property_name=cell.property_name if "=" in str(cell.property_name) else "a=b")
        if cell.attack != "sm_pia":
            audit_of(training, [named], Selection(as_published=published, seeds=(0, 1)))


def test_cells_of_one_training_share_it():
    cells = [cell for cell in load_paper_table("provfl-table5").cells if cell.dataset == "adult"]
    assert len({training_of(cell, False) for cell in cells}) == 1
    # Its code gives active attacks a 70/30 split.
    assert {training_of(cell, True).changes.get("data.test_fraction") for cell in cells} == {None, 0.3}
    ratios = load_paper_table("provfl-table15").cells
    shares = {training_of(cell, False).changes["parties.victim_share"] for cell in ratios}
    assert sorted(shares) == [0.1, 0.3, 0.5, 0.7, 0.9]


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", [name for name in NAMES if load_paper_table(name).run == "provfl.grid.SplitTrainings"])
def test_every_cell_gets_one_value_per_training(name, published):
    """Rows as the planned units would leave them; no cell may take another's, or one twice."""
    table = load_paper_table(name)
    groups = {}
    for cell in table.cells or table.drawn:
        meant = replace(cell, property_name=cell.property_name.replace("T-u", "u=")) if cell.property_name else cell
        groups.setdefault(training_of(meant, published), []).append(meant)
    rows, names = [], []
    for training, cells in groups.items():
        config = audit_of(training, cells, Selection(as_published=published, seeds=(0, 1)))
        for job in plan_jobs(config):
            names += [f"{training.name}/{unit}" for unit in job.ids]
            rows += [
                {
                    "setting": training.name,
                    "defense": job.defense,
                    "property": str(job.wanted),
                    "adversary": adversary,
                    "label": label,
                    "epoch": epoch,
                    "seed": job.seed,
                    "absolute_error": 0.0,
                    "auc": 0.0,
                    "accuracy": 0.0,
                }
                for label, adversary in job.attacks
                for epoch in config.epochs_attacked
            ]
    assert len(set(names)) == len(names) == len(rows)
    for cells in groups.values():
        properties = {cell.property_name for cell in cells if cell.property_name}
        for cell in cells:
            expected = 2 if cell.property_name else 2 * len(properties)
            assert len(values_of(cell, rows, published)) == expected, cell.coordinates


def test_what_a_table_varies_reaches_the_attack():
    cell = replace(ONE, attack="provfl_b", option="estimator", value="svr")
    label, options = attack_of(cell, False)
    assert attack_named(label, options).options()["estimator"] == "svr"
    cell = replace(ONE, attack="provfl_m", adversary="C2", variant="MR", option="lambda", value=2.0)
    label, options = attack_of(cell, False)
    assert attack_named(label, options).options()["augmentation"]["model_refinement"]["strength"] == 2.0
    # Without refinement nothing is left of it.
    assert attack_of(replace(cell, value=0.0), False)[0] == "provfl_b"
    label, options = attack_of(replace(ONE, attack="provfl_m", variant="LR"), False)
    augmentation = attack_named(label, options).training_part("C1")
    assert augmentation.describe() == "LR"


def test_as_published_is_what_its_code_does():
    config = audit_of(training_of(ONE, True), [replace(ONE, attack="provfl_b")], Selection(as_published=True))
    assert (config.parties.order, config.data.split_seed, config.attack_epochs) == ("published", 42, (18,))
    made = attack_named("provfl_b", config.attacks["provfl_b"]).options()
    assert (made["features"], made["clip"]) == ("sorted", False)
    assert audit_of(training_of(ONE, False), [ONE], Selection()).attack_epochs == (18,)
    boosted = replace(ONE, attack="provfl_b", option="estimator", value="xgboost")
    for published, estimator in ((True, "xgboost_published"), (False, "xgboost")):
        assert attack_named(*attack_of(boosted, published)).options()["estimator"] == estimator


@pytest.mark.slow
def test_a_table_is_run_and_compared(quick, tmp_path):
    cells = (
        replace(ONE, attack="provfl_b", option="estimator", value="decision_tree"),
        replace(ONE, attack="provfl_b", option="estimator", value="linear"),
        replace(ONE, metric="auc", mean=0.9),
    )
    table = replace(load_paper_table("provfl-table13"), cells=cells)
    compared, rows, notes = run(table, tmp_path, seeds=(0, 1), data_folder=quick)
    assert [one.cell for one in compared] == list(cells)
    for one in compared[:2]:
        errors = [
            row["absolute_error"]
            for row in rows
            if row["label"] == f"provfl_b estimator {one.cell.value}" and row["adversary"] == "C1"
        ]
        assert one.ours.n == 2
        assert one.ours.mean == pytest.approx(sum(errors) / 2)
    assert compared[2].ours.mean == pytest.approx(sum(row["auc"] for row in rows) / len(rows))
    assert any("never split between parties" in note for note in notes)
    # Again: nothing is trained, the same comes out.
    again, _, _ = run(table, tmp_path, seeds=(0, 1), data_folder=quick)
    assert [one.ours for one in again] == [one.ours for one in compared]


def test_a_table_nobody_holds_is_reported(tmp_path):
    compared, rows, notes = run(load_paper_table("provfl-table11"), tmp_path / "run", data_folder=str(tmp_path))
    assert rows == []
    assert all(one.ours.n == 0 for one in compared)
    assert any("nus-wide" in note and "needs the file" in note for note in notes)


def test_texas_has_made_rows_where_its_files_are_missing(tmp_path):
    table = load_paper_table("provfl-table4")
    compared, _, _ = run(table, tmp_path / "facts", dataset="texas100", data_folder=str(tmp_path))
    assert {one.stand_in for one in compared} == {"texas100 (made rows)"} and not any(one.same_data for one in compared)
    shares = [one.ours.mean for one in compared if one.cell.metric == "true_fraction"]
    assert shares == pytest.approx([0.5508, 0.7548], abs=0.01)


def test_nothing_selected_is_refused(tmp_path):
    with pytest.raises(UsageError, match="nothing of provfl-table13 is left to run with dataset bank"):
        run(load_paper_table("provfl-table13"), tmp_path, dataset="bank")


def test_values_are_those_of_the_cells_own_setting():
    training = training_of(ONE, False).name
    row = {"setting": training, "defense": "none", "property": "sex=Male", "adversary": "C1", "label": "provfl_b"}
    row |= {"epoch": 18, "seed": 0}
    rows = [
        row | {"absolute_error": 0.1},
        row | {"absolute_error": 0.2, "adversary": "C2"},
        row | {"absolute_error": 0.3, "defense": "laplace 0.1"},
        row | {"absolute_error": 0.4, "label": "provfl_b estimator svr"},
        row | {"absolute_error": 0.5, "setting": "bank_passive"},
        row | {"absolute_error": 0.6, "epoch": 3},
        row | {"absolute_error": None},
    ]
    assert values_of(replace(ONE, attack="provfl_b"), rows, False) == [0.1]


def test_trainings_of_a_seed_for_several_properties_count_once():
    row = {"setting": training_of(ONE, False).name, "defense": "none", "epoch": 18, "label": "provfl_b"}
    rows = [
        row | {"property": name, "seed": seed, "adversary": adversary, "auc": 0.8 + 0.1 * seed + off}
        for seed in (0, 1)
        for name, off in (("sex=Male", 0.01), ("race=White", -0.01))
        for adversary in ("C1", "C2")
    ]
    for attack in (None, "provfl_b"):
        cell = replace(ONE, metric="auc", property_name=None, adversary=None, attack=attack)
        table = replace(load_paper_table("provfl-table13"), cells=(cell,))
        found = SplitTrainings(table, Selection()).measured(cell, rows)
        assert (found.n, found.mean) == (2, pytest.approx(0.85))


def test_figure_5_has_a_point_for_every_setting():
    cells = load_paper_table("provfl-fig5").drawn
    varied = {"mislabelled": 5, "auxiliary_size": 4, "queries": 5, "attack_epoch": 7, "samples": 5}
    assert Counter(cell.option for cell in cells) == {option: 3 * n for option, n in varied.items()} | {"parties": 30}
    assert all(math.isnan(cell.mean) for cell in cells)


def test_unnamed_features_are_those_of_the_nearest_fraction(monkeypatch):
    import pandas as pd

    frame = pd.DataFrame({"f0": [1, 0], "f1": [1, 1], "f2": [1, 0], "procedure": ["1", "2"]})
    frame = pd.concat([frame] * 50, ignore_index=True)
    frame.loc[:20, "f2"] = 1  # 61%
    frame.loc[:30, "f1"] = 0  # 69%
    monkeypatch.setattr(grid, "load_whole", lambda source: (None, frame))
    cell = replace(ONE, dataset="texas100", property_name="T-u2")
    assert resolved(cell, None).property_name == "f1=1"
    assert resolved(ONE, None) is ONE


def test_norm_study_and_facts(quick, tmp_path):
    compared, rows, _ = run(load_paper_table("provfl-table2"), tmp_path, data_folder=quick)
    assert all(one.ours.n == 1 for one in compared)
    by_gap = {row["gap"]: row["kl"] for row in rows if (row["norm"], row["reading"]) == ("l1", "bins")}
    assert by_gap[1.0] > by_gap[0.25]
    table = load_paper_table("provfl-table4")
    compared, _, _ = run(table, tmp_path, dataset="adult", data_folder=quick)
    for one in compared:
        if one.cell.unit == "fraction":
            assert one.difference == pytest.approx(0, abs=6e-5)  # the paper prints four digits


def test_two_worlds(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "WORLD_ROWS", 2000)
    shadows = studies.SHADOWS
    monkeypatch.setattr(studies, "SHADOWS", replace(shadows, schedule=replace(shadows.schedule, epochs=1)))
    table = load_paper_table("provfl-table7")
    cells = tuple(cell for cell in table.cells if cell.property_name == "sex=Male")
    compared, rows, _ = run(replace(table, cells=cells), tmp_path, data_folder=quick)
    assert {row["attack"] for row in rows} == {"provfl_b", "sm_pia"}
    assert [one.ours.n for one in compared] == [1, 1]  # both games of one seed
    assert "measured, sm_pia" in (tmp_path / "theorem1.html").read_text()
    assert len(list((tmp_path / "units").glob("*.json"))) == 2
    assert json.loads((tmp_path / "units" / "sex=Male-0-s0.json").read_text())[0]["world"] == 0
    with pytest.raises(LightLeakError, match="needs 46200 rows"):
        monkeypatch.setattr(studies, "WORLD_ROWS", 66000)
        run(replace(table, cells=cells), tmp_path / "other", data_folder=quick)


def test_a_score_needs_games_of_both_worlds():
    answers = ((0, 0), (0, 1), (1, 1), (1, 1))
    games = [{"world": world, "answer": answer, "seed": i // 2} for i, (world, answer) in enumerate(answers)]
    score = studies._score(games)
    assert (score.mean, score.n) == (0.75, 2)
    with pytest.raises(UsageError, match="each world needs a training, got 0 and 2"):
        studies._score(games[2:])


def test_companions_are_attacks():
    for name in grid.COMPANIONS:
        PROPERTY_ATTACKS.get(name)()


@pytest.mark.slow
def test_seconds_of_every_attack(quick, tmp_path):
    table = load_paper_table("provfl-table10")
    compared, _, _ = run(table, tmp_path, data_folder=quick)
    assert [one.ours.n for one in compared] == [1, 1, 1, 1]
    assert all(one.ours.mean > 0 for one in compared if one.cell.attack != "provfl_m")


def test_correlations_with_what_is_left(quick, tmp_path, monkeypatch):
    monkeypatch.setitem(grid.DATASETS, "bank", {**grid.DATASETS["bank"], "training.epochs": 2})
    table = load_paper_table("provfl-table6")
    cells = tuple(cell for cell in table.cells if cell.property_name == "marital=married" and cell.attack is None)
    found = {cell.metric: correlation(cell, Selection(data_folder=quick)) for cell in cells}
    # ProVFL prints .2875 and -.0554; the second needs no choice of columns.
    assert found["correlation_with_label"] == pytest.approx(-0.0554, abs=0.01)
    assert abs(found["correlation_with_features"]) > 0.1


def test_refinement_shows_in_the_norms(quick, tmp_path):
    table = load_paper_table("provfl-fig4")
    compared, rows, _ = run(table, tmp_path, data_folder=quick)
    assert {row["variant"] for row in rows} == {"passive", "MR"}
    assert [one.ours.n for one in compared] == [1, 1]
