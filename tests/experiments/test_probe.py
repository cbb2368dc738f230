"""Estimates: a line is found from its points, packs fill devices, and a probe spends about what it may."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.optimize.shell import RestartedInversion
from lightleak.core import devices
from lightleak.experiments import probe
from lightleak.experiments.campaign import plan_packs
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.probe import Cost, Estimate, estimate, makespan, measure, slope
from lightleak.experiments.unit import Unit

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def packs(tiny: Any) -> list[list[Unit]]:
    attacks = {"tableak": {"steps": 20, "restarts": 30}, "random": {}}
    config = tiny(training__epochs=0, initial__batch_sizes=[3, 5], initial__batches=13, attacks=attacks)
    return plan_packs(plan_units(config, prepare_experiment(config), Path("no such folder")), CPU)


class Clock:
    """Time that passes only where something is done: a unit set up, or a step on some units."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unit: float, step: float) -> None:
        self.now, self.unit, self.step = 0.0, unit, step
        self.steps_run: list[int] = []
        monkeypatch.setattr("lightleak.experiments.unit.ATTACKS", self)
        monkeypatch.setattr(probe, "run_pack", self.run_pack)
        monkeypatch.setattr(probe.time, "perf_counter", lambda: self.now)
        self.threads: set[int] = set()

    def get(self, name: str) -> Any:
        return lambda **options: Stepping(self, name, options)

    def run_pack(self, units: list[Unit], folder: Path, *_: Any) -> None:
        self.threads.add(torch.get_num_threads())
        assert folder.is_dir()
        self.now += len(units) * (self.unit + units[0].options.get("steps", 0) * self.step)


class Stepping:
    """An attack that takes a second to begin."""

    def __init__(self, clock: Clock, name: str, options: dict[str, Any]) -> None:
        self.clock, self.name, self.given = clock, name, options

    def options(self) -> dict[str, Any]:
        return self.given

    def on_card(self, device: torch.device) -> "Stepping":
        return self

    def stepped(self, update: Any, seed: int, device: torch.device) -> tuple["Stepping", Any] | None:
        return (self, update) if self.given.get("steps") else None

    def memory(self, update: Any, together: int, device: torch.device) -> None:
        return None

    def run_many(self, updates: list[Any], seeds: Any, device: torch.device) -> None:
        assert len(updates) == len(seeds)
        self.clock.steps_run.append(self.given["steps"])
        self.clock.now += 1 + len(updates) * self.given["steps"] * self.clock.step


@given(base=st.floats(0, 100), step=st.floats(0.001, 10), steps=st.integers(2, 5000), seconds=st.floats(0.1, 1000))
def test_the_slope_of_a_line_is_found_within_the_time(base: float, step: float, steps: int, seconds: float) -> None:
    ran: list[int] = []

    def run(number: int) -> float:
        ran.append(number)
        return base + number * step

    assert slope(run, steps, seconds) == pytest.approx(step, rel=1e-6, abs=1e-9)
    assert max(ran) <= steps
    assert sum(base + number * step for number in ran) <= max(seconds, 3 * base + 7 * step) * (1 + 1e-6) + base


def test_an_attack_of_one_step_has_no_slope() -> None:
    assert slope(lambda steps: 3.0, 1, 100) == 0


@given(st.lists(st.floats(0.1, 10), max_size=6), st.integers(1, 3))
def test_packs_fill_devices_nearly_as_well_as_can_be(durations: list[float], devices: int) -> None:
    places = product(range(devices), repeat=len(durations))
    best = min(
        max(sum(d for d, p in zip(durations, place, strict=True) if p == device) for device in range(devices))
        for place in places
    )
    # Graham 1969: longest first is within 4/3 - 1/(3 m) of the best.
    assert best - 1e-9 <= makespan(durations, devices) <= best * (4 / 3 - 1 / (3 * devices)) + 1e-9


def test_setup_and_steps_are_told_apart(packs: list[list[Unit]], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, unit=0.5, step=0.25)
    cost = measure(packs[0], CPU, "values", seconds=1000)
    assert (cost.unit, cost.step, cost.steps) == (pytest.approx(0.5), pytest.approx(0.25), 20)
    assert cost.seconds == pytest.approx(0.5 + 20 * 0.25)
    assert max(clock.steps_run) == 20
    assert clock.threads == {1}


