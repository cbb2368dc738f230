"""Packs on worker processes: the same rows whatever their number, and nothing lost when one of them dies."""

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from rich.console import Console

from lightleak.core.errors import UsageError
from lightleak.core.plugins import load_plugins
from lightleak.experiments import engine
from lightleak.experiments.campaign import PackError, run_packs
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import LocalEngine, open_engine, worker_devices
from lightleak.experiments.folder import HOLDER_FILE, LOCK_FILE, opened_folder
from lightleak.experiments.pack import Knowledge, Parcels, contents, run_in, unpack
from lightleak.experiments.run import run_audit
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.took import TOOK
from lightleak.targets import own

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


TOYS = Path(__file__).with_name("toy_packs.py")


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The packs of `toy_packs`, which worker processes load as a user's plugin."""
    monkeypatch.setenv("LIGHTLEAK_PLUGINS", str(TOYS))
    load_plugins()
    return sys.modules[TOYS.stem]


def facts(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: json.loads(file.read_text()) for file in (folder / "units").iterdir()}


def test_workers_run_packs_survive_a_death_and_name_the_pack_that_always_kills_them(tmp_path: Path, toys: Any) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file.txt").write_text("input")
    table = toys.Table(7)
    deadly = [
        toys.Worked("dies-once", table, tmp_path / "once"),
        toys.Worked("always-dies", table, tmp_path / "always"),
    ]
    packs = [*deadly, *(toys.Worked(f"p{i}", table) for i in range(4))]
    with LocalEngine(CPU, 2) as local:
        with pytest.raises(PackError, match=r"1 of 6 packs failed: always-dies: .* its worker process died 3 times"):
            run_packs(packs, tmp_path, local, quiet=True)
        found = facts(tmp_path)
        assert found.keys() == {"dies-once", "p0", "p1", "p2", "p3"}
        expected = {"rows": 7, "read": "input", "threads": 1, "told": None}
        assert all({**one, "pid": 0} == {**expected, "pid": 0} for one in found.values())
        assert os.getpid() not in {one["pid"] for one in found.values()}
        assert sorted(file.stem for file in (tmp_path / "notes").iterdir()) == sorted(found)
        # The same workers run what comes next; an iterator is asked for more only when one of them is free.
        asked: list[int] = []
        later = chain.from_iterable((asked.append(i), toys.Worked(f"q{i}"))[1:] for i in range(5))
        for count, finished in enumerate(local.run(later, tmp_path / "later"), 1):
            assert finished.error is None and len(asked) <= count + 2
        pids = {one["pid"] for one in found.values()}
    assert not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_a_worker_sends_is_one_piece(tmp_path: Path, toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is ended between two pieces of a result would have its driver wait for the second for ever."""
    futures: list[Any] = []
    submit = engine._Worker.submit

    def kept(*args: Any) -> Any:
        futures.append(submit(*args))
        return futures[-1]

    monkeypatch.setattr(engine._Worker, "submit", kept)
    with LocalEngine(CPU, 2) as local:
        run_packs([toys.Worked("a"), toys.Worked("b")], tmp_path, local, quiet=True)
    assert len(futures) == 2
    assert all(len(pickle.dumps(future.result())) < select.PIPE_BUF // 4 for future in futures)
    assert not any(future.result().exists() for future in futures)


def test_workers_have_the_environment_of_now(tmp_path: Path, toys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that they are forked from has that of its start."""
    for value in ("first", "second"):
        monkeypatch.setenv("TOLD", value)
        with LocalEngine(CPU, 2) as local:
            run_packs([toys.Worked("a"), toys.Worked("b")], tmp_path / value, local, quiet=True)
        assert {one["told"] for one in facts(tmp_path / value).values()} == {value}


def test_one_worker_is_this_process(tmp_path: Path, toys: Any) -> None:
    with LocalEngine(CPU, 1) as local:
        run_packs([toys.Worked("a"), toys.Worked("b")], tmp_path, local, quiet=True)
    assert {one["pid"] for one in facts(tmp_path).values()} == {os.getpid()}


def test_shared_objects_are_stored_once_and_loaded_once(toys: Any) -> None:
    stored: list[bytes] = []
    parcels, table = Parcels(lambda content: stored.append(content) or len(stored) - 1), toys.Table(3)
    packs = [unpack(*parcels.pack_up(toys.Worked(name, table)), stored.__getitem__) for name in "ab"]
    assert len(stored) == 1 and packs[0].table.rows == 3
    assert packs[0].table is packs[1].table


def test_a_pack_finds_what_it_had_written_and_returns_no_inputs(tmp_path: Path, toys: Any) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file.txt").write_text("input")
    pack = toys.Worked("a")
    for number, inputs in enumerate((pack.inputs(tmp_path), contents(pack.inputs(tmp_path)))):
        scratch = tmp_path / f"scratch-{number}"
        (scratch / "checkpoints").mkdir(parents=True)
        (scratch / "checkpoints" / "last").write_text("half")
        files, error = run_in(scratch, pack, inputs, CPU, lambda _: None)
        assert error is None and json.loads(files["units/a.json"])["read"] == "input"
        assert files.keys() == {"units/a.json", "notes/a.txt", "checkpoints/last"}


def test_a_worker_knows_plugins_and_networks_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin_of_engine_test.py"
    plugin.write_text(
        "import torch\n\ndef wide(layout, n_classes):\n    return torch.nn.Linear(layout.width, n_classes)\n"
    )
    monkeypatch.setenv("LIGHTLEAK_PLUGINS", "")  # what the test loads stays with it
    monkeypatch.setattr(own, "_KNOWN", {})
    Knowledge(("plugin_of_engine_test:wide",), str(plugin)).load()
    assert Knowledge() == Knowledge(("plugin_of_engine_test:wide",), str(plugin))


@pytest.mark.parametrize(
    ("workers", "cores", "quota", "expected"), [(0, 48, None, 48), (0, 48, 6.5, 7), (3, 1, None, 3)]
)
def test_a_cpu_takes_a_worker_per_core_that_the_container_allows(
    monkeypatch: pytest.MonkeyPatch, workers: int, cores: int, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(engine, "usable_cores", lambda: cores)
    monkeypatch.setattr(engine, "core_quota", lambda: quota)
    assert worker_devices(CPU, workers) == [CPU] * expected


@pytest.mark.parametrize(
    ("device", "workers", "expected"),
    [("cuda", 0, ["cuda:0", "cuda:1", "cuda:2"]), ("cuda", 2, ["cuda:0", "cuda:1"]), ("cuda:1", 9, ["cuda:1"])],
)
def test_a_gpu_takes_one_worker(
    monkeypatch: pytest.MonkeyPatch, device: str, workers: int, expected: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert [str(one) for one in worker_devices(torch.device(device), workers)] == expected


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"--engine ray needs Ray: pip install .*\.\[cluster\]"):
        open_engine(RunConfig(engine="ray"))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key not in TOOK} for row in rows]


