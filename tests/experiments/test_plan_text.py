"""What --plan prints: every unit of the run that follows, in a table that fits a terminal, and the time they take."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.experiments.campaign import packs_without_a_run, plan_packs
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates import run_plan
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.kinds.updates.run_plan import captured_units, monitored_units
from lightleak.experiments.plan_text import describe_plan, print_probed, table_lines
from lightleak.experiments.probe import Cost, Estimate, Probed, estimate, probe_training
from lightleak.experiments.run import run_audit

CPU = torch.device("cpu")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit takes 10 minutes, and an epoch a minute."""
    cost = Cost(60.0, 5.4, 100, 3 * 2**20)

    def estimated(packs: list[list[Any]], *_: Any) -> list[Estimate]:
        return [Estimate(p[0].attack, p[0].facts["batch_size"], p[0].facts["source"], (len(p),), cost) for p in packs]

    monkeypatch.setattr(run_plan, "estimate", estimated)
    monkeypatch.setattr(run_plan, "probe_training", lambda *_: Cost(10.0, 5.0, 10, None))


def test_stand_ins_are_the_units_that_the_training_leaves(tmp_path: Path, tiny: Any, silent: Console) -> None:
    config = tiny(attacks={"inverting_gradients": {"steps": 2}, "random": {}}, initial__batches=1)
    run_audit(config, tmp_path / "run", console=silent)
    experiment = prepare_experiment(config)
    real = [u for u in plan_units(config, experiment, tmp_path / "run") if u.facts["source"] == "training"]
    planned = captured_units(config, experiment)
    assert [(u.attack, u.options, u.facts["epoch"]) for u in planned] == [
        (u.attack, u.options, u.facts["epoch"]) for u in real
    ]
    assert [plan_packs([u], CPU)[0][0].rows for u in planned] == [u.rows for u in real]
    ATTACKS.get("inverting_gradients")(steps=2).check(planned[0].observe()[0])
    # Epochs that the training does not reach are recorded by nobody.
    beyond = tiny(capture__epochs=[1, 5], capture__per_epoch=2)
    assert [u.facts["epoch"] for u in captured_units(beyond, prepare_experiment(beyond))] == [1, 1] * 2


def test_the_monitor_looks_where_something_was_recorded(tiny: Any) -> None:
    config = tiny(
        training__epochs=5, capture__epochs=[0, 1, 4], capture__per_epoch=2, monitor__attack="tableak", monitor__every=2
    )
    units = monitored_units(config, prepare_experiment(config))
    assert [(u.attack, u.facts["epoch"]) for u in units] == [("tableak", 0)] * 2 + [("tableak", 4)] * 2
    assert monitored_units(tiny(), prepare_experiment(tiny())) == []


@pytest.mark.usefixtures("measured")
def test_time_is_told_for_this_run_and_for_numbers_of_devices(tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny(attacks=["tableak"], initial__batches=3, workers=3)
    describe_plan(config, Console(width=200))
    printed = capsys.readouterr().out
    # Packs of 3, 1 and 1 units of 10 minutes each; two epochs of a minute before them.
    assert "training  2 epochs of 10 batches, 1.0 min each: 2.0 min" in printed
    assert "time      32 min on 3 cores of this run" in printed
    assert "elsewhere 52 min on 1 core, 32 min on 2, 32 min on 4, 32 min on 8" in printed
    assert re.search(r"tableak +4 +initial +3 +1 +3.0 MiB +10 min +30 min", printed)


@pytest.mark.usefixtures("measured")
def test_a_plan_names_columns_that_may_hold_codes(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame({"age": [*range(20, 50)] * 2, "SEX": [1, 2] * 30, "ill": ["no", "no", "yes"] * 20})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    source = {"data__name": None, "data__table": str(tmp_path / "mine.csv"), "data__label": "ill"}
    describe_plan(tiny(**source), Console(width=200))
    assert "data.categorical: [SEX]" in capsys.readouterr().out
    describe_plan(tiny(**source, data__categorical=["SEX"]), Console(width=200))
    assert "may be codes" not in capsys.readouterr().out


def test_a_real_plan_is_probed_and_leaves_nothing(
    tiny_fedavg: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = torch.get_rng_state()
    describe_plan(tiny_fedavg(monitor__attack="inverting_gradients_fedavg"), Console(width=80), seconds=0.1)
    printed = capsys.readouterr().out
    assert torch.equal(torch.get_rng_state(), state)
    assert list(tmp_path.iterdir()) == []
    # What a plan says of the target, and of what to expect from exact inversion, may be long.
    assert max(len(line) for line in printed.splitlines() if "equations" not in line) <= 110
    for source in ("initial", "training", "monitor"):
        assert re.search(rf"(tableak|inverting_gradients)_fedavg +\d+ +{source} ", printed)
    assert "with the monitor's attacks" in printed and "on 8" in printed


def test_attacks_of_the_monitor_belong_to_the_training_behind_a_defense_too(
    tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    defended = {"name": "clipping", "options": {"max_norm": 1.0}}
    describe_plan(tiny(attacks=["random"], monitor__attack="random", defense=defended), Console(width=120), seconds=0.1)
    printed = capsys.readouterr().out
    assert re.search(r"random +\d+ +monitor +clipping", printed) and "with the monitor's attacks" in printed


def test_attacks_of_other_plans_are_told_likewise(tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny(training__epochs=0, attacks=["random"])
    units = plan_units(config, prepare_experiment(config), Path("no such folder"))
    print_probed(Probed([estimate(packs_without_a_run(units, CPU), CPU, "nothing")]), CPU, 2, Console(width=200))
    printed = capsys.readouterr().out
    assert re.search(r"random +4 +initial +2 +1 +–", printed) and "on 1 core of this run" in printed


def test_the_table_fits_a_terminal() -> None:
    longest = max(ATTACKS.names(), key=len)
    one = Estimate(longest, 100_000, "training", (1000,) * 10_000, Cost(99.0, 99.0, 1500, 140 * 2**30))
    lines = table_lines([one, one])
    assert len(lines) == 3 and max(map(len, lines)) <= 100
    defended = table_lines([one, replace(one, defense="clipping")])
    assert [line.split()[2:4] for line in (lines[0], defended[0])] == [["source", "units"], ["source", "defense"]]
    assert defended[1].split()[3] == "10000000" and defended[2].split()[3] == "clipping"


@pytest.mark.parametrize("fedavg", [False, True])
def test_a_few_batches_of_the_training_are_timed(
    tiny: Any, tiny_fedavg: Any, fedavg: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    fork_rng = torch.random.fork_rng

    def forked(devices: Any = None, enabled: bool = True) -> Any:
        kept.append(devices)
        return fork_rng(devices, enabled)

    monkeypatch.setattr(torch.random, "fork_rng", forked)
    config = tiny_fedavg() if fedavg else tiny()
    cost = probe_training(config, prepare_experiment(config))
    assert kept and all(devices == [] for devices in kept)  # on the CPU no GPU is touched
    assert cost.steps == (1 if fedavg else 11)  # 86 rows are left for training, in batches of 8
    assert cost.step > 0 and cost.unit > 0
    assert cost.seconds == pytest.approx(cost.steps * cost.step + cost.unit)
