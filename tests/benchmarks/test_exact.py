"""The benchmark of exact inversion measures one small case, keeps it, judges rows strictly, can be interrupted."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "exact.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("exact_benchmark", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))  # as Python does for a script: its table lies beside it
        patch.setitem(__import__("sys").modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module


@pytest.fixture
def small(script: ModuleType) -> Any:
    return script.Case("sizes", 8, 1, dataset="fair", hidden=(40, 40), goals={"all right": 1.0})


@pytest.fixture
def one_line(script: ModuleType, small: Any, tmp_path: Path) -> Path:
    file = tmp_path / "exact.jsonl"
    script.run_cases([small], None, 700, file, [])
    return file


def test_a_batch_is_attacked_kept_and_not_attacked_again(
    script: ModuleType,
    small: Any,
    one_line: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (line,) = one_line.read_text().splitlines()
    row = json.loads(line)
    assert row["case"] == small.facts and row["seed"] == 700
    assert row["seconds"] > 0 and row["made"]["threads"] == torch.get_num_threads()
    assert row["cells_right"] == (row["cell_accuracy"] == 1)
    assert row["certified_rows"] == row["row_status"].count("certified") and row["certified_wrong"] == 0
    monkeypatch.setattr(script, "measure", lambda *_: pytest.fail("measured again"))
    done = script.read_lines(one_line)
    script.run_cases([small], None, 700, one_line, done)
    assert one_line.read_text().splitlines() == [line]
    assert capsys.readouterr().out.startswith("sizes | fair 40-40, 8 rows | exact | 1 | ")
    script.main(["--table", str(one_line), "--figure", str(tmp_path / "cost.svg")])
    head, _, table, *_ = capsys.readouterr().out.splitlines()
    cells = dict(zip(*([cell.strip() for cell in one.split("|")[1:-1]] for one in (head, table)), strict=True))
    assert cells["attacked"] == "fair 40-40, 8 rows" and cells["n"] == "1"
    assert cells["all cells"] == f"{int(row['cells_right'])}/1"


def test_goals_costs_and_the_time_of_another_attack(script: ModuleType, one_line: Path, tmp_path: Path) -> None:
    (row,) = script.read_lines(one_line)
    noised = replace(script.JOINT("noise", 32, 1), noise=1e-3)
    rival = next(c for c in script.CASES if c.within and c.rows == 32 and c.noise == 1e-3)
    made = {"cells_right": False, "all_right": False, "seconds": 9.0}
    joint = row | made | {"case": noised.facts, "seed": 3, "cpu_seconds": 7.0, "cell_accuracy": 0.75}
    tableak = joint | {"case": rival.facts, "cell_accuracy": 0.5}
    told = script.table_line([joint], [joint, tableak], {"ahead": 0.2, "worst": 0.8, "seconds": 8.0})[-1]
    assert told == "ahead at least 20%, is 25.0: yes; worst at least 80%: NO; seconds at most 8: NO"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "restart_cost", lambda *_: (1.0, 2.0))
        assert script.settings_of(rival, 3, 0, [joint])["restarts"] == 3
        patch.setattr(script, "restart_cost", lambda *_: (1.0, 20.0))
        assert script.settings_of(rival, 3, 0, [joint])["restarts"] == 1
        with pytest.raises(script.UsageError, match="exact_joint has not attacked the batch of seed 4"):
            script.settings_of(rival, 4, 0, [joint])
    plain = [row | {"case": script.Case("sizes", rows, 1).facts, "cpu_seconds": s} for rows, s in ((8, 0.5), (88, 3.0))]
    found = script.costs([row, *plain, joint])
    assert found == {"exact": {8: 0.5, 88: 3.0}}
    drawn = ElementTree.fromstring(script.cost_figure(found))
    assert {"8", "88", "exact"} <= {one.text for one in drawn.iter() if one.tag.endswith("text")}


def test_an_attack_that_is_not_there_is_told_and_passed_over(
    script: ModuleType, small: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[dict[str, Any]] = []
    script.run_cases([replace(small, attack="no_such"), small], None, 700, None, done)
    told, line = capsys.readouterr().out.splitlines()
    assert "no_such not measured" in told and line.startswith("sizes | fair")
    assert len(done) == 1


def test_an_interrupted_run_prints_what_it_has(
    script: ModuleType, one_line: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "measure", interrupt)
    with pytest.raises(SystemExit) as left:
        script.main(["--part", "sizes", "--n", "1", "--output", str(one_line)])
    assert left.value.code == 130
    assert "| sizes | fair 40-40, 8 rows" in capsys.readouterr().out


def test_no_two_cases_share_their_lines(script: ModuleType) -> None:
    told = [json.dumps(case.facts) for case in script.CASES]
    assert len(set(told)) == len(told)
    assert {case.part for case in script.CASES} | {"cost"} == set(script.PARTS)


def test_a_trained_network_and_an_aggregate_are_observed(script: ModuleType, small: Any) -> None:
    update, truth = script.observe(replace(small, clients=2), 7)
    assert update.facts.client_rows == (8, 8) and truth.inputs.shape[0] == 16
    fresh, _ = script.observe(small, 7)
    trained, rows = script.observe(replace(small, trained=1), 7)
    assert trained.labels is None and rows.labels.shape == (8,)
    start = script.network_after("fair", (40, 40), 0, 7).state_dict()
    assert all(not torch.equal(value, start[name]) for name, value in trained.parameters.items())
    assert all(torch.equal(value, start[name]) for name, value in update.parameters.items())
    noised, _ = script.observe(replace(small, noise=1e-3), 7)
    assert all(torch.equal(value, fresh.parameters[name]) for name, value in noised.parameters.items())
    assert all(0 < (noised.update[n] - g).abs().max() < 0.01 for n, g in fresh.update.items())


class TestRows:
    """Five rows of the survey, the last two alike but for their labels."""

    @pytest.fixture
    def encoder(self) -> TableEncoder:
        return TableEncoder((table := load_dataset("fair")).schema).fit(table.train)

    @pytest.fixture
    def truth(self, encoder: TableEncoder) -> GroundTruth:
        rows = load_dataset("fair").train.iloc[[0, 1, 2, 3, 3]]
        return GroundTruth(encoder.encode(rows), torch.tensor([0, 1, 0, 1, 0]))

    def facts(
        self,
        script: ModuleType,
        encoder: TableEncoder,
        truth: GroundTruth,
        order: list[int],
        labels: list[int],
    ) -> dict[str, Any]:
        rows = encoder.decode(truth.inputs[order])
        found = Reconstruction(
            "exact",
            ThreatModel(labels="restored"),
            rows,
            torch.tensor(labels),
            truth.inputs[order],
            rows,
            0.0,
            0.0,
        )
        return dict(script.row_facts(found, truth, encoder))

    def test_labels_break_ties_between_equal_rows(
        self, script: ModuleType, encoder: TableEncoder, truth: GroundTruth
    ) -> None:
        for order, labels in (([4, 2, 0, 3, 1], [0, 0, 0, 1, 1]), ([3, 2, 0, 4, 1], [0, 0, 0, 1, 1])):
            facts = self.facts(script, encoder, truth, order, labels)
            assert facts["cells_right"] and facts["all_right"] and facts["label_accuracy"] == 1

    def test_labels_on_other_rows_are_wrong_though_their_counts_agree(
        self, script: ModuleType, encoder: TableEncoder, truth: GroundTruth
    ) -> None:
        facts = self.facts(script, encoder, truth, [0, 1, 2, 3, 4], [1, 0, 0, 1, 0])
        assert facts["cells_right"] and not facts["all_right"]
        assert facts["label_accuracy"] == pytest.approx(3 / 5)
