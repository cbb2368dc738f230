"""No certificate is wrong on batches where earlier ones were, nor on random ones; the judge sees what is wrong."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lightleak.attacks.attack import ATTACKS
from lightleak.core.certificate import Certificate, Feasibility
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "wrong_certificates.py"
HARD = (1, 70, 92, 94, 141, 154, 210, 229, 234, 249, 285, 295, 10034)
"""Seeds whose certificates were wrong once."""
RANDOM = range(20_080, 20_110)


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("wrong_certificates", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))  # as Python does for a script: its batches lie beside it
        patch.setitem(__import__("sys").modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def batches(script: ModuleType) -> Any:
    return __import__("sys").modules["certificate_batches"]


def test_attacks_of_the_hunt_have_their_settings(batches: Any) -> None:
    for name, options in batches.OPTIONS.items():
        assert ATTACKS.get(name)(**options).name == name


def test_a_row_that_was_found_twice_occurs_as_often_as_both(script: ModuleType, batches: Any) -> None:
    line = script.measure(batches.scenario(720_191, "exact", others=True))
    assert line["rows"] == 23 and line["wrong"] == 0


@pytest.mark.parametrize("seed", [*HARD, *RANDOM])
def test_no_certificate_is_wrong(script: ModuleType, batches: Any, seed: int) -> None:
    line = script.measure(replace(batches.scenario(seed), budget="small"))
    assert not line["failed"]
    assert line["refused"] or line["wrong"] == 0, line


def test_the_random_batches_are_of_every_kind(batches: Any) -> None:
    drawn = [batches.scenario(seed).facts for seed in RANDOM]
    for kind, shares in {"attack": "ATTACKED", "table": "TABLES", "twist": "TWISTS", "network": "NETWORKS"}.items():
        assert {case[kind] for case in drawn} - {"all active"} == set(getattr(batches, shares)), kind
    assert any(case["network"] == "all active" for case in drawn) and any(len(case["hidden"]) == 1 for case in drawn)


@pytest.mark.parametrize("twist", ["plain", "copies", "near copies", "one class"])
@pytest.mark.parametrize("attack", ["exact", "exact_fedavg"])
def test_a_seed_gives_one_batch(batches: Any, attack: str, twist: str) -> None:
    case = replace(batches.scenario(3, attack), twist=twist, rows=8, clients=1)
    first, again = batches.observe(case), batches.observe(case)
    assert torch.equal(first.truth.inputs, again.truth.inputs)
    assert all(torch.equal(t, again.update.update[name]) for name, t in first.update.update.items())
    assert len(first.truth.labels) == 8 == first.update.facts.n_rows
    assert (len(first.truth.labels.unique()) == 1) >= (twist == "one class")
    assert (len(first.truth.inputs.unique(dim=0)) < 8) >= (twist == "copies")


@pytest.fixture
def table(batches: Any) -> tuple[TableEncoder, GroundTruth]:
    """Six rows with categories and numbers, the last two equal."""
    frame, schema = batches.made_table(batches.numpy_generator(4, "rows"), "mixed", 2)
    encoder = TableEncoder(schema).fit(frame)
    chosen = frame.iloc[[0, 1, 2, 3, 4, 4]]
    return encoder, GroundTruth(encoder.encode(chosen), encoder.encode_labels(chosen))


def claim(encoder: TableEncoder, truth: GroundTruth, times: tuple[int, ...] = (1, 1, 1, 1, 2, 2)) -> Reconstruction:
    order = torch.tensor([2, 0, 1, 3, 4, 5])
    n = len(order)
    return Reconstruction(
        attack="exact",
        threat_model=ThreatModel("restored"),
        rows=encoder.decode(truth.inputs[order]),
        labels=truth.labels[order],
        encoded=truth.inputs[order],
        uncertainty=None,
        loss=0.0,
        seconds=0.0,
        certificate=Certificate(0.0, ("certified",) * n, (True,) * n, times, Feasibility((), (), (), 0.0, "exact", "")),
    )


def test_right_rows_in_any_order_are_right(batches: Any, table: tuple[TableEncoder, GroundTruth]) -> None:
    encoder, truth = table
    judged = batches.judge(claim(encoder, truth), truth, encoder)
    assert (judged.rows, judged.digits, judged.wrong, judged.cells_wrong) == (6, 6, 0, 0)
    assert judged.cells == 6 * (len(encoder.schema.columns) + 1)


@pytest.mark.parametrize("deviations, wrong", [(0.009, 0), (0.02, 1)])
def test_numbers_may_be_off_by_the_tolerance(
    batches: Any, table: tuple[TableEncoder, GroundTruth], deviations: float, wrong: int
) -> None:
    encoder, truth = table
    found = claim(encoder, truth)
    name = next(column.name for column in encoder.schema.numerical if str(column.kind) == "continuous")
    at = [column.name for column in encoder.schema.numerical].index(name)
    found.rows.loc[1, name] += deviations * float(encoder.deviation[at])
    judged = batches.judge(found, truth, encoder)
    assert (judged.wrong, judged.cells_wrong) == (wrong, wrong)
    assert judged.worst == pytest.approx(deviations, rel=1e-3)


def test_digits_that_are_not_certified_may_be_anything(batches: Any, table: tuple[TableEncoder, GroundTruth]) -> None:
    encoder, truth = table
    found = claim(encoder, truth)
    assert found.certificate is not None
    for column in encoder.schema.numerical:
        found.rows.loc[1, column.name] = found.rows[column.name].max() + 5
    assert batches.judge(found, truth, encoder).wrong == 1
    object.__setattr__(found.certificate, "digits", (True, False, True, True, True, True))
    judged = batches.judge(found, truth, encoder)
    assert (judged.rows, judged.digits, judged.wrong, judged.worst) == (6, 5, 0, pytest.approx(0, abs=1e-6))


@pytest.mark.parametrize("what", ["label", "category", "row twice", "fewer", "more"])
def test_what_is_wrong_is_seen(batches: Any, table: tuple[TableEncoder, GroundTruth], what: str) -> None:
    encoder, truth = table
    found = claim(
        encoder, truth, {"fewer": (1, 1, 1, 1, 1, 1), "more": (1, 2, 1, 1, 2, 2)}.get(what, (1, 1, 1, 1, 2, 2))
    )
    if what == "label":
        found.labels[1] = 1 - found.labels[1]
    if what == "category":
        column = encoder.schema.categorical[0]
        found.rows.loc[1, column.name] = next(c for c in column.categories if c != found.rows.loc[1, column.name])
    if what == "row twice":
        found.rows.loc[1] = found.rows.loc[0]
        found.labels[1] = found.labels[0]
    judged = batches.judge(found, truth, encoder)
    assert judged.wrong == (2 if what == "fewer" else 1)
    assert (judged.cells_wrong > 0) == (what not in ("fewer", "more"))


def test_what_is_measured_is_kept_and_not_measured_again(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wrong.jsonl"
    script.main(["--first", "10000", "--count", "2", "--attack", "exact", "--output", str(file)])
    lines = [json.loads(one) for one in file.read_text().splitlines()]
    assert [line["scenario"]["seed"] for line in lines] == [10000, 10001]
    monkeypatch.setattr(script, "measure", lambda *_: pytest.fail("measured again"))
    lines[0]["wrong"] = 3
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert script.main(["--first", "10000", "--count", "2", "--output", str(file)]) == 1
    out = capsys.readouterr().out
    assert "| all | 2 |" in out and "--replay 10000" in out


def test_the_bound_is_that_of_clopper_and_pearson(script: ModuleType) -> None:
    assert script.upper_bound(0, 2000) == pytest.approx(1 - 0.05 ** (1 / 2000))
    assert script.upper_bound(1, 10) == pytest.approx(0.394163, abs=1e-6)
    assert script.upper_bound(5, 5) == 1.0


@pytest.mark.parametrize(
    "model", ["gelu", "relu, layer norm", "relu, batch norm", "gelu, batch norm", "resnet", "resnet_preact"]
)
def test_no_certificate_of_another_network_is_wrong(script: ModuleType, batches: Any, model: str) -> None:
    drawn = (batches.scenario(seed, "exact", others=True) for seed in range(30_000, 30_200))
    line = script.measure(next(replace(case, budget="small") for case in drawn if case.model == model))
    assert not line["failed"]
    assert line["refused"] or line["wrong"] == 0, line
