"""Results depend on a unit and its seed alone: not on packs or what else is attacked (workers: tests/e2e)."""

import json
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.audit import campaign, packing
from lightleak.audit.campaign import finished_rows, run_units
from lightleak.audit.config import AuditConfig
from lightleak.audit.experiment import prepare_experiment
from lightleak.audit.offline import captured_units
from lightleak.audit.packing import plan_packs
from lightleak.audit.run import audit_units, plan_units, run_audit
from lightleak.audit.unit import Unit, run_pack, unit_file, unscored, without_nan
from lightleak.core.errors import ObservationError, UsageError

CPU = torch.device("cpu")


def rows_of(folder: Path, attack: str) -> list[dict[str, Any]]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows if row["attack"] == attack]


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
    monkeypatch.setitem(packing.ROWS_PER_PACK, "cpu", 1)
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
    monkeypatch.setitem(packing.ROWS_PER_PACK, "cpu", rows)
    units = [unit for unit in _units(several) if unit.attack == "tableak" and unit.facts["batch_size"] == 3]
    assert [len(pack) for pack in plan_packs(units, CPU)] == sizes


def test_attacks_run_on_one_thread_whatever_was_set_before(
    tmp_path: Path, several: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    monkeypatch.setattr(campaign, "run_pack", lambda *_: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_units(partial(_units, several), tmp_path, CPU)
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


class InThreads(ThreadPoolExecutor):
    """Stands in for worker processes, which take seconds to start; tests/e2e runs real ones."""

    def __init__(self, workers: int, context: Any, start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        super().__init__(workers, initializer=start, initargs=arguments)


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "ProcessPoolExecutor", InThreads)
    monkeypatch.setattr(campaign.multiprocessing, "get_context", lambda _: SimpleNamespace(Queue=queue.SimpleQueue))
    monkeypatch.setattr(campaign.signal, "signal", lambda *_: None)
    monkeypatch.setattr(campaign, "_worker", {})


@pytest.mark.usefixtures("in_threads")
def test_workers_share_the_packs_and_tell_their_progress(
    tmp_path: Path, several: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    @contextmanager
    def bar(title: str, total: float, quiet: bool) -> Iterator[Callable[[float], None]]:
        yield told.append
        assert sum(told) == pytest.approx(total)

    monkeypatch.setattr(campaign, "progress_bar", bar)
    monkeypatch.setattr(campaign, "run_pack", told_pack)
    rows = run_units(partial(_units, several), tmp_path, CPU, workers=2)
    assert [row["unit"] for row in rows] == [unit.id for unit in _units(several)]


def told_pack(pack: list[Unit], folder: Path, device: torch.device, kept: Any, report: Callable[[float], None]) -> None:
    for unit in pack:
        report(unit.cost)
        unit_file(folder, unit.id).write_text(json.dumps({"unit": unit.id}))


@pytest.mark.usefixtures("in_threads")
def test_a_worker_that_fails_stops_the_run_with_its_error(
    tmp_path: Path, tiny: Any, save_captures: Callable[..., list[Path]]
) -> None:
    damaged, _ = save_captures(tmp_path / "captures")
    (damaged / "truth" / "truth.safetensors").write_bytes(b"damaged")
    plan = partial(captured_units, tiny(attacks=["random"]), tmp_path / "captures")
    with pytest.raises(ObservationError, match="is not a safetensors file"):
        run_units(plan, tmp_path / "run", CPU, workers=2, quiet=True)
    assert not list((tmp_path / "run").rglob("*.part"))


def test_numbers_json_has_no_word_for_become_null() -> None:
    value = {"a": float("nan"), "b": [1.5, float("inf")], "c": (float("-inf"), "nan"), "d": {"e": 0}}
    assert without_nan(value) == {"a": None, "b": [1.5, None], "c": [None, "nan"], "d": {"e": 0}}


def test_cells_without_truth_have_the_columns_of_those_with(several: AuditConfig) -> None:
    update, _ = _units(several)[0].observe()
    cells = unscored(ATTACKS.get("random")().run(update))
    assert list(cells.columns) == ["row", "column", "true", "reconstructed", "correct", "entropy"]
    assert list(cells["row"]) == [0] * 4 + [1] * 4 + [2] * 4
    assert (cells["true"] == "").all() and (cells["correct"] == "").all()


def test_plan_of_a_worker_is_the_plan(several: AuditConfig, tmp_path: Path) -> None:
    units, again = _units(several), audit_units(several, tmp_path)
    assert [(u.id, u.facts, u.seed, u.options) for u in units] == [(u.id, u.facts, u.seed, u.options) for u in again]
    assert len({unit.id for unit in units}) == len(units)


def test_unknown_attack_in_a_plan_is_refused(several: AuditConfig) -> None:
    unit = Unit("x", "tabbleak", {}, lambda: pytest.fail("observed"), {"batch_size": 1}, 0)
    with pytest.raises(UsageError, match="did you mean 'tableak'"):
        plan_packs([unit], CPU)
