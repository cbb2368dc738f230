"""configs/cluster/: the scripts are sound bash, their commands are ours, and they run under a stand-in for SLURM."""

import io
import json
import os
import re
import shlex
import signal
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

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "configs" / "cluster"
SCRIPTS = sorted(FOLDER.glob("*.sbatch"))

OF_LAUNCHERS = ("SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "NODE_RANK")

AUDIT: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 1, "n_continuous": 1, "n_rows": 60}},
    "target": {"options": {"hidden": [3]}},
    "training": {"epochs": 1, "batch_size": 4},
    "capture": {"epochs": [0], "per_epoch": 1},
    "initial": {"batch_sizes": [2, 3], "batches": 2},
    "attacks": {"inverting_gradients": {"steps": 5, "restarts": 1}, "random": {}},
    "workers": 1,
}

SRUN = """#!/usr/bin/env bash
# Starts two tasks on this machine, as srun would on two nodes.
while [[ "$1" == --* ]]; do shift; done
export SLURM_NTASKS=2 SLURM_NNODES=2 SLURM_NTASKS_PER_NODE=1 SLURM_STEP_ID=0 SLURM_LOCALID=0
SLURM_PROCID=0 SLURM_NODEID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_NODEID=1 "$@" & second=$!
wait $first && wait $second
"""


def stand_in(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def environment(stand_ins: Path) -> dict[str, str]:
    """As within a job, with the stand-ins found before anything else of their name."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHERS)}
    path = f"{Path(sys.executable).parent}:{stand_ins}:{kept.get('PATH', '')}"
    return kept | {"PATH": path, "SLURM_JOB_ID": "42", "VENV": str(stand_ins / "none"), "CUDA_VISIBLE_DEVICES": ""}


def orders(script: Path) -> dict[str, str]:
    """The orders to the scheduler, without their comments."""
    lines = [line.partition(" ")[2].split("#")[0] for line in script.read_text().splitlines() if line[:7] == "#SBATCH"]
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def commands(script: Path) -> list[list[str]]:
    """Every ``lightleak`` command of a script, with its parameters filled in."""
    text = script.read_text()
    values = dict(re.findall(r"^(CONFIG|RUN|STUDY)=\$\{\d:-(.+?)\}\s+#?", text, re.MULTILINE))
    values |= dict(re.findall(r"^(CONFIG)=\$\{\d:-(.+)\}$", text, re.MULTILINE))
    found = re.findall(r"^(?!#).*?(lightleak .+?) &$", text, re.MULTILINE)
    return [[values.get(word.strip("$"), word) for word in shlex.split(line)] for line in found]


def test_every_way_of_running_has_a_script() -> None:
    assert {script.stem for script in SCRIPTS} == {"one-node", "several-nodes", "cpu", "tune"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_is_bash_and_stops_at_the_first_error(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).stderr == b""
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    first = next(line for line in lines if line and not line.startswith("#"))
    assert first == "set -euo pipefail"
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_orders_come_before_all_commands_and_resume(script: Path) -> None:
    text = script.read_text()
    assert "#SBATCH" not in text[text.index("set -euo") :]  # the scheduler stops reading there
    given = orders(script)
    assert {"--job-name", "--nodes", "--time", "--mem", "--requeue", "--open-mode", "--output"} <= set(given)
    assert given["--signal"].startswith("B:USR1@") and given["--open-mode"] == "append"
    tasks = given.get("--ntasks-per-node", given.get("--ntasks"))
    per_gpu = script.stem == "several-nodes"
    assert tasks == (given["--gpus-per-node"] if per_gpu else "1")
    assert ("--gpus-per-node" in given) == (script.stem != "cpu")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_commands_are_ours_and_their_configs_exist(script: Path) -> None:
    found = commands(script)
    assert len(found) == 1
    for words in found:
        own, settings = split_arguments(words[1:])
        parsed, unknown = build_parser().parse_known_args(own)
        assert parsed.takes_settings and unknown == []
        assert parsed.command == ("tune" if script.stem == "tune" else "audit")
        assert (ROOT / parsed.config).is_file() and parsed.output is not None
        if parsed.command == "audit":
            load_config(ROOT / parsed.config, flag_settings(settings))


def test_the_job_goes_back_to_the_queue_before_its_time_is_up(tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    stand_in(bin_, "scontrol", f'#!/usr/bin/env bash\necho "$@" >> {tmp_path}/scontrol.log\n')
    stand_in(bin_, "srun", f"#!/usr/bin/env bash\ntouch {tmp_path}/started\nexec sleep 60\n")
    # Its own session: the work it leaves behind, which a scheduler would end, is ended with it.
    job = subprocess.Popen(
        ["bash", str(FOLDER / "cpu.sbatch")],
        env=environment(bin_),
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


def test_a_command_that_fails_fails_the_job(tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "srun", "#!/usr/bin/env bash\nexit 3\n")
    done = subprocess.run(["bash", str(FOLDER / "cpu.sbatch")], env=environment(tmp_path / "bin"), cwd=tmp_path)
    assert done.returncode == 3


@pytest.mark.slow
def test_two_tasks_share_one_run_which_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "bin", "srun", SRUN)
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(AUDIT))
    script = ["bash", str(FOLDER / "cpu.sbatch"), str(config)]
    for run in (1, 2):  # the second time as after a requeue: the same command, nothing left to do
        done = subprocess.run(
            [*script, "runs/shared"],
            env=environment(tmp_path / "bin"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        folder = tmp_path / "runs" / "shared"
        results = json.loads((folder / "results.json").read_text())
        if run == 1:
            first = results
            written = {file.name: file.stat().st_mtime_ns for file in (folder / "units").iterdir()}
    assert results == first
    assert {file.name: file.stat().st_mtime_ns for file in (folder / "units").iterdir()} == written
    sessions = json.loads((folder / "environment.json").read_text())["sessions"]
    assert sorted(entry["ranks"]["rank"] for entry in sessions) == [0, 0, 1, 1]
    assert {entry["ranks"]["launcher"] for entry in sessions} == {"srun"}

    for name in [name for name in os.environ if name.startswith(OF_LAUNCHERS)]:
        monkeypatch.delenv(name)
    single = run_audit(load_config(config), tmp_path / "runs" / "alone", console=Console(file=io.StringIO()))
    assert [numbers(row) for row in results["rows"]] == [numbers(row) for row in single["rows"]]


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what differs from run to run."""
    return {key: value for key, value in row.items() if "seconds" not in key}
