"""Claims among threads and real processes: never two holders, and the dead do not hold."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core import claims as module
from lightleak.core.claims import LONGEST_POLL_SECONDS, POLL_SECONDS, Claims, Holder, pauses, this_machine

SOON = 0.3
"""A claim without a sign of life is abandoned after so many seconds here."""

COUNT = """
import os, signal, sys
from pathlib import Path
from lightleak.core.claims import Claims
folder, rounds, dies_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
claims, number = Claims(folder / "claims"), folder / "number"
for i in range(rounds):
    with claims.wait_for("count"):
        value = int(number.read_text())
        if i == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        number.write_text(str(value + 1))
"""
HOLD = """
import sys, time
from pathlib import Path
from lightleak.core.claims import Claims
with Claims(Path(sys.argv[1])).hold("x") as ours:
    print(ours, flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the claim ``x``."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass
class Clock:
    """What processes measure waiting with, set by hand."""

    now: float = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    set_by_hand = Clock()
    monkeypatch.setattr(module.time, "monotonic", lambda: set_by_hand.now)
    return set_by_hand


def dead_process() -> int:
    """Id of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def left_behind(folder: Path, holder: Holder, name: str = "x") -> Path:
    """The file of a claim whose holder did not release it."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.claim"
    file.write_text(json.dumps(vars(holder)))
    return file


def in_threads(works: list[Callable[[], object]]) -> None:
    failed: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed


def test_a_claim_is_held_by_one_and_released(tmp_path: Path) -> None:
    one, other = Claims(tmp_path / "claims"), Claims(tmp_path / "claims")
    with one.hold("x") as ours:
        assert ours and other.is_held("x")
        holder = other.holder("x")
        assert holder is not None and (holder.pid, holder.machine) == (os.getpid(), this_machine())
        with other.hold("x") as theirs, other.hold("y") as elsewhere:
            assert not theirs and elsewhere
        assert one.is_held("x")  # who did not get it does not release it
    assert not one.is_held("x") and one.holder("x") is None
    assert not list((tmp_path / "claims").iterdir())


def test_a_machine_that_was_started_again_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for text in ("first\n", "second\n", None):
        file = tmp_path / str(text)
        if text is not None:
            file.write_text(text)
        monkeypatch.setattr(module, "BOOT_ID", file)
        names.append(this_machine())
        assert Holder(pid=dead_process()).is_dead
    assert len(set(names)) == 3 and names[0].endswith(" first") and names[0].startswith(names[2])
    assert not Holder(machine=names[0], pid=dead_process()).is_dead


def test_a_claim_is_released_where_its_block_fails(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with pytest.raises(KeyError), claims.wait_for("x"):
        raise KeyError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dead", [0, 1, 3])
def test_never_two_threads_hold_it_even_where_all_want_the_claim_of_the_dead(tmp_path: Path, dead: int) -> None:
    pid, inside, most = dead_process(), 0, 0
    tokens = [f"dead{i}" for i in range(dead)]
    for i, token in enumerate(tokens):
        left_behind(tmp_path, Holder(pid=pid, token=token), "x" if i == 0 else f"x.{tokens[i - 1]}")
    lock, barrier = threading.Lock(), threading.Barrier(8)

    def work() -> None:
        nonlocal inside, most
        claims = Claims(tmp_path)
        barrier.wait()
        for _ in range(12):
            with claims.hold("x") as ours:
                if ours:
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    time.sleep(0.001)
                    with lock:
                        inside -= 1

    in_threads([work] * 8)
    assert most == 1
    assert not list(tmp_path.iterdir())


def test_processes_count_without_a_mistake_though_some_are_killed_at_it(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    ends = [-1, -1, 3, 7]
    started = [
        subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path), "25", str(end)], stderr=subprocess.PIPE)
        for end in ends
    ]
    codes = [(process.communicate(timeout=60), process.returncode)[1] for process in started]
    assert codes == [0, 0, -signal.SIGKILL, -signal.SIGKILL]
    assert int((tmp_path / "number").read_text()) == 25 + 25 + 3 + 7