def test_a_slow_attack_is_stopped_after_few_steps(packs: list[list[Unit]], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, unit=0.5, step=1000.0)
    cost = measure(packs[0], CPU, "values", seconds=1)
    assert cost.step == pytest.approx(1000)
    assert clock.steps_run == [1, 1, 5]


def test_of_a_composed_attack_the_last_stage_is_slow(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient that exact inversion leaves open: 20,000 steps are estimated from few."""
    attacks = {"audit_max": {"exact_joint": {"steps": 2}, "tableak": {"steps": 20_000, "restarts": 2}}}
    network = {"network": "autoint", "options": {"embedding_dim": 8, "attn_embed_dim": 4, "num_heads": 2}}
    config = tiny(training__epochs=0, initial__batch_sizes=[3], initial__batches=1, attacks=attacks, target=network)
    (pack,) = plan_packs(plan_units(config, prepare_experiment(config), Path("no such folder")), CPU)
    ran: list[int] = []
    original = RestartedInversion.run_many

    def counting(self: RestartedInversion[Any], *args: Any, **named: Any) -> Any:
        ran.append(self.options()["steps"])
        return original(self, *args, **named)

    monkeypatch.setattr(RestartedInversion, "run_many", counting)
    cost = measure(pack, CPU, "values", seconds=0.1)
    assert cost.steps == 20_000 and cost.memory  # a step may seem to take no time on a busy machine
    assert ran[0] == 1 and max(ran) < 100


def test_a_composed_attack_whose_last_stage_is_not_needed_has_no_steps(tiny: Any) -> None:
    config = tiny(training__epochs=0, initial__batch_sizes=[3], initial__batches=1, attacks={"audit_max": {}})
    (pack,) = plan_packs(plan_units(config, prepare_experiment(config), Path("no such folder")), CPU)
    cost = measure(pack, CPU, "values", seconds=0.1)
    assert cost.steps == 0 and cost.unit > 0


def test_kinds_of_the_same_work_are_measured_once(packs: list[list[Unit]], monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, int, float]] = []

    def fake(pack: list[Unit], device: torch.device, kept: str, seconds: float) -> Cost:
        measured.append((pack[0].attack, len(pack), seconds))
        return Cost(1.0, 0.1, 20, None)

    monkeypatch.setattr(probe, "measure", fake)
    trained = [
        [probe.replace(u, facts={**u.facts, "source": "training", "epoch": e}) for u in packs[0]] for e in (0, 2)
    ]
    found = estimate([*packs, *trained], CPU, "values", seconds=8)
    assert [(one.attack, one.batch_size, one.source, one.packs) for one in found] == [
        ("random", 3, "initial", (13,)),
        ("random", 5, "initial", (13,)),
        ("tableak", 3, "initial", (11, 2)),
        ("tableak", 3, "training", (11, 11)),
        ("tableak", 5, "initial", (6, 6, 1)),
    ]
    assert sorted(measured) == [("random", 13, 2.0), ("random", 13, 2.0), ("tableak", 6, 2.0), ("tableak", 11, 2.0)]
    assert found[2].durations == pytest.approx([33.0, 6.0]) and found[2].units == 13


def test_what_was_measured_before_is_not_measured_again(
    packs: list[list[Unit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def fake(pack: list[Unit], device: torch.device, kept: str, seconds: float) -> Cost:
        measured.append(f"{pack[0].attack} {seconds:g}")
        return Cost(1.0, 0.1, 20, None)

    monkeypatch.setattr(probe, "measure", fake)
    known: dict[str, Cost] = {}
    first = estimate(packs[:1], CPU, "values", 8, known)
    assert measured == ["tableak 8"] and len(known) == 1
    assert first[0].cost in [one.cost for one in estimate(packs, CPU, "values", 9, known)]
    assert len(known) == 4 and sorted(measured[1:]) == ["random 3", "random 3", "tableak 3"]


def test_strengths_of_a_defense_are_measured_once_and_defenses_apart(
    packs: list[list[Unit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Any] = []

    def fake(pack: list[Unit], device: torch.device, kept: str, seconds: float) -> Cost:
        measured.append(pack[0].facts["defense"])
        return Cost(1.0, 0.1, 20, None)

    monkeypatch.setattr(probe, "measure", fake)
    behind = [("none", None), ("clipping", 0.1), ("clipping", 1.0), ("sign", None)]
    defended = [
        [probe.replace(u, facts={**u.facts, "defense": name, "defense_strength": strength}) for u in packs[0]]
        for name, strength in behind
    ]
    found = estimate(defended, CPU, "values")
    assert [(one.source, one.defense, len(one.packs)) for one in found] == [
        ("initial", "", 1),
        ("initial", "clipping", 2),
        ("initial", "sign", 1),
    ]
    assert sorted(measured) == ["clipping", "none", "sign"]


def test_the_steps_of_an_exact_search_are_not_probed_by_themselves() -> None:
    assert all(ATTACKS.get(name)().stepped(None, 0, CPU) is None for name in ("exact_joint", "exact_pruned"))
    assert ATTACKS.get("tableak")().stepped(None, 0, CPU) is not None


def test_a_real_pack_is_probed_and_nothing_is_left(packs: list[list[Unit]], tmp_path: Path) -> None:
    before = sorted(Path.cwd().iterdir())
    found = estimate(packs[:1], CPU, "values", seconds=0.1)
    assert isinstance(found[0], Estimate) and found[0].cost.seconds > 0
    assert found[0].cost.memory is not None and found[0].cost.memory > 0
    assert sorted(Path.cwd().iterdir()) == before


class Epochs:
    """A pack whose training takes two seconds an epoch, after three seconds of preparation."""

    ids = ("one",)
    cost = 1.0

    def __init__(self, clock: Clock, epochs: int) -> None:
        self.clock, self.epochs = clock, epochs

    def run(self, folder: Path, device: torch.device, report: Any) -> None:
        assert (folder / "units").is_dir()
        self.clock.steps_run.append(self.epochs)
        self.clock.now += 3
        for _ in range(4 * self.epochs):
            self.clock.now += 0.5
            report(0.25)


@pytest.mark.parametrize(
    ("steps", "seconds", "ran", "unit", "step"),
    [(20, 100.0, [1, 1, 5], 3, 2), (3, 100.0, [1, 1, 3], 3, 2), (20, 1.0, [1, 5], 3, 2), (0, 1.0, [1], 5, 0)],
)
def test_a_pack_is_measured_by_packs_of_few_steps(
    steps: int, seconds: float, ran: list[int], unit: float, step: float, tmp_path: Path, monkeypatch: Any
) -> None:
    clock = Clock(monkeypatch, unit=0.0, step=0.0)
    cost = probe.measure_pack(lambda n: Epochs(clock, n), steps, torch.device("cpu"), tmp_path, seconds)
    assert clock.steps_run == ran
    assert (cost.unit, cost.step, cost.steps) == (unit, step, steps)
    assert cost.seconds == unit + steps * step


def test_a_pack_that_reports_its_steps_is_measured_by_one(tmp_path: Path, monkeypatch: Any) -> None:
    clock = Clock(monkeypatch, unit=0.0, step=0.0)
    cost = probe.measure_pack(lambda n: Epochs(clock, n), 20, torch.device("cpu"), tmp_path, 1.0, reports_steps=True)
    assert clock.steps_run == [1]
    assert (cost.unit, cost.step, cost.steps) == (3, 2, 20)


def test_the_growth_of_the_process_is_its_peak_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = tmp_path / "status"
    monkeypatch.setattr(devices, "STATUS", status)
    monkeypatch.setattr(devices, "CLEAR_REFS", tmp_path / "clear_refs")
    probe._baseline.cache_clear()
    status.write_text("Name:\tpython\nVmHWM:\t   900 kB\nVmRSS:\t   500 kB\n")
    with probe.peak_memory(torch.device("cpu")) as peak:
        status.write_text("VmHWM:\t   740 kB\nVmRSS:\t   510 kB\n")
    assert peak() == 240 * 1024
    assert (tmp_path / "clear_refs").read_text() == "5"
    probe._baseline.cache_clear()
    status.unlink()  # systems other than Linux
    with probe.peak_memory(torch.device("cpu")) as peak:
        pass
    assert peak() is None
    probe._baseline.cache_clear()
