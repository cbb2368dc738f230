"""``--plan``: what would be run is printed, and nothing is."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from lightleak.core.errors import UsageError
from lightleak.core.seeds import CPU
from lightleak.experiments.kinds.vertical import kind as vertical
from lightleak.experiments.probe import Cost
from lightleak.reproductions import reproduce as module
from lightleak.reproductions.fedavg.setting import PRESETS
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduction import Place, Work
from lightleak.reproductions.settings import Selection


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes that stop at once."""
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.2)


def printed(name: str, capsys: pytest.CaptureFixture[str], workers: int = 1, **chosen: object) -> str:
    selection = Selection(**chosen)  # type: ignore[arg-type]
    module.describe_reproduction(name, selection, "cpu", workers, Console(width=300))
    return capsys.readouterr().out


def test_attacks_are_listed_by_setting_with_their_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = load_paper_table("tableak-table17")
    cells = tuple(replace(cell, dataset="synthetic-d1-c1", network="mlp-3") for cell in table.cells)
    monkeypatch.setattr(module, "load_paper_table", lambda name: replace(table, cells=cells))
    monkeypatch.chdir(tmp_path)
    out = printed("tableak-table17", capsys, batches=2, batch_sizes=(8,), attacks=("random",))
    assert "synthetic-d1-c1_mlp-3_random_true-labels_numerical_draw-batch_sharpness-1_b8: 2 units" in out
    assert "2 cell_accuracy" in out and "2 units in 1 packs" in out and "time" in out
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("data_dir")  # Bank's table
def test_audits_are_printed_as_configs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # What a probe measures is tested with the audit's own plan (tests/experiments/kinds/vertical/test_plan.py).
    cost = Cost(unit=2.0, step=0.5, steps=60, memory=None)
    monkeypatch.setattr(vertical, "measure_pack", lambda *arguments, **named: cost)
    out = printed("provfl-table9", capsys, dataset="bank", seeds=(0, 1))
    assert "training, passive" in out and "in bank_passive" in out
    assert "provfl_m MR: {attack: provfl_m" in out and "seeds: [0, 1]" in out


def test_facts_need_no_run_and_an_empty_selection_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing is run" in printed("tableak-table7", capsys)
    with pytest.raises(UsageError, match="nothing of tableak-table7 is left"):
        printed("tableak-table7", capsys, dataset="german")


def steps(each: float, at: Place) -> list[dict[str, float]]:
    for _ in range(10):
        time.sleep(each)
        at.report(1.0)
    return [{"value": 1.0}]


def test_a_long_pack_is_timed_by_the_progress_of_its_beginning(tmp_path: Path) -> None:
    began = time.perf_counter()
    found = module.pack_seconds(Work(["slow"], partial(steps, 0.2), 10.0), tmp_path, CPU, seconds=0.5)
    assert 2.0 <= found < 3.0 and time.perf_counter() - began < 1.5
    assert module.pack_seconds(Work(["quick"], partial(steps, 0.01), 10.0), tmp_path, CPU, seconds=5.0) < 1.0


@pytest.mark.parametrize("name", ["fedavg-table2", "fedavg-fig8", "thesis-table5.2", "tableak-fig13"])
def test_work_of_every_sort_has_an_estimate(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "tableak-fig13":
        table = load_paper_table(name)
        drawn = tuple(replace(cell, dataset="synthetic-d1-c1") for cell in table.drawn[:2])
        monkeypatch.setattr(module, "load_paper_table", lambda name: replace(table, drawn=drawn))
    out = printed(name, capsys, batches=1)
    assert "time  " in out and "left out" not in out


def test_a_table_after_a_training_is_estimated_without_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, "framed_digits", replace(PRESETS["digits"], rows=4, steps=3, clients_per_round=2))
    out = printed("fedavg-table7", capsys, batches=1, attacks=("fedavg_fedsgd",))
    assert out.count("attacks on images") > 1 and "trainings" in out and "time  " in out
