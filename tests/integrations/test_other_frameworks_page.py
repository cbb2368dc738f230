"""The code of docs/other-frameworks.md runs, block after block, and the captures it makes can be attacked."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lightleak.attacks import ATTACKS
from lightleak.cli import main
from lightleak.core.observations import ClientUpdate
from lightleak.experiments.observed import find_captures

PAGE = Path(__file__).parents[2] / "docs" / "other-frameworks.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def run(framework: str = "") -> dict[str, Any]:
    """Execute the blocks that need nothing more, and those that need ``framework``, in their order."""
    if framework:
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    namespace: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(BLOCKS, 1):
        needed = re.match(r"# needs (\w+)", block)
        if needed is None or needed.group(1) == framework:
            exec(compile(block, f"{PAGE.name}, python block {number}", "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check_proven(root: Path, expected: int) -> None:
    found = find_captures(root)
    assert len(found) == expected
    attack = ATTACKS.get("exact_fedavg")(restarts=1, steps=100)
    for folder in found:
        attack.check(ClientUpdate.load(folder / "observation"))


def test_state_dicts() -> None:
    run()
    check_proven(Path("captures"), 1)
    assert (find_captures(Path("captures"))[0] / "truth").is_dir()


@pytest.mark.parametrize("flags", [["--labels", "restored"], ["--attacks.tableak_fedavg.labels", "interpolated"]])
def test_labels_are_restored_as_the_page_and_the_error_say(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    Path("mine.yaml").write_text(
        "data: {name: german}\nworkers: 1\nattacks: {tableak_fedavg: {steps: 2, restarts: 1}}\n"
    )
    command = ["attack", "mine.yaml", "--capture", "captures", "--output", "run"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "labels: restored in the config" in said and "--attacks.tableak_fedavg.labels interpolated" in said
    assert all(text in PAGE.read_text() for text in ("labels: restored", " ".join(flags)))
    assert main([*command, *flags]) == 0
    (row,) = json.loads(Path("run", "results.json").read_text())["rows"]
    assert row["labels"] == "restored"


@pytest.mark.usefixtures("inline")
def test_flower() -> None:
    made = run("flwr")
    from flwr.simulation import run_simulation

    run_simulation(made["server"], made["client"], num_supernodes=3)
    check_proven(Path("flower-captures"), 3)


def test_nvflare() -> None:
    made = run("nvflare")
    from nvflare.app_common.workflows.fedavg import FedAvg

    job = made["job"]
    job.to_server(FedAvg(num_clients=1, num_rounds=1))
    job.export_job("exported")
    (file,) = Path("exported").rglob("config_fed_server.json")
    config = json.loads(file.read_text())
    for chain in ("task_data_filters", "task_result_filters"):
        ((found,),) = [entry["filters"] for entry in config[chain]]
        assert found["path"] == "lightleak.integrations.nvflare_filter.CaptureFilter"
        assert found["args"]["rounds"] == [0] and Path(found["args"]["view"], "view.json").is_file()


def test_every_framework_of_the_page_is_run() -> None:
    assert {needed for block in BLOCKS for needed in re.findall(r"^# needs (\w+)", block)} == {"flwr", "nvflare"}
