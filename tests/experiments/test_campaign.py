"""Results depend on a unit and its seed alone: not on packs or what else is attacked (workers: test_engine.py)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.attacks.random_baseline import RandomBaseline
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.records import to_json
from lightleak.data.encoder import TableEncoder
from lightleak.experiments import campaign
from lightleak.experiments.campaign import (
    PackError,
    finished_rows,
    keep_finished_units,
    plan_packs,
    run_packs,
    run_units,
)
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import LocalEngine, scratch_folder
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units, stored_units
from lightleak.experiments.pack import Pack
from lightleak.experiments.run import run_audit
from lightleak.experiments.took import TOOK
from lightleak.experiments.unit import Unit, run_pack, scored, unit_file, unscored

CPU = torch.device("cpu")


def rows_of(folder: Path, attack: str) -> list[dict[str, Any]]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return [{k: v for k, v in row.items() if k not in TOOK} for row in rows if row["attack"] == attack]


@pytest.fixture(scope="module")
def several(tiny: Any) -> AuditConfig:
    """Twelve units in four packs."""
    attacks = {"tableak": {"steps": 20, "restarts": 3}, "random": {}}
    return tiny(training__epochs=0, initial__batch_sizes=[3, 5], initial__batches=3, attacks=attacks)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, several: AuditConfig, silent: Console) -> Path:
    folder = tmp_path_factory.mktemp("one worker") / "run"
    run_audit(several, folder, console=silent)
    return folder


def test_size_of_the_packs_changes_nothing(
    tmp_path: Path, several: AuditConfig, alone: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(campaign.ROWS_PER_PACK, "cpu", 1)
    run_audit(several, tmp_path / "single", console=silent)
    assert rows_of(tmp_path / "single", "tableak") == rows_of(alone, "tableak")


@pytest.mark.parametrize(
    ("more", "left"),
    [
        # gradinversion makes clients share BatchNorm statistics, tableak their labels: others must not notice.
        (["gradinversion"], ["tableak", "random"]),
        ([], ["random"]),
    ],
)
def test_another_attack_beside_it_changes_nothing(
    tmp_path: Path, tiny: Any, several: AuditConfig, alone: Path, silent: Console, more: list[str], left: list[str]
) -> None:
    attacks = {**{name: {"steps": 5} for name in more}, **{name: several.attacks[name] for name in left}}
    run_audit(tiny(**{**several.to_dict(), "attacks": attacks}), tmp_path / "other", console=silent)
    for attack in left:
        assert rows_of(tmp_path / "other", attack) == rows_of(alone, attack)


def test_another_seed_changes_everything(tmp_path: Path, tiny: Any, several: AuditConfig, alone: Path) -> None:
    first, second = ([unit.observe()[0] for unit in _units(tiny(**{**several.to_dict(), "seed": s}))] for s in (0, 1))
    for one, other in zip(first, second, strict=True):
        assert not torch.equal(next(iter(one.parameters.values())), next(iter(other.parameters.values())))


def _units(config: AuditConfig) -> list[Unit]:
    return plan_units(config, prepare_experiment(config), Path("no such folder"))


def test_observations_do_not_depend_on_the_global_generator(tiny: Any) -> None:
    config = tiny(target__options={"hidden": [6], "dropout": 0.5})
    first = [unit.observe()[0].update for unit in _units(config)]
    torch.manual_seed(999)
    state = torch.get_rng_state()
    second = [unit.observe()[0].update for unit in reversed(_units(config))]
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(first, reversed(second), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_packs_hold_neighbours_of_one_kind_in_order(several: AuditConfig) -> None:
    units = _units(several)
    packs = plan_packs(units, CPU)
    assert [unit.id for pack in packs for unit in pack] == [unit.id for unit in units]
    assert [len(pack) for pack in packs] == [3, 3, 3, 3]
    for pack in packs:
        assert len({(unit.attack, unit.facts["batch_size"]) for unit in pack}) == 1


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1, 1, 1]), (18, [2, 1]), (27, [3]), (26, [2, 1])])
def test_packs_are_cut_by_rows_of_all_restarts(
    several: AuditConfig, monkeypatch: pytest.MonkeyPatch, rows: int, sizes: list[int]
) -> None:
    monkeypatch.setitem(campaign.ROWS_PER_PACK, "cpu", rows)
    units = [unit for unit in _units(several) if unit.attack == "tableak" and unit.facts["batch_size"] == 3]
    assert [len(pack) for pack in plan_packs(units, CPU)] == sizes


@pytest.mark.parametrize(("device", "sizes"), [("cpu", [1, 1, 1]), ("cuda", [3])])
def test_updates_that_are_worked_on_one_by_one_are_packs_of_their_own_on_a_cpu(
    tiny: Any, device: str, sizes: list[int]
) -> None:
    config = tiny(training__epochs=0, initial__batch_sizes=[3], initial__batches=3, attacks={"exact_joint": {}})
    assert [len(pack) for pack in plan_packs(_units(config), torch.device(device))] == sizes


def test_attacks_run_on_one_thread_whatever_was_set_before(
    tmp_path: Path, several: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    monkeypatch.setattr(campaign, "run_pack", lambda *_: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_units(_units(several), tmp_path, LocalEngine(CPU))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}


def test_progress_adds_up_to_the_cost_of_all_units(tmp_path: Path, several: AuditConfig) -> None:
    units = _units(several)
    for pack in plan_packs(units, CPU):
        told: list[float] = []
        run_pack(pack, tmp_path, CPU, "nothing", told.append)
        assert sum(told) == pytest.approx(sum(unit.cost for unit in pack))
    assert len(finished_rows(units, tmp_path)) == len(units)
    assert not (tmp_path / "reconstructions").exists()


def test_a_pack_keeps_what_was_kept_before(tmp_path: Path, several: AuditConfig) -> None:
    pack = plan_packs(_units(several), CPU)[-1]
    kept = unit_file(tmp_path, pack[0].id)
    kept.parent.mkdir()
    kept.write_text('"earlier"')
    run_pack(pack, tmp_path, CPU, "nothing", lambda _: None)
    assert kept.read_text() == '"earlier"'
    assert [row["unit"] for row in finished_rows(pack[1:], tmp_path)] == [unit.id for unit in pack[1:]]


@dataclass(frozen=True)
class Toy(Pack):
    """A pack of two units."""

    name: str
    cost: float = 1.0  # type: ignore[misc]
    act: Callable[[str], object] = lambda name: None

    @property
    def ids(self) -> Sequence[str]:
        return [f"{self.name}-0", f"{self.name}-1"]

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        self.act(self.name)
        report(self.cost)
        for id in self.ids:
            unit_file(folder, id).write_text(json.dumps({"unit": id}))


def test_the_costliest_pack_comes_first_and_what_is_done_not_at_all(tmp_path: Path) -> None:
    ran: list[str] = []
    packs = [Toy(name, cost, ran.append) for name, cost in [("a", 1), ("b", 5), ("c", 3), ("d", 5), ("e", 9)]]
    run_packs(packs[4:], tmp_path, LocalEngine(CPU), quiet=True)
    unit_file(tmp_path, "c-0").write_text('{"kept": 1}')  # half of a pack: it runs whole
    ran.clear()
    ids = run_packs(packs, tmp_path, LocalEngine(CPU), quiet=True)
    assert ran == ["b", "d", "c", "a"]
    assert [row.get("unit") for row in campaign.rows_of(ids, tmp_path)] == [id if id != "c-0" else None for id in ids]
    assert not (tmp_path / "work").exists()


def test_a_pack_that_fails_is_named_and_does_not_stop_the_others(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        if name in ("b", "d"):
            raise ObservationError(f"{name} is damaged")

    packs = [Toy(name, 1.0, fail) for name in "abcd"]
    with pytest.raises(PackError) as failed:
        run_packs(packs, tmp_path, LocalEngine(CPU), quiet=True)
    assert str(failed.value) == (
        "2 of 4 packs failed: b-0 to b-1 (2 units): ObservationError: b is damaged; "
        f"d-0 to d-1 (2 units): ObservationError: d is damaged (tracebacks: {tmp_path / 'errors.txt'})"
    )
    traces = (tmp_path / "errors.txt").read_text()
    assert "b-0 to b-1" in traces and "ObservationError: d is damaged" in traces and Path(__file__).name in traces
    assert isinstance(failed.value.__cause__, ObservationError)
    assert [row["unit"] for row in campaign.rows_of(["a-0", "b-0", "c-1"], tmp_path)] == ["a-0", "c-1"]
    run_packs([Toy(name) for name in "abcd"], tmp_path, LocalEngine(CPU), quiet=True)
    assert len(list((tmp_path / "units").iterdir())) == 8
    assert not (tmp_path / "errors.txt").exists()


def test_an_error_of_the_users_own_code_names_its_place(tmp_path: Path) -> None:
    class Unpicklable(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("my bug")

    def fail(name: str) -> None:
        json.loads("{") if name == "a" else None
        raise Unpicklable(1, 2)

    with pytest.raises(PackError) as failed:
        run_packs([Toy("a", 1.0, fail), Toy("b", 1.0, fail)], tmp_path, LocalEngine(CPU), quiet=True)
    first = fail.__code__.co_firstlineno
    assert "JSONDecodeError: Expecting property name enclosed in double quotes" in str(failed.value)
    assert f" at {__file__}:{first + 1}; " in str(failed.value)
    assert f"my bug at {__file__}:{first + 2} (tracebacks" in str(failed.value)


def test_an_attack_that_returns_too_few_reconstructions_is_named(
    tmp_path: Path, tiny: Any, save_captures: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    [unit, *_] = [unit for unit in _stored(tiny, tmp_path, save_captures) if unit.attack == "random"]
    monkeypatch.setattr(RandomBaseline, "run_many", lambda *_: [])
    with pytest.raises(PackError, match="run_many of 'random' returned 0 of 1 reconstructions"):
        run_units([unit], tmp_path / "run", LocalEngine(CPU), quiet=True)


def test_a_damaged_capture_fails_the_packs_that_need_it(
    tmp_path: Path, tiny: Any, save_captures: Callable[..., list[Path]]
) -> None:
    units = [unit for unit in _stored(tiny, tmp_path, save_captures) if unit.attack == "random"]
    damaged = tmp_path / "captures" / "e000-s000000-r0" / "truth" / "truth.safetensors"
    assert damaged.is_file()
    damaged.write_bytes(b"damaged")
    with pytest.raises(PackError, match="is not a safetensors file"):
        run_units(units, tmp_path / "run", LocalEngine(CPU), quiet=True)
    assert not list((tmp_path / "run").rglob("*.part"))


def _stored(tiny: Any, folder: Path, save_captures: Callable[..., list[Path]]) -> list[Unit]:
    save_captures(folder / "captures")
    return stored_units(tiny(attacks=["random"]), folder / "captures")


def test_numbers_json_has_no_word_for_become_null() -> None:
    value = {"a": float("nan"), "b": [1.5, float("inf")], "c": (float("-inf"), "nan"), "d": {"e": 0}}
    assert to_json(value) == {"a": None, "b": [1.5, None], "c": [None, "nan"], "d": {"e": 0}}


def test_cells_without_truth_have_the_columns_of_those_with(several: AuditConfig) -> None:
    update, truth = _units(several)[0].observe()
    assert truth is not None
    found = ATTACKS.get("random")().run(update)
    cells = unscored(found)
    with_truth = scored(found, truth, TableEncoder.from_state(update.encoder, update.encoder_tensors))
    assert list(cells.columns) == ["row", "column", "true", "reconstructed", "correct", "entropy", "status", "digits"]
    assert list(with_truth.columns) == list(cells.columns)
    assert list(cells["row"]) == [0] * 4 + [1] * 4 + [2] * 4
    assert (cells["true"] == "").all() and (cells["correct"] == "").all()


def test_unknown_attack_in_a_plan_is_refused(several: AuditConfig) -> None:
    unit = Unit("x", "tabbleak", {}, lambda: pytest.fail("observed"), {"batch_size": 1}, 0)
    with pytest.raises(UsageError, match="did you mean 'tableak'"):
        plan_packs([unit], CPU)


def test_an_interrupt_at_the_end_of_a_pack_keeps_all_that_it_wrote(tmp_path: Path) -> None:
    """Weights of a network that was scored are no file of a unit; of half a pack only its units are kept."""
    whole, half = Toy("whole"), Toy("half")
    for pack in (whole, half):
        scratch = scratch_folder(pack, tmp_path)
        (scratch / "units").mkdir(parents=True)
        (scratch / "models").mkdir()
        (scratch / "models" / f"{pack.name}.bin").write_bytes(b"weights")
        unit_file(scratch, pack.ids[0]).write_text("{}")
    unit_file(scratch_folder(whole, tmp_path), whole.ids[1]).write_text("{}")
    keep_finished_units([whole, half], tmp_path)
    assert [file.name for file in (tmp_path / "models").iterdir()] == ["whole.bin"]
    assert sorted(file.stem for file in (tmp_path / "units").iterdir()) == ["half-0", "whole-0", "whole-1"]