def reconstructions(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "reconstructions").iterdir()}


@pytest.fixture(scope="module")
def audit(tiny: Any) -> AuditConfig:
    """Sixteen units in eight packs, and two on captures of a training."""
    return tiny(
        training__epochs=1,
        capture__epochs=[0],
        initial__batch_sizes=[2, 3, 5, 6],
        initial__batches=2,
        attacks={"tableak": {"steps": 150, "restarts": 2}, "random": {}},
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, audit: AuditConfig, silent: Console) -> Path:
    folder = tmp_path_factory.mktemp("one worker") / "run"
    run_audit(audit, folder, console=silent)
    return folder


@pytest.mark.parametrize("workers", [2, 3])
def test_results_do_not_depend_on_the_number_of_workers(
    tmp_path: Path, tiny: Any, audit: AuditConfig, alone: Path, silent: Console, workers: int
) -> None:
    run_audit(tiny(**{**audit.to_dict(), "workers": workers}), tmp_path / "run", console=silent)
    assert rows_of(tmp_path / "run") == rows_of(alone)
    assert reconstructions(tmp_path / "run") == reconstructions(alone)


def start(folder: Path, config: AuditConfig, **changed: Any) -> "subprocess.Popen[str]":
    """An audit as a command of its own."""
    file = folder.with_suffix(".json")
    file.write_text(json.dumps({**config.to_dict(), **changed}))
    words = [sys.executable, "-m", "lightleak", "audit", str(file), "--output", str(folder)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True)