def test_the_claim_of_a_killed_process_is_free_at_once_also_while_its_parent_has_not_asked(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with another_process(tmp_path) as process:
        assert claims.is_held("x")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table of processes
        assert not claims.is_held("x")
        with claims.hold("x") as ours:
            assert ours
        assert not list(tmp_path.iterdir())


def test_an_heir_who_comes_late_takes_nothing_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it makes its file, another heir takes over and releases, and a third process makes the claim anew."""
    left_behind(tmp_path, Holder(pid=dead_process()))
    late, other, plain = Claims(tmp_path), Claims(tmp_path), os.open
    held = []

    def slow(path: Path, *rest: int) -> int:
        monkeypatch.setattr(os, "open", plain)
        with other.hold("x") as ours:
            assert ours
        third = other.hold("x")
        assert third.__enter__()
        held.append(third)
        return plain(path, *rest)

    monkeypatch.setattr(os, "open", slow)
    with late.hold("x") as ours:
        assert not ours
    assert other.is_held("x")
    held[0].__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


def test_a_holder_who_is_slow_but_beats_keeps_its_claim(tmp_path: Path, clock: Clock) -> None:
    other = Claims(tmp_path, stale_after=SOON)
    with Claims(tmp_path, stale_after=SOON).hold("x"):
        file = tmp_path / "x.claim"
        for _ in range(4):
            assert other.is_held("x")
            before, deadline = file.stat().st_mtime_ns, time.perf_counter() + 60
            while file.stat().st_mtime_ns == before and time.perf_counter() < deadline:
                time.sleep(SOON / 30)
            clock.now += 3 * SOON
            with other.hold("x") as ours:
                assert not ours


def test_a_holder_of_another_machine_is_believed_until_it_shows_no_life(tmp_path: Path) -> None:
    file = left_behind(tmp_path, Holder(machine="elsewhere", pid=dead_process()))
    claims = Claims(tmp_path, stale_after=SOON)
    until = time.monotonic() + 3 * SOON
    while time.monotonic() < until:  # it beats
        os.utime(file)
        with claims.hold("x") as ours:
            assert not ours
        time.sleep(SOON / 5)
    deadline = time.monotonic() + 60
    with claims.wait_for("x"):
        assert time.monotonic() < deadline
        holder = claims.holder("x")
        assert holder is not None and holder.machine == this_machine()
    assert not list(tmp_path.iterdir())


@given(clock=st.sampled_from([-1e9, -3600.0, 0.0, 3600.0, 1e9]), step=st.sampled_from([-5.0, 5.0]))
def test_clocks_that_differ_neither_kill_nor_keep(
    tmp_path_factory: pytest.TempPathFactory, clock: float, step: float
) -> None:
    """Times of files come from another clock than ours; that one may even be set back."""
    folder = tmp_path_factory.mktemp("claims")
    file, now = left_behind(folder, Holder(machine="elsewhere")), 100.0
    claims = Claims(folder, stale_after=60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "monotonic", lambda: now)
        for beat in range(5):
            sign = max(1.0, time.time() + clock + beat * step)
            os.utime(file, (sign, sign))
            assert claims.is_held("x")
            now += 59.0
            assert claims.is_held("x")
        now += 2.0
        assert not claims.is_held("x")


def test_a_slow_holder_who_was_replaced_leaves_the_new_one_alone(tmp_path: Path) -> None:
    slow, other = Claims(tmp_path, stale_after=1e9), Claims(tmp_path, stale_after=0.0)
    with slow.hold("x"):
        assert other.is_held("x")
        time.sleep(0.01)  # longer than no time at all
        replaced = other.hold("x")
        assert replaced.__enter__()
    with Claims(tmp_path).hold("x") as ours:
        assert not ours
    replaced.__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", '{"machine": "her'])
def test_a_claim_that_is_still_being_written_is_held_until_it_is_stale(tmp_path: Path, clock: Clock, text: str) -> None:
    (tmp_path / "x.claim").write_text(text)
    claims = Claims(tmp_path, stale_after=SOON)
    assert claims.is_held("x") and claims.holder("x") is None
    clock.now += 0.9 * SOON
    with claims.hold("x") as ours:
        assert not ours
    clock.now += 0.2 * SOON
    with claims.hold("x") as ours:
        assert ours
        assert Claims(tmp_path).is_held("x")
    assert not list(tmp_path.iterdir())


def test_work_is_done_once_however_many_come(tmp_path: Path) -> None:
    done, times = tmp_path / "done", []

    def work() -> None:
        times.append(1)
        time.sleep(0.05)
        done.touch()

    in_threads([lambda: Claims(tmp_path / "claims").once("work", done.is_file, work)] * 6)
    assert times == [1]


def test_work_whose_process_dies_is_done_by_one_that_waited(tmp_path: Path) -> None:
    done, times = tmp_path / "done", []

    def work() -> None:
        times.append(1)
        done.touch()

    with another_process(tmp_path / "claims") as process:
        waits = threading.Thread(target=Claims(tmp_path / "claims").once, args=("x", done.is_file, work))
        waits.start()
        time.sleep(0.2)
        assert not times
        process.kill()
        waits.join(60)
    assert times == [1]


def test_work_that_fails_fails_where_it_was_done_and_is_tried_by_the_next(tmp_path: Path) -> None:
    done, tries = tmp_path / "done", []

    def work() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("first")
        done.touch()

    claims = Claims(tmp_path / "claims")
    with pytest.raises(KeyError, match="first"):
        claims.once("work", done.is_file, work)
    claims.once("work", done.is_file, work)
    claims.once("work", done.is_file, work)
    assert len(tries) == 2


def test_waiting_looks_less_and_less_often_within_bounds() -> None:
    looks = [pause for pause, _ in zip(pauses(), range(200), strict=False)]
    assert looks == sorted(looks)
    assert looks[0] == POLL_SECONDS and looks[-1] == LONGEST_POLL_SECONDS
