"""configs/cluster/: scripts are sound bash, their commands are ours, and they run under stand-ins for SLURM."""

import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from lightleak.cli.arguments import flag_settings, split_arguments
from lightleak.cli.parser import build_parser
from lightleak.experiments.load import load_config
from lightleak.experiments.run import run_audit
from lightleak.experiments.took import TOOK

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "configs" / "cluster"
SBATCH = sorted(FOLDER.glob("*.sbatch"))
BY_HAND = FOLDER / "by-hand.sh"

OF_LAUNCHERS = ("SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "NODE_RANK", "RAY_ADDRESS")

AUDIT: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 1, "n_continuous": 1, "n_rows": 60}},
    "target": {"options": {"hidden": [3]}},
    "training": {"epochs": 1, "batch_size": 4},
    "capture": {"epochs": [0], "per_epoch": 1},
    "initial": {"batch_sizes": [2, 3], "batches": 2},
    "attacks": {"inverting_gradients": {"steps": 5, "restarts": 1}, "random": {}},
}

SRUN = """#!/usr/bin/env bash
# The task of the first node; that of the second would join the first.
while [[ "$1" == --* ]]; do shift; done
exec "$@"
"""

RAY = f"""#!{sys.executable}
import subprocess, sys
from pathlib import Path
split = sys.argv.index("--")
Path(__file__).with_name("ray.log").write_text(" ".join(sys.argv[1:split]))
address = sys.argv[sys.argv.index("--address") + 1]
port = address.rpartition(":")[2]
from ray.cluster_utils import Cluster
head = {{"num_cpus": 1, "gcs_server_port": int(port), "include_dashboard": False}}
nodes = Cluster(initialize_head=True, head_node_args=head)
nodes.add_node(num_cpus=1)
code = subprocess.run(sys.argv[split + 1:]).returncode
nodes.shutdown()
sys.exit(code)
"""