def wait_for_units(folder: Path, number: int) -> None:
    until = time.monotonic() + 120
    while len(list(folder.glob("units/*.json"))) < number:
        assert time.monotonic() < until, "no unit is done"
        time.sleep(0.02)


def processes_of(session: int) -> list[int]:
    """Living processes of a session, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.slow
def test_a_killed_driver_is_resumed_and_its_workers_are_gone(
    tmp_path: Path, audit: AuditConfig, alone: Path, silent: Console
) -> None:
    folder = tmp_path / "run"
    command = start(folder, audit, workers=2)
    wait_for_units(folder, 2)
    with pytest.raises(UsageError, match=rf"is in use by process {command.pid} on .* since 20"):
        run_audit(audit, folder, console=silent)
    command.kill()
    command.communicate()
    until = time.monotonic() + 20
    while processes_of(command.pid):
        assert time.monotonic() < until, "workers live on"
        time.sleep(0.1)
    kept = {file.name: file.read_bytes() for file in (folder / "units").iterdir()}
    assert len(kept) < len(rows_of(alone)), "it was killed too late"
    run_audit(audit, folder, console=silent)  # with one worker: where a run works may change
    assert rows_of(folder) == rows_of(alone)
    assert all((folder / "units" / name).read_bytes() == content for name, content in kept.items())
    assert not (folder / "work").exists()


@pytest.mark.parametrize("driver_lives", [False, True])
def test_the_folder_of_a_worker_that_outlives_its_driver_is_waited_for(tmp_path: Path, driver_lives: bool) -> None:
    folder, said = tmp_path / "run", tmp_path / "run" / "config.yaml"
    folder.mkdir()
    said.touch()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock = FileLock(folder / LOCK_FILE, thread_local=False)
    lock.acquire()
    who = {"host": socket.gethostname(), "pid": os.getpid(), "driver": os.getppid() if driver_lives else ended.pid}
    (folder / HOLDER_FILE).write_text(json.dumps({**who, "since": "2020"}))
    ending = threading.Timer(0.3, lock.release)
    ending.start()
    try:
        with (
            pytest.raises(UsageError, match=f"is in use by process {os.getpid()}") if driver_lives else nullcontext(),
            opened_folder(folder, said, "run", lambda: None),
        ):
            assert not driver_lives
    finally:
        ending.join()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked from a server")
def test_ctrl_c_while_the_server_of_the_workers_imports_leaves_no_traceback() -> None:
    script = """
import os, signal, threading
from lightleak.experiments.engine import torch, _context
threading.Timer(0.2, os.killpg, (os.getpid(), signal.SIGINT)).start()
try:
    _context(torch.device("cpu"))
except KeyboardInterrupt:
    print("interrupted")
"""
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (found.stdout, found.stderr) == ("interrupted\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_ctrl_c_stops_the_workers_within_seconds(
    tmp_path: Path, audit: AuditConfig, sent: int, code: int, word: str
) -> None:
    folder = tmp_path / "run"
    slow = {"tableak": {"steps": 100_000, "restarts": 2}, "random": {}}
    command = start(folder, audit, workers=2, attacks=slow)
    until = time.monotonic() + 120
    while len(list(folder.glob("work/*/units"))) < 2:
        assert time.monotonic() < until, "no pack has begun"
        time.sleep(0.05)
    if sent == signal.SIGINT:
        os.killpg(command.pid, sent)
    else:
        command.send_signal(sent)
    began = time.monotonic()
    _, said = command.communicate(timeout=60)
    assert command.returncode == code and word in said and "Traceback" not in said
    assert time.monotonic() - began < 15
    while processes_of(command.pid) and time.monotonic() - began < 15:
        time.sleep(0.05)
    assert not processes_of(command.pid)
    assert (folder / "report.html").is_file() and not (folder / ".in-use.json").exists()
