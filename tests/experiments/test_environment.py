"""environment.json: what it says, what it keeps to itself, and that every process finds its place in it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from lightleak.core.optional import PROJECT
from lightleak.experiments import installed
from lightleak.experiments.environment import (
    SHOWN_VARIABLES,
    describe_determinism,
    describe_environment,
    describe_ranks,
    project_state,
    session,
    shown_variables,
    without_secrets,
    write_environment,
)
from lightleak.experiments.installed import (
    declared_requirements,
    installed_extras,
    is_met,
    metadata_requirements,
)

CPU = torch.device("cpu")


def written(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "environment.json").read_text())
    return content


def test_environment_names_versions_machine_and_command(tmp_path: Path) -> None:
    write_environment(tmp_path, CPU, ["lightleak", "audit", "x.yaml"])
    environment = written(tmp_path)
    assert environment["command"] == ["lightleak", "audit", "x.yaml"]
    assert environment["python"].count(".") == 2 and environment["date"].endswith("+00:00")
    assert environment["device"] == "cpu" and list(environment["devices"]) == ["cpu"]
    assert 1 <= environment["usable_cores"] <= environment["cores"] and environment["memory_bytes"] > 2**28
    assert environment["threads"] == torch.get_num_threads()
    assert environment["torch"]["build"] == torch.__version__ and environment["torch"]["cuda"] == torch.version.cuda
    assert all(environment["packages"][need.name] for need in declared_requirements()[""])
    assert environment["packages"][PROJECT] and set(environment["extras"]) >= {"cluster", "dp"}
    assert environment["ranks"] == {"rank": 0, "world": 1, "local_rank": 0, "local_world": 1, "launcher": None}


def test_a_later_session_is_added_and_the_first_facts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_environment(tmp_path, CPU, ["first"])
    before = written(tmp_path)
    monkeypatch.setattr(installed, "installed_version", lambda name: "99.0")
    write_environment(tmp_path, CPU, ["second"])
    after = written(tmp_path)
    assert after["sessions"][:1] == before["sessions"] and len(after["sessions"]) == 2
    assert {**after, "sessions": 0} == {**before, "sessions": 0}
    second = after["sessions"][1]
    assert second["command"] == ["second"]
    assert second["differs"]["packages.torch"] == [before["packages"]["torch"], "99.0"]
    assert before["sessions"][0]["differs"] == {}


def test_a_file_of_an_older_version_is_kept(tmp_path: Path) -> None:
    old = {"date": "2025-01-01", "packages": {"torch": "2.5"}, "python": "3.11.0", "determinism": "in words"}
    (tmp_path / "environment.json").write_text(json.dumps(old))
    write_environment(tmp_path, CPU, [])
    new = written(tmp_path)
    assert {key: new[key] for key in old} == old
    assert new["sessions"][0]["differs"]["packages.torch"][0] == "2.5"


def test_nothing_else_of_the_environment_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "do-not-tell"
    variables = dict.fromkeys(("AWS_SECRET_ACCESS_KEY", "USER", "HOSTNAME", "LIGHTLEAK_DATA_DIR"), secret)
    text = json.dumps(describe_environment(CPU, ["lightleak"], {**variables, "OMP_NUM_THREADS": "3"}))
    assert secret not in text
    assert json.loads(text)["variables"] == {"OMP_NUM_THREADS": "3", "LIGHTLEAK_DATA_DIR": "set"}


def test_variables_are_those_of_the_list() -> None:
    everything = dict.fromkeys(SHOWN_VARIABLES, "1") | {"HOME": "/home/ann"}
    assert shown_variables(everything) == dict.fromkeys(SHOWN_VARIABLES, "1")
    assert shown_variables({"LIGHTLEAK_DATA_DIR": ""}) == {}


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("audit", "audit"),
        ("--study.storage=mysql://ann:pass@word@db:3306/s", "--study.storage=mysql://***@db:3306/s"),
        ("https://example.org/a@b", "https://example.org/a@b"),
        ("/home/ann/x.csv", "~/x.csv"),
        ("--output=/home/ann/runs", "--output=~/runs"),
        ("/home/anna/x.csv", "/home/anna/x.csv"),
        ("/mnt/home/ann/x.csv", "/mnt/home/ann/x.csv"),
    ],
)
def test_words_of_the_command_lose_passwords_and_homes(word: str, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert without_secrets(word) == kept


def test_session_says_what_sets_it_apart() -> None:
    first = {"date": "1", "command": ["a"], "device": "cpu", "ranks": {}, "threads": 1, "torch": {"build": "2.11"}}
    now = {**first, "date": "2", "device": "H200", "torch": {"build": "2.13"}}
    assert session(first, now)["differs"] == {"device": ["cpu", "H200"], "torch.build": ["2.11", "2.13"]}


@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "torchrun"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1", "NODE_RANK": "0"}, "lightning"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}, "srun"),
    ],
)
def test_ranks_and_launcher(variables: dict[str, str], launcher: str) -> None:
    ranks = describe_ranks(variables)
    assert (ranks["rank"], ranks["world"], ranks["launcher"]) == (1, 2, launcher)


def test_determinism_of_a_gpu_names_what_weakens_it() -> None:
    bare = describe_determinism(torch.device("cuda"), {})
    assert any("CUBLAS_WORKSPACE_CONFIG" in reason for reason in bare["weakened_by"])
    assert bare["settings"]["cublas_workspace_config"] is None
    assert describe_determinism(torch.device("cuda"), {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})["weakened_by"] == []
    assert describe_determinism(CPU, {})["weakened_by"] == []


def test_determinism_reads_the_settings_of_torch() -> None:
    try:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = True
        settings = describe_determinism(torch.device("cuda"), {})
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
    assert settings["settings"]["deterministic_algorithms"] is True
    assert "cudnn_benchmark is on" in settings["weakened_by"]


def test_commit_is_that_of_the_checkout() -> None:
    state = project_state()
    if state is None:
        pytest.skip("the package runs from no git checkout")
    assert len(state["commit"]) == 40 and isinstance(state["modified"], bool)


def test_no_commit_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert project_state.__wrapped__() is None


def test_requirements_of_metadata_and_checkout_have_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch>=2.5", "opacus>=1.5; extra == 'dp'", "numpy<1; python_version < '3'"]
    monkeypatch.setattr(installed, "requires", lambda name: lines)
    groups = metadata_requirements()
    assert {extra: [need.name for need in needs] for extra, needs in groups.items()} == {
        "": ["torch"],
        "dp": ["opacus"],
    }
    assert "dev" in declared_requirements()


def test_extra_is_there_when_all_of_it_fits() -> None:
    groups = {"": (), "dev": (), "dp": (Requirement("opacus>=1.5"), Requirement("torch"))}
    assert installed_extras(groups, lambda name: "1.5") == {"dp": True}
    assert installed_extras(groups, lambda name: "1.4") == {"dp": False}
    assert installed_extras(groups, {"torch": "1"}.get) == {"dp": False}
    assert is_met(Requirement("torch>=2.5"), lambda name: "2.6.0.dev1")
