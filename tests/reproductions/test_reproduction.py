"""The one way in which all reproductions run: stages of packs, on several processes, resumed, with what is missing."""

import json
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from inspect import isabstract
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.core.errors import DataError
from lightleak.core.seeds import CPU
from lightleak.experiments.engine import LocalEngine
from lightleak.reproductions.paper.values import PaperCell, PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.reproduce import reproduction_class, reproduction_of
from lightleak.reproductions.reproduction import Place, Reproduction, Row, Stage, Work, run_stages
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.tableak.trainings import NetworkAccuracy

TABLE = PaperTable("thesis-made", "Nobody", "p. 1", "Made", "m", "count", (PaperCell("m", "count", 3.0),), table=1)


def square(number: int, at: Place) -> list[dict[str, Any]]:
    at.report(1.0)
    return [{"dataset": "made", "metric": "m", "value": number**2}]


def squares(numbers: Sequence[int], folder: Path, device: torch.device) -> list[Work]:
    return [Work([f"square-{number}"], partial(square, number)) for number in numbers]


def sums(folder: Path, device: torch.device) -> list[Work]:
    """A stage that reads what the one before it left."""
    found = [json.loads(file.read_text())["value"] for file in (folder / "units").glob("square-*.json")]
    return [Work([f"sum-{sum(found)}"], partial(square, sum(found)))]


def missing(folder: Path, device: torch.device) -> list[Work]:
    raise DataError("no such files")


class Squares(Reproduction):
    numbers: tuple[int, ...] = (1, 2)

    def stages(self) -> Sequence[Stage]:
        return [
            Stage(partial(squares, self.numbers), reported=False),
            Stage(missing, needs="atlantis"),
            Stage(sums),
        ]

    def where(self, cell: PaperCell) -> Row:
        return {"metric": "m"}

    def column(self, cell: PaperCell) -> str:
        return "value"


def test_stages_build_on_each_other_and_missing_data_is_noted(tmp_path: Path) -> None:
    compared, rows, notes = run_stages(Squares(TABLE, Selection()), tmp_path, quiet=True)
    assert [row["value"] for row in rows] == [25] and compared[0].ours.mean == 25
    assert notes == ["atlantis: no such files"]
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows


def test_what_is_needed_and_missing_ends_the_run_with_results(tmp_path: Path) -> None:
    class Strict(Squares):
        def stages(self) -> Sequence[Stage]:
            return [Stage(partial(squares, (1, 2))), Stage(missing)]

    with pytest.raises(DataError, match="no such files"):
        run_stages(Strict(TABLE, Selection()), tmp_path, quiet=True)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["value"] for row in rows] == [1, 4]


def test_finished_units_are_not_computed_again(tmp_path: Path) -> None:
    run_stages(Squares(TABLE, Selection()), tmp_path, quiet=True)
    file = tmp_path / "units" / "square-1.json"
    file.write_text(file.read_text().replace('"value": 1', '"value": 5'))
    _, rows, _ = run_stages(Squares(TABLE, Selection()), tmp_path, quiet=True)
    assert rows[0]["value"] == (5 + 4) ** 2


@pytest.mark.slow
def test_a_study_is_the_same_on_two_processes(tmp_path: Path, data_dir: Path) -> None:
    cell = PaperCell("test_accuracy", "percent", 80.0, dataset="german", network="linear")
    table = replace(load_paper_table("tableak-table9"), cells=(cell,))
    selection = Selection(batches=2, data_folder=str(data_dir))
    alone = run_stages(NetworkAccuracy(table, selection), tmp_path / "alone", quiet=True)
    with LocalEngine(CPU, 2) as engine:
        assert run_stages(NetworkAccuracy(table, selection), tmp_path / "together", engine, quiet=True) == alone


def test_every_table_names_a_class_and_every_class_is_used() -> None:
    named = {load_paper_table(name).run for name in paper_tables()}
    found = {reproduction_class(str(name)) for name in named}
    assert all(issubclass(one, Reproduction) and not isabstract(one) for one in found)
    modules = {one.__module__ for one in found}
    defined = {one for name in modules for one in vars(sys.modules[name]).values() if isinstance(one, type)}
    assert {one for one in defined if issubclass(one, Reproduction) and not one.__subclasses__()} <= found


@pytest.mark.parametrize("name", [name for name in paper_tables() if not name.startswith("tableak-table")])
def test_plans_travel_to_worker_processes_and_their_units_differ(name: str, tmp_path: Path) -> None:
    table = load_paper_table(name)
    if name.startswith("tableak"):
        drawn = tuple(replace(cell, dataset="synthetic-d1-c1") for cell in table.drawn[:1])
        table = replace(table, drawn=drawn)
    for stage in reproduction_of(table, Selection(batches=1, data_folder=str(tmp_path)), CPU).stages():
        plan = partial(stage.plan, tmp_path)
        ids = [pack.ids for pack in plan(CPU)]
        assert ids == [pickle.loads(pickle.dumps(pack)).ids for pack in plan(CPU)]
        units = [unit for pack in ids for unit in pack]
        assert len(set(units)) == len(units) > 0
