"""Results depend on a unit and its seed alone: not on packs or what else is attacked (ranks and
workers: test_campaign_ranks.py)."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.core.claims import Claims
from lightleak.core.errors import LightLeakError, ObservationError, UsageError
from lightleak.data.encoder import TableEncoder
from lightleak.experiments import campaign, packing
from lightleak.experiments.campaign import finished_rows, run_lane, run_units
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.kind import stored_units
from lightleak.experiments.kinds.updates.plan import audit_units, plan_units
from lightleak.experiments.packing import plan_packs
from lightleak.experiments.run import run_audit
from lightleak.experiments.unit import Unit, run_pack, scored, unit_file, unscored, without_nan

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


def in_threads(
    work: Callable[..., None],
    arguments: Sequence[tuple[Any, ...]],
    told: Callable[[int, Any], None],
    ended: Callable[[int, int], None],
    idle: Callable[[], None],
) -> list[int]:
    """Stands in for worker processes, which take seconds to start; test_campaign_ranks.py runs real ones."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        jobs = [pool.submit(work, *given, partial(told, i)) for i, given in enumerate(arguments)]
    for job in jobs:
        job.result()
    return [0 for _ in jobs]


def test_workers_share_the_packs_and_tell_their_progress(
    tmp_path: Path, several: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    @contextmanager
    def bar(noun: str, total: float, quiet: bool, units: int, done: int) -> Iterator[Any]:
        assert (noun, units, done) == ("attacks", 12, 0)
        report = Mock(side_effect=told.append)
        yield report
        assert report.finished.call_args == call(12)
        assert sum(told) == pytest.approx(total)

    monkeypatch.setattr(campaign, "run_in_processes", in_threads)
    monkeypatch.setattr(campaign, "progress_bar", bar)
    monkeypatch.setattr(campaign, "run_pack", told_pack)
    rows = run_units(partial(_units, several), tmp_path, CPU, workers=2)
    assert [row["unit"] for row in rows] == [unit.id for unit in _units(several)]


def told_pack(pack: list[Unit], folder: Path, device: torch.device, kept: Any, report: Callable[[float], None]) -> None:
    for unit in pack:
        report(unit.cost)
        unit_file(folder, unit.id).write_text(json.dumps({"unit": unit.id}))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pack_that_fails_stops_the_run_with_its_error(
    tmp_path: Path,
    tiny: Any,
    save_captures: Callable[..., list[Path]],
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged, _ = save_captures(tmp_path / "captures")
    (damaged / "truth" / "truth.safetensors").write_bytes(b"damaged")
    plan = partial(stored_units, tiny(attacks=["random"]), tmp_path / "captures")
    monkeypatch.setattr(campaign, "run_in_processes", in_threads)
    with pytest.raises(ObservationError, match="is not a safetensors file"):
        run_units(plan, tmp_path / "run", CPU, workers=workers, quiet=True)
    assert not list((tmp_path / "run").rglob("*.part"))
    assert not list((tmp_path / "run" / "claims").iterdir())


def test_workers_that_are_all_ended_end_the_run_with_an_error(
    tmp_path: Path, several: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "run_in_processes", lambda *_: [-9, -9])
    with pytest.raises(LightLeakError, match="every worker of this process was ended; 4 packs are not done"):
        run_units(partial(_units, several), tmp_path, CPU, workers=2, quiet=True)


@dataclass
class Toy:
    """A pack of two units that writes down who ran it."""

    name: str
    cost: float = 1.0
    act: Callable[[], object] = lambda: None

    @property
    def ids(self) -> Sequence[str]:
        return [f"{self.name}-0", f"{self.name}-1"]

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        self.act()
        report(self.cost)
        for id in self.ids:
            unit_file(folder, id).write_text("{}")


@dataclass
class Ran:
    """Names of packs in the order in which they were begun."""

    names: list[str]

    def pack(self, name: str, cost: float = 1.0, act: Callable[[], object] = lambda: None) -> Toy:
        return Toy(name, cost, lambda: (self.names.append(name), act()))


@pytest.fixture
def ran(tmp_path: Path) -> Ran:
    (tmp_path / "units").mkdir()
    return Ran([])


def run_toys(packs: Sequence[Toy], folder: Path, told: Callable[[int, float], None] = lambda *_: None) -> None:
    run_lane(packs, folder, CPU, told)


def test_the_costliest_pack_comes_first_and_what_is_done_not_at_all(tmp_path: Path, ran: Ran) -> None:
    packs = [ran.pack(name, cost) for name, cost in [("a", 1), ("b", 5), ("c", 3), ("d", 5), ("e", 9)]]
    packs[4].run(tmp_path, CPU, lambda _: None)
    unit_file(tmp_path, "c-0").write_text("{}")  # half of a pack: it runs whole
    ran.names.clear()
    told: list[tuple[int, float]] = []
    run_toys(packs, tmp_path, lambda *told_of: told.append(told_of))
    assert ran.names == ["b", "d", "c", "a"]
    assert told == [(1, 5), (3, 5), (2, 3), (0, 1)]


def test_lanes_run_every_pack_once_and_all_return_when_all_are_done(tmp_path: Path, ran: Ran) -> None:
    packs = [ran.pack(f"p{i}", i % 7, lambda: time.sleep(0.002)) for i in range(60)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(run_toys, packs, tmp_path) for _ in range(4)]
        for job in as_completed(jobs):
            job.result()
            assert len(list((tmp_path / "units").iterdir())) == 120
    assert sorted(ran.names) == sorted(pack.name for pack in packs)
    assert not list((tmp_path / "claims").iterdir())


def test_a_lane_waits_for_a_pack_of_another_and_takes_it_over_when_that_one_dies(tmp_path: Path, ran: Ran) -> None:
    packs = [ran.pack("mine"), ran.pack("other", 2)]
    claims = Claims(tmp_path / "claims")
    with ThreadPoolExecutor(1) as pool, claims.hold("pack-other-0"):
        job = pool.submit(run_toys, packs, tmp_path)
        while not unit_file(tmp_path, "mine-1").is_file():
            time.sleep(0.01)
        file = tmp_path / "claims" / "pack-other-0.claim"
        time.sleep(0.3)
        assert not job.done() and ran.names == ["mine"]
        held = json.loads(file.read_text())
        file.write_text(json.dumps({**held, "pid": _dead_process()}))
        job.result(60)
    assert ran.names == ["mine", "other"]


def _dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_lane_does_not_wait_for_a_holder_whose_pack_is_done(tmp_path: Path, ran: Ran) -> None:
    packs = [ran.pack("mine"), ran.pack("other", 2)]
    with Claims(tmp_path / "claims").hold("pack-other-0"):
        packs[1].run(tmp_path, CPU, lambda _: None)
        run_toys(packs, tmp_path)
    assert ran.names == ["other", "mine"]


def test_a_pack_that_is_finished_before_its_claim_is_had_does_not_run_again(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, plain = ran.pack("a"), Claims.hold

    def late(self: Claims, name: str) -> Any:
        pack.run(tmp_path, CPU, lambda _: None)  # by another process, which has released it since
        return plain(self, name)

    monkeypatch.setattr(Claims, "hold", late)
    run_toys([pack], tmp_path)
    assert ran.names == ["a"]


def test_under_its_claim_a_listing_decides_whether_a_pack_is_done(
    tmp_path: Path, ran: Ran, several: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may go on saying that a file is missing; what is listed is there."""
    done = ran.pack("a")
    done.run(tmp_path, CPU, lambda _: None)
    units = audit_units(several, tmp_path)[-2:]
    unit_file(tmp_path, units[0].id).write_text('{"kept": 1}')
    ran.names.clear()
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    run_toys([done], tmp_path)
    assert ran.names == []
    run_pack(units, tmp_path, CPU, "nothing", lambda _: None)
    kept, written = finished_rows(units, tmp_path)
    assert kept == {"kept": 1} and written["unit"] == units[1].id


def test_a_lane_that_waits_looks_at_what_others_finish(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, looks, waits = ran.pack("other"), [], iter(range(3))
    monkeypatch.setattr(campaign.time, "sleep", lambda _: next(waits))  # a fourth is an error

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            pack.run(tmp_path, CPU, lambda _: None)

    with Claims(tmp_path / "claims").hold("pack-other-0"):
        run_lane([pack], tmp_path, CPU, lambda *_: None, look)
    assert len(looks) == 3


def test_what_fails_in_one_lane_another_tries_when_all_else_is_done(tmp_path: Path, ran: Ran) -> None:
    failed: list[str] = []

    def fail() -> None:
        if not failed:
            failed.append(threading.current_thread().name)
            raise MemoryError("full")

    packs = [ran.pack("heavy", 9, fail), *(ran.pack(f"p{i}") for i in range(5))]
    with pytest.raises(MemoryError, match="full"):
        run_toys(packs, tmp_path)
    assert ran.names == ["heavy"]  # it stops at once
    ran.names.clear()

    failed.clear()
    begun = threading.Event()
    packs[0].act = lambda: (ran.names.append("heavy"), begun.set(), time.sleep(0.05), fail())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_toys, packs, tmp_path)
        begun.wait(60)
        second = pool.submit(run_toys, packs, tmp_path)
        assert isinstance(first.exception(60), MemoryError)
        assert second.exception(60) is None
    assert ran.names == ["heavy", "p0", "p1", "p2", "p3", "p4", "heavy"]


def test_what_fails_everywhere_fails_in_every_lane_and_keeps_nobody_waiting(tmp_path: Path, ran: Ran) -> None:
    def fail() -> None:
        raise ObservationError("damaged")

    packs = [ran.pack("bad", 9, fail), *(ran.pack(f"p{i}") for i in range(5))]
    with ThreadPoolExecutor(3) as pool:
        errors = [job.exception(60) for job in [pool.submit(run_toys, packs, tmp_path) for _ in range(3)]]
    assert all(isinstance(error, ObservationError) for error in errors)
    assert ran.names.count("bad") == 3


def test_looks_grow_with_packs_and_not_with_packs_times_claims(
    tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, holds, looks = 300, [0], [0]
    plain_hold, plain_done = Claims.hold, campaign._is_done

    def counted_hold(self: Claims, name: str) -> Any:
        holds[0] += 1
        return plain_hold(self, name)

    def counted_done(*arguments: Any) -> bool:
        looks[0] += 1
        return plain_done(*arguments)

    monkeypatch.setattr(Claims, "hold", counted_hold)
    monkeypatch.setattr(campaign, "_is_done", counted_done)
    packs = [ran.pack(f"p{i}", i) for i in range(number)]
    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(run_toys, packs, tmp_path) for _ in range(3)]:
            job.result(60)
    assert len(ran.names) == number
    # Three lanes look at every pack once, a second time where they hold it, and at a few more while they wait.
    assert looks[0] < 6 * number and holds[0] < 4 * number


def test_a_lane_speaks_for_itself_to_lightning_and_the_rank_is_as_before(tmp_path: Path, ran: Ran) -> None:
    ranks: list[int] = []
    before = rank_zero_only.rank
    rank_zero_only.rank = 3
    try:
        run_toys([ran.pack("a", 1, lambda: ranks.append(rank_zero_only.rank))], tmp_path)
        assert ranks == [0] and rank_zero_only.rank == 3
    finally:
        rank_zero_only.rank = before


def test_numbers_json_has_no_word_for_become_null() -> None:
    value = {"a": float("nan"), "b": [1.5, float("inf")], "c": (float("-inf"), "nan"), "d": {"e": 0}}
    assert without_nan(value) == {"a": None, "b": [1.5, None], "c": [None, "nan"], "d": {"e": 0}}


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


def test_plan_of_a_worker_is_the_plan(several: AuditConfig, tmp_path: Path) -> None:
    units, again = _units(several), audit_units(several, tmp_path)
    assert [(u.id, u.facts, u.seed, u.options) for u in units] == [(u.id, u.facts, u.seed, u.options) for u in again]
    assert len({unit.id for unit in units}) == len(units)


def test_unknown_attack_in_a_plan_is_refused(several: AuditConfig) -> None:
    unit = Unit("x", "tabbleak", {}, lambda: pytest.fail("observed"), {"batch_size": 1}, 0)
    with pytest.raises(UsageError, match="did you mean 'tableak'"):
        plan_packs([unit], CPU)