def stand_in(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder with stand-ins for the commands of SLURM and Ray that come before all others."""
    folder = tmp_path / "bin"
    script = f'if [[ "$1" == show ]]; then echo 127.0.0.1; else echo "$@" >> {tmp_path}/scontrol.log; fi\n'
    stand_in(folder, "scontrol", f"#!/usr/bin/env bash\n{script}")
    stand_in(folder, "srun", SRUN)
    return folder


def environment(stand_ins: Path, port: int = 6379) -> dict[str, str]:
    """As within a job of two nodes; scripts put ``VENV/bin`` before everything else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHERS)}
    path = f"{stand_ins}:{Path(sys.executable).parent}:{kept.get('PATH', '')}"
    job = {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_CPUS_PER_TASK": "1"}
    return kept | job | {"PATH": path, "VENV": str(stand_ins / "none"), "PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}


def options(script: Path) -> dict[str, str]:
    """The options of sbatch, without their comments."""
    lines = [line.partition(" ")[2].split("#")[0] for line in script.read_text().splitlines() if line[:7] == "#SBATCH"]
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def check_command(words: list[str]) -> None:
    """A command whose flags exist and whose config is there."""
    own, settings = split_arguments(words[1:])
    parsed, unknown = build_parser().parse_known_args(own)
    assert words[0] == "lightleak" and parsed.takes_settings and unknown == []
    assert (ROOT / parsed.config).is_file() and parsed.output is not None
    if parsed.command == "audit":
        load_config(ROOT / parsed.config, flag_settings(settings))


def test_every_way_of_running_has_a_file() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {
        "slurm.sbatch",
        "slurm-cpu.sbatch",
        "by-hand.sh",
        "kuberay.yaml",
    }


@pytest.mark.parametrize("script", [*SBATCH, BY_HAND], ids=lambda script: script.stem)
def test_script_is_bash_and_stops_at_the_first_error(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).stderr == b""
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert next(line for line in lines if line and not line.startswith("#")) == "set -euo pipefail"
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("script", SBATCH, ids=lambda script: script.stem)
def test_options_come_before_all_commands_and_the_run_resumes(script: Path) -> None:
    text = script.read_text()
    assert "#SBATCH" not in text[text.index("set -euo") :]  # the scheduler stops reading there
    given = options(script)
    assert {"--job-name", "--nodes", "--time", "--mem", "--requeue", "--open-mode", "--output"} <= set(given)
    assert given["--signal"].startswith("B:USR1@") and given["--open-mode"] == "append"
    assert given["--ntasks-per-node"] == "1" and ("--gpus-per-node" in given) == (script.stem == "slurm")


@pytest.mark.parametrize("script", [*SBATCH, BY_HAND], ids=lambda script: script.stem)
def test_examples_are_commands_of_ours(script: Path) -> None:
    examples = re.findall(
        rf"^#   .*{script.name} (?:run FIRST )?((?:audit|tune) .+?)(?:  +#.*)?$", script.read_text(), re.M
    )
    assert examples
    for example in examples:
        check_command(["lightleak", *shlex.split(example), "--engine", "ray", "--ray-address", "first:6379"])


def test_kuberay_job() -> None:
    job = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    check_command(shlex.split(job["spec"]["entrypoint"]))
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [group["template"]["spec"]["containers"][0] for group in groups]
    assert len({container["image"] for container in containers}) == 1, "versions must be equal on all pods"
    assert all(container["resources"]["limits"] == container["resources"]["requests"] for container in containers)
    mounted = {mount["name"] for mount in containers[0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in groups[0]["template"]["spec"]["volumes"]}
    release = cluster["rayVersion"]
    assert f"rayproject/ray:{release}" in (ROOT / "docs" / "cluster.md").read_text()


def test_by_hand_gives_ray_its_addresses(tmp_path: Path) -> None:
    for name in ("ray", "lightleak"):
        stand_in(tmp_path / "bin", name, f'#!/usr/bin/env bash\necho {name} "$@" $RAY_AUTH_MODE\n')

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run([str(BY_HAND), *words], env=environment(tmp_path / "bin"), capture_output=True, text=True)
        return done.returncode, done.stdout.strip()

    assert run("first") == (0, "ray start --head --port=6379 token")
    assert run("join", "10.0.0.1", "--num-cpus=4") == (0, "ray start --address=10.0.0.1:6379 --num-cpus=4 token")
    ran = "lightleak audit c.yaml --output o --engine ray --ray-address 10.0.0.1:6379 token"
    assert run("run", "10.0.0.1", "audit", "c.yaml", "--output", "o") == (0, ran)
    assert run("stop") == (0, "ray stop token")
    assert run()[0] == 2


def test_the_job_returns_to_the_queue_before_its_time_limit(tmp_path: Path, stand_ins: Path) -> None:
    stand_in(stand_ins, "srun", f"#!/usr/bin/env bash\ntouch {tmp_path}/started\nexec sleep 60\n")
    # In a session of its own, whose processes are ended with it, as a scheduler does.
    job = subprocess.Popen(
        ["bash", str(FOLDER / "slurm-cpu.sbatch"), "audit"],
        env=environment(stand_ins),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < until:
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        assert job.wait(timeout=60) == 128 + signal.SIGUSR1
    finally:
        os.killpg(job.pid, signal.SIGKILL)
    assert (tmp_path / "scontrol.log").read_text() == "requeue 42\n"


def test_a_command_that_fails_fails_the_job(tmp_path: Path, stand_ins: Path) -> None:
    stand_in(stand_ins, "srun", "#!/usr/bin/env bash\nexit 3\n")
    done = subprocess.run(["bash", str(FOLDER / "slurm-cpu.sbatch")], env=environment(stand_ins), cwd=tmp_path)
    assert done.returncode == 3


@pytest.mark.slow
def test_a_job_on_two_nodes_gives_the_results_of_one_process(tmp_path: Path, stand_ins: Path) -> None:
    stand_in(stand_ins, "ray", RAY)
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(AUDIT))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = subprocess.run(
        ["bash", str(FOLDER / "slurm-cpu.sbatch"), "audit", str(config), "--output", "runs/cluster"],
        env=environment(stand_ins, port),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    started = (stand_ins / "ray.log").read_text()
    assert started == f"symmetric-run --address 127.0.0.1:{port} --min-nodes 2 --num-cpus=1 --num-gpus=0"
    results = json.loads((tmp_path / "runs" / "cluster" / "results.json").read_text())
    alone = run_audit(load_config(config), tmp_path / "runs" / "alone", console=Console(file=io.StringIO()))
    assert [numbers(row) for row in results["rows"]] == [numbers(row) for row in alone["rows"]]


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what differs from run to run."""
    return {key: value for key, value in row.items() if key not in TOOK and "seconds" not in key}
