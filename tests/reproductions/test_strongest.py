"""Cells by this project's strongest attack next to the paper's own."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UsageError
from lightleak.reproductions.paper.values import PaperCell, PaperTable, load_paper_table
from lightleak.reproductions.provfl.grid import SplitTrainings
from lightleak.reproductions.reproduction import Reproduction
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.tableak.fedsgd import GradientAttacks, Setting, UpdateAttacks
from lightleak.reproductions.tableak.prior_search import GradInversionSearch, PriorSearch
from lightleak.reproductions.tableak.trainings import NoisedGradients

UPDATES: dict[str, type[UpdateAttacks]] = {
    "tableak.fedsgd.GradientAttacks": GradientAttacks,
    "tableak.prior_search.PriorSearch": PriorSearch,
    "tableak.prior_search.GradInversionSearch": GradInversionSearch,
    "tableak.trainings.NoisedGradients": NoisedGradients,
}
ON_UPDATES = ("fig5", "table1", "table2", "table5", "table6", "table13", "table25", "table34")
CELL = PaperCell(
    "cell_accuracy", "percent", 60.0, dataset="synthetic-d1-c1", network="mlp-3", attack="tableak", batch_size=2
)


def made(*cells: PaperCell) -> PaperTable:
    return PaperTable("tableak-made", "Nobody", "p. 1", "Made", "cell_accuracy", "percent", cells, table=1)


def on_made_rows(name: str) -> PaperTable:
    table = load_paper_table(name)
    drawn = table.cells or table.drawn
    cells = (replace(cell, dataset="synthetic-d1-c1") for cell in drawn if cell.dataset == drawn[0].dataset)
    return replace(table, cells=tuple(cells), drawn=())


def strongest(made: Reproduction) -> list[PaperCell]:
    return [cell for cell in made.cells if cell.attack in made.strongest.values()]


@pytest.mark.parametrize("name", ON_UPDATES)
def test_every_setting_of_tableak_has_a_cell_by_audit_max(name: str) -> None:
    table = on_made_rows(f"tableak-{name}")
    found = UPDATES[str(table.run)](table, Selection(strongest=True, batches=1))
    kinds = ("cell_accuracy", "categorical_accuracy", "numerical_accuracy")

    def attacked(cell: PaperCell) -> tuple[Any, ...]:
        return cell.metric, cell.dataset, cell.network, cell.labels, cell.batch_size, cell.training_epochs

    beaten = {attacked(cell) for cell in found.cells if cell.attack == "tableak" and cell.metric in kinds}
    assert {attacked(cell) for cell in strongest(found)} == beaten
    assert all(math.isnan(cell.mean) for cell in strongest(found))
    assert max(Counter(str(cell.coordinates) for cell in strongest(found)).values(), default=1) == 1


def test_settings_of_the_papers_attack_are_not_those_of_ours() -> None:
    ensembles = [replace(CELL, restarts=n, pooling="median", steps=5, sigmoid_bounds=False) for n in (1, 30)]
    found = GradientAttacks(made(*ensembles), Selection(strongest=True, batches=1))
    assert [cell.coordinates for cell in strongest(found)] == [{**CELL.coordinates, "attack": "audit_max"}]


@pytest.mark.parametrize("labels", ["true", "restored"])
def test_our_attack_knows_the_labels_that_the_papers_knows(labels: str) -> None:
    found = GradientAttacks(made(replace(CELL, labels=labels)), Selection(strongest=True, batches=1))
    assert found.setting(strongest(found)[0]).attack_options == {"labels": labels}


def test_our_attack_on_a_weight_update_knows_the_batches() -> None:
    local = replace(CELL, protocol="fedavg", local_epochs=2, local_batches=2, batch_size=4, restarts=3, steps=3)
    found = PriorSearch(made(local), Selection(strongest=True, batches=1))
    setting = found.setting(strongest(found)[0])
    options = ATTACKS.get(setting.attack_name)(**setting.attack_options).options()
    assert options["labels"] == options["tableak_fedavg"]["labels"] == "true"
    assert options["tableak_fedavg"]["label_order"] == "batches"
    assert {trial.attack for trial in found.trials()} == {"tableak"}  # no weight is chosen for it
    packs = [unit for pack in found.packs(Path("no such folder"), torch.device("cpu")) for unit in pack.units]
    assert {unit.attack for unit in packs} == {"tableak_fedavg", "audit_max"}


def test_our_attack_serves_networks_without_a_hidden_layer() -> None:
    setting = Setting.of(replace(CELL, network="linear", attack="audit_max"), {"tableak": {"restarts": 2, "steps": 3}})
    update, _ = setting.observe(0, 0, None)
    (found,) = ATTACKS.get("audit_max")(**setting.attack_options).run_many([update], [0])
    assert len(found.rows) == 2


def test_the_strongest_attack_alone_can_be_selected() -> None:
    table = made(CELL, replace(CELL, attack="random"))
    alone = Selection(strongest=True, batches=1, attacks=("audit_max",))
    assert [cell.attack for cell in GradientAttacks(table, alone).cells] == ["audit_max"]
    with pytest.raises(UsageError, match="nothing of tableak-made is left to run with attacks audit_max"):
        GradientAttacks(table, replace(alone, strongest=False))


@pytest.mark.parametrize(
    ("table", "cells"),
    [("provfl-table9", 6), ("provfl-table14", 3)],  # one for each property, whatever the variant or the strength
)
def test_active_attacks_stand_beside_the_best_passive_one(table: str, cells: int) -> None:
    paper = load_paper_table(table)
    honest = SplitTrainings(paper, Selection(strongest=True))
    assert len(strongest(honest)) == cells
    assert all((cell.option, cell.variant) == (None, None) for cell in strongest(honest))
    assert strongest(SplitTrainings(paper, Selection(strongest=True, as_published=True))) == []


def test_an_option_of_the_training_is_one_of_the_cell_beside_it() -> None:
    found = SplitTrainings(load_paper_table("provfl-table15"), Selection(strongest=True))
    options = {cell.option for cell in found.cells if cell.attack == "provfl_b"}
    assert options == {cell.option for cell in strongest(found)}
