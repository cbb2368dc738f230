"""Packs on a Ray cluster of two nodes, all on this machine: the rows of one process, although a node dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster
from rich.console import Console
from safetensors.torch import load_file

from lightleak.core.errors import UsageError
from lightleak.core.plugins import load_plugins
from lightleak.experiments.campaign import PackError, run_packs
from lightleak.experiments.engine import Engine, open_engine
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.pack import Finished, Pack
from lightleak.experiments.ray_training import train_on_ray
from lightleak.experiments.run import run_audit
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.took import TOOK

pytestmark = pytest.mark.slow

TOYS = Path(__file__).with_name("toy_packs.py")
HERE = Path(__file__).with_name("audit_here.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node and another one, a core each."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes
    nodes.shutdown()


def test_data_travel_and_a_pack_that_fails_is_named(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTLEAK_PLUGINS", str(TOYS))
    load_plugins()
    toys = sys.modules[TOYS.stem]
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "file.txt").write_text("input")
    table, handler = toys.Table(7), signal.getsignal(signal.SIGTERM)
    packs = [toys.Worked(f"p{i}", table) for i in range(3)]
    with open_engine(RunConfig(engine="ray", device="cpu", ray_address=cluster.address)) as engine:
        assert engine.slots == 2
        with pytest.raises(PackError, match="1 of 4 packs failed: bad: ValueError: damaged"):
            run_packs([*packs, toys.Fails("bad")], tmp_path, engine, quiet=True)
    for pack in packs:
        facts = json.loads((tmp_path / "units" / f"{pack.name}.json").read_text())
        assert facts["rows"] == 7 and facts["read"] == "input" and facts["threads"] == 1
        assert facts["pid"] != os.getpid()
        assert (tmp_path / "notes" / f"{pack.name}.txt").is_file()
    assert signal.getsignal(signal.SIGTERM) is handler  # Ray's own would hide how a command ended


def test_a_training_of_two_processes_on_ray_leaves_what_one_on_this_machine_does(
    tmp_path: Path, cluster: Cluster, tiny: Any, silent: Console, leave_results: Any
) -> None:
    settings = {"training__epochs": 2, "capture__epochs": [0, 1], "training__trainer": {"devices": 2}}
    settings |= {"attacks": {"random": {}}, "device": "cpu"}
    (tmp_path / "config.json").write_text(json.dumps(tiny(**settings).to_dict()))
    leave_results(HERE, tmp_path)
    run_audit(tiny(engine="ray", ray_address=cluster.address, **settings), tmp_path / "ray", console=silent)
    assert read_training(tmp_path / "ray") == read_training(tmp_path / "here")
    assert {row["unit"][-2:] for row in rows_of(tmp_path / "ray")} >= {"r0", "r1"}


def read_training(folder: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Scores of the training, the rows, and the captured updates."""
    captures = {
        f"{file.relative_to(folder)} {name}": value.tolist()
        for file in folder.glob("captures/*/*/*.safetensors")
        for name, value in load_file(file).items()
    }
    assert captures
    return json.loads((folder / "training.json").read_text()), rows_of(folder), captures


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    """Settings of an audit of sixteen units in eight packs."""
    return {
        "initial__batch_sizes": [2, 3, 5, 6],
        "initial__batches": 2,
        "attacks": {"tableak": {"steps": 200, "restarts": 2}, "random": {}},
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny: Any, audit: dict[str, Any], silent: Console) -> Path:
    """The folder of that audit by one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    run_audit(tiny(**audit), folder, console=silent)
    return folder


def wait_for_units(folder: Path, number: int) -> None:
    until = time.monotonic() + 400  # a busy machine starts Ray in minutes
    while len(list(folder.glob("units/*.json"))) < number and time.monotonic() < until:
        time.sleep(0.02)


def test_a_killed_command_is_resumed(
    tmp_path: Path, cluster: Cluster, tiny: Any, audit: dict[str, Any], alone: Path, silent: Console
) -> None:
    config = tiny(engine="ray", ray_address=cluster.address, **audit)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    words = ["audit", str(tmp_path / "config.json"), "--output", str(tmp_path / "run")]
    command = subprocess.Popen(
        [sys.executable, "-m", "lightleak", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    wait_for_units(tmp_path / "run", 2)
    command.kill()
    command.wait()
    kept = {file: file.read_bytes() for file in (tmp_path / "run" / "units").iterdir()}
    assert 2 <= len(kept) < len(rows_of(alone)), "it was killed too late"
    run_audit(config, tmp_path / "run", console=silent)
    assert rows_of(tmp_path / "run") == rows_of(alone)
    assert all(file.read_bytes() == content for file, content in kept.items())


def test_rows_are_equal_although_a_node_dies(
    tmp_path: Path, cluster: Cluster, tiny: Any, audit: dict[str, Any], alone: Path, silent: Console
) -> None:
    lost = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)

    def kill() -> None:
        wait_for_units(tmp_path / "run", 2)
        cluster.remove_node(lost, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    run_audit(tiny(engine="ray", ray_address=cluster.address, **audit), tmp_path / "run", console=silent)
    killer.join()
    assert read_training(tmp_path / "run") == read_training(alone)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key not in TOOK} for row in rows]


def test_ctrl_c_stops_the_tasks_within_seconds(tmp_path: Path, cluster: Cluster, tiny: Any) -> None:
    config = tiny(training__epochs=0, attacks={"tableak": {"steps": 100_000, "restarts": 2}})
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    words = [
        sys.executable,
        "-m",
        "lightleak",
        "audit",
        str(tmp_path / "config.json"),
        "--output",
        str(tmp_path / "run"),
    ]
    words += ["--engine", "ray", "--ray-address", cluster.address]
    command = subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    until = time.monotonic() + 400  # a busy machine starts Ray in minutes
    while not task_runs():
        assert time.monotonic() < until, "no task has begun"
        time.sleep(0.2)
    began = time.monotonic()
    os.killpg(command.pid, signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130 and "interrupted" in said and "Traceback" not in said
    assert time.monotonic() - began < 20


def task_runs() -> bool:
    """Whether a worker of Ray on this machine runs a pack."""
    names = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return any(name.startswith(b"ray::_run_on_node") for name in names)


def test_a_training_is_over_once_all_that_it_left_is_written(tmp_path: Path, tiny: Any) -> None:
    files = {"training.json": b"{}", "captures/e000-s000000/observation.json": b"{}"}

    class Cut(Engine):
        slots = 1

        def run(self, packs: Iterable[Pack], folder: Path, watch: Any = None) -> Iterator[Finished]:
            yield from (Finished(pack, files) for pack in packs)

        def close(self) -> None:
            pass

    (tmp_path / "captures").write_text("in the way")
    config = tiny(device="cpu")
    with pytest.raises(OSError, match="captures"):
        train_on_ray(config, prepare_experiment(config), tmp_path, Cut())
    assert not (tmp_path / "training.json").exists()
    (tmp_path / "captures").unlink()
    train_on_ray(config, prepare_experiment(config), tmp_path, Cut())
    assert all((tmp_path / name).read_bytes() == content for name, content in files.items())


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"no Ray cluster at 127.0.0.1:1"):
        open_engine(RunConfig(engine="ray", device="cpu", ray_address="127.0.0.1:1"))
