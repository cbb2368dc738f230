"""The files that docs/extend.md shows are executed, registered, used and described by a card."""

import json
import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.cards.catalogue import load_catalogue
from lightleak.cards.registries import read_registries
from lightleak.core.observations import ClientUpdate
from lightleak.core.registry import Registry
from lightleak.core.seeds import generator
from lightleak.data.datasets import DATASETS, load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.table import Table
from lightleak.defenses.horizontal import UPDATE_DEFENSES
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.job import plan_jobs
from lightleak.experiments.run import run_audit
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PAGE = (EXAMPLES.parent / "extend.md").read_text("utf-8")
PROJECTS = (EXAMPLES.parent / "python.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def registries_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example registers is gone after its test."""
    registries: tuple[Registry, ...] = (ATTACKS, DATASETS, PROPERTY_ATTACKS, UPDATE_DEFENSES)
    for registry in registries:
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_facts", dict(registry._facts))


@pytest.fixture
def execute() -> Callable[[str], None]:
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


def an_update(table: Table, n: int = 4, hidden: tuple[int, ...] = (8, 8)) -> ClientUpdate:
    encoder = TableEncoder(table.schema).fit(table.train)
    rows = table.train.head(n)
    spec = NetworkSpec("mlp", table.schema.n_classes, encoder.layout, {"hidden": list(hidden)})
    update, _ = client_update(
        build_network(spec, 0),
        spec,
        encoder,
        encoder.encode(rows),
        encoder.encode_labels(rows),
        share_labels=True,
        marginals=Marginals.of(table.schema, table.test),
    )
    return update


def test_every_example_is_shown_and_every_one_shown_is_here() -> None:
    assert set(re.findall(r"^<!-- examples/(.*) -->$", PAGE + PROJECTS, re.MULTILINE)) == {
        path.name for path in EXAMPLES.glob("*.py")
    }
    embedded = runpy.run_path(str(EXAMPLES.parent / "site" / "examples.py"))["embedded"]
    assert embedded(PROJECTS) == PROJECTS, "run `python docs/site/examples.py`"
    assert embedded(PAGE) == PAGE, "run `python docs/site/examples.py`, which puts the files into the page again"


def test_the_dataset_loads_and_takes_its_option(execute: Callable[[str], None]) -> None:
    execute("weather")
    table = load_dataset("weather", rows=100)
    assert (len(table.train), len(table.test)) == (80, 20)
    pd.testing.assert_frame_equal(table.train, load_dataset("weather", rows=100).train)
    assert set(table.schema.names) == {"wind", "temperature", "sky"}


def test_the_attack_answers_the_commonest_value_of_each_column(execute: Callable[[str], None]) -> None:
    execute("commonest_value")
    execute("weather")
    table = load_dataset("weather", rows=400)
    found = ATTACKS.get("commonest_value")().run(an_update(table))
    assert found.rows["sky"].eq(table.test["sky"].mode()[0]).all()
    assert found.rows["wind"].eq(table.test["wind"].mode()[0]).all()
    assert len(found.rows) == len(found.labels) == 4


def test_the_declared_attack_is_the_engine_with_its_settings(execute: Callable[[str], None]) -> None:
    execute("tableak_quick")
    execute("weather")
    attack = ATTACKS.get("tableak_quick")(restarts=2, steps=3)
    assert attack.options()["schedule"] == "cosine" and attack.options()["restarts"] == 2
    assert len(attack.run(an_update(load_dataset("weather", rows=100))).rows) == 4


def test_the_defense_rounds_to_multiples_of_its_step(execute: Callable[[str], None]) -> None:
    execute("rounding")
    gradient = {"weight": torch.tensor([0.0004, -0.0016, 0.25])}
    sent = UPDATE_DEFENSES.get("rounding")(step=0.001).apply(gradient, generator(0))
    torch.testing.assert_close(sent["weight"], torch.tensor([0.0, -0.002, 0.25]))


def test_the_composed_attack_proves_rows_and_optimizes_the_others(execute: Callable[[str], None]) -> None:
    execute("exact_then_quick")
    execute("weather")
    attack = ATTACKS.get("exact_then_quick")(steps=3)
    assert attack.label_stage("gradient") == "tableak" and attack.label_stage("delta") is None
    found = attack.run(an_update(load_dataset("weather", rows=100), hidden=(40, 40)))
    assert len(found.rows) == 4 and found.certificate is not None
    assert attack.options()["tableak"]["steps"] == 3


def test_the_training_time_attack_has_a_training_of_its_own(execute: Callable[[str], None], tmp_path: Path) -> None:
    execute("louder_rows")
    folder = tmp_path / "run"
    config = VerticalConfig.parse(
        {
            "kind": "vertical",
            "data": {"name": "fair"},
            "properties": ["religious=strongly"],
            "training": {"epochs": 2, "batch_size": 256},
            "auxiliary": {"size": 400},
            "attacks": {"louder_rows": {"strength": 5.0}, "prior": {}},
            "adversaries": ["C2"],
            "device": "cpu",
            "workers": 1,
        }
    )
    watching, alone = ([label for label, _ in job.attacks] for job in plan_jobs(config))
    assert "prior" in watching and alone == ["louder_rows"]
    run_audit(config, folder, ["lightleak", "audit"], Console(quiet=True))
    rows = json.loads((folder / "results.json").read_text())["rows"]
    assert {row["variant"] for row in rows} == {"passive", "louder"}
    assert {row["auc"] for row in rows if row["label"] == "prior"} != {
        row["auc"] for row in rows if row["label"] == "louder_rows"
    }


EXAMPLE_NAMES = ["commonest_value", "tableak_quick", "exact_then_quick", "louder_rows", "rounding"]


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_an_example_has_a_card_by_itself(execute: Callable[[str], None], name: str) -> None:
    execute(name)
    cards = read_registries(load_catalogue().exact).cards
    (card,) = [card for card in cards if card.name == name]
    assert card.summary and card.citation and card.threat_model and card.needs


@pytest.mark.slow
def test_the_variable_loads_a_file_into_every_process(
    tmp_path: Path, run_forked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parents[1])
    commands = [shlex.split(line) for line in PAGE.splitlines() if "commonest_value.py lightleak" in line]
    assert [words[2] for words in commands] == ["explain", "audit"]
    quick = [
        "--training.epochs",
        "0",
        "--initial.batches",
        "2",
        "--initial.batch_sizes",
        "[4]",
        "--output",
        str(tmp_path / "run"),
    ]
    for (variable, _, *arguments), more in zip(commands, ([], quick), strict=True):
        name, _, value = variable.partition("=")
        assert "commonest" in run_forked(*arguments, *more, **{name: value})
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert [row["attack"] for row in rows] == ["commonest_value"] * 2


@pytest.mark.slow
def test_the_kind_of_audit_runs_resumes_and_reports_from_one_file(
    tmp_path: Path, run_forked: Callable[..., str]
) -> None:
    folder, config = tmp_path / "run", tmp_path / "label-guess.yaml"
    config.write_text("kind: label-guess\ndata: {name: synthetic}\nrows: 100\n")

    def lightleak(*arguments: object) -> str:
        return run_forked(*arguments, LIGHTLEAK_PLUGINS=str(EXAMPLES / "label_guess.py"))

    said = lightleak("audit", config, "--output", folder, "--rows", "50")
    (row,) = json.loads((folder / "results.json").read_text())["rows"]
    assert row["kind"] == "label-guess" and 0.3 < row["accuracy"] <= 1 and f"{100 * row['accuracy']:.1f}%" in said
    assert f"{row['label']} is right for {100 * row['accuracy']:.1f}%" in (folder / "report.html").read_text()
    assert row["label"] in lightleak("audit", "--resume", folder)


@pytest.mark.usefixtures("quick_by_default")
def test_a_pytorch_tabular_project_is_audited_by_one_callback(
    execute: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    execute("tabular_model")
    rows = json.loads((tmp_path / "runs" / "tabular_model" / "results.json").read_text())["rows"]
    assert [row["attack"] for row in rows] == ["inverting_gradients", "random"]
    assert all(set(row["column_accuracy"]) == {"age", "stay", "ward", "sex"} for row in rows)
    assert (tmp_path / "runs" / "tabular_model" / "report.html").is_file()
