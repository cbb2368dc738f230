"""Every check of the doctor, in its good case and in its bad ones; facts are given, or made in a folder."""

import errno
import hashlib
import importlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from rich.console import Console

from lightleak import doctor
from lightleak.cli import main
from lightleak.data.datasets import DATASETS, Dataset, Download
from lightleak.doctor import attack, cluster, devices, install, memory, storage, tables
from lightleak.doctor.finding import Facts, Finding, State, has_problem

OK, NOTE, PROBLEM = State.OK, State.NOTE, State.PROBLEM
GIB = 2**30


def needs(*lines: str) -> tuple[Requirement, ...]:
    return tuple(map(Requirement, lines))


def states(findings: list[Finding]) -> dict[str, State]:
    return {finding.check: finding.state for finding in findings}


# Install


def test_dependencies_in_range_make_one_line() -> None:
    (finding,) = install.dependencies(needs("torch>=2.5", "rich"), {"torch": "2.13.0+cpu", "rich": "15"}.get)
    assert finding.state is OK and finding.found == "torch 2.13.0+cpu, rich 15"


@pytest.mark.parametrize(("version", "said"), [(None, "got none"), ("2.4", "got 2.4")])
def test_dependency_that_is_missing_or_too_old(version: str | None, said: str) -> None:
    found = install.dependencies(needs("rich", "torch>=2.5"), {"rich": "15", "torch": version}.get)
    assert states(found) == {"dependencies": OK, "torch": PROBLEM}
    assert said in found[1].found and found[1].fix == "pip install 'torch>=2.5'"


@pytest.mark.parametrize(
    ("version", "state", "said"),
    [("1.6", OK, "opacus 1.6"), (None, NOTE, "not installed"), ("1.0", PROBLEM, "got 1.0")],
)
def test_extra(version: str | None, state: State, said: str) -> None:
    groups = {"": (), "dev": needs("pytest"), "dp": needs("opacus>=1.5")}
    (finding,) = install.extras(groups, {"opacus": version}.get)
    assert (finding.check, finding.state) == ("extra dp", state) and said in finding.found
    assert ("dp]" in finding.fix) == (state is not OK)


@pytest.mark.parametrize(("pandas", "metrics", "bad"), [("3.0", "1.9", 2), ("2.3", "1.9.0", 1), ("2.3", "1.8", 0)])
def test_pins_of_pytorch_tabular(pandas: str, metrics: str, bad: int) -> None:
    wanted = {"pytorch-tabular": needs("pandas<3.0.0", "torchmetrics<1.9.0", "not-here>=1")}
    version_of = {"pytorch-tabular": "1.2", "pandas": pandas, "torchmetrics": metrics, "rich": "15"}.get
    found = install.conflicts(["rich", "pytorch-tabular"], lambda name: wanted.get(name, ()), version_of)
    assert sum(finding.state is PROBLEM for finding in found) == bad and len(found) == max(1, bad)


def test_the_installed_packages_are_read_as_they_are() -> None:
    assert "numpy" in {need.name for need in install.requirements_of("pandas")}
    assert install.requirements_of("no-such-package") == ()


def test_a_checkout_that_was_changed_since_its_install() -> None:
    declared, older = {"": needs("torch"), "dp": needs("opacus")}, {"": needs("torch")}
    assert install.metadata_lag(declared, dict(declared)) == []
    assert [finding.state for finding in install.metadata_lag(declared, older)] == [NOTE]
    assert "without being installed" in install.metadata_lag(declared, {"": ()})[0].found


def test_imports_that_break_are_named_and_the_others_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good_one.py").write_text("print('[1]'); print('noise')")
    (tmp_path / "bad_one.py").write_text("raise ImportError('libcuda.so.1 is missing')")
    (tmp_path / "fatal_one.py").write_text("import os; os._exit(7)")
    (tmp_path / "last_one.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    modules = ["bad_one", "good_one", "fatal_one", "last_one"]
    errors = install.import_errors(modules)
    assert errors == {
        "bad_one": "ImportError: libcuda.so.1 is missing",
        "fatal_one": "ended the process with code 7",
    }
    found = install.imports(modules, errors)
    assert states(found) == {"imports": OK, "import bad_one": PROBLEM, "import fatal_one": PROBLEM}
    assert found[0].found.startswith("2 of 4")


def test_every_package_that_is_installed_has_a_module_of_the_name_that_is_tried() -> None:
    groups = install.declared_requirements()
    names = {need.name for extra in ("", *install.user_extras(groups)) for need in groups[extra]}
    here = [name for name in names if install.installed_version(name)]
    assert [name for name in here if importlib.util.find_spec(install.module_of(name)) is None] == []


def test_an_import_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_one.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "took more than" in install.import_errors(["slow_one"], timeout=1.0)["slow_one"]


# Devices


def test_cores_and_threads() -> None:
    assert devices.cpu_threads(8, None, 8, None)[0].state is OK
    (crowded,) = devices.cpu_threads(8, 2.5, 8, "8")
    assert crowded.state is NOTE and "OMP_NUM_THREADS=2" in crowded.fix and "allows 2.5" in crowded.found
    assert devices.cpu_threads(8, None, 1, "one")[0].state is PROBLEM
    assert devices.cpu_threads(1, 0.5, 1, "1")[0].state is OK  # no process has less than one thread


@pytest.mark.parametrize(
    ("build", "driver", "count", "visible", "state"),
    [
        ("12.8", "570.1", 8, None, OK),
        (None, None, 0, None, OK),
        ("12.8", None, 0, None, OK),
        (None, "570.1", 0, None, PROBLEM),
        ("12.8", "570.1", 0, "", NOTE),
        ("12.8", "570.1", 0, None, PROBLEM),
        ("12.8", "570.1", 0, "3", PROBLEM),
    ],
)
def test_cuda(build: str | None, driver: str | None, count: int, visible: str | None, state: State) -> None:
    finding = devices.cuda_seen(build, driver, count, visible)
    assert finding.state is state and bool(finding.fix) == (state is not OK)


@pytest.mark.parametrize(
    ("capability", "codes", "state"),
    [
        ((8, 6), ["sm_80"], OK),
        ((8, 0), ["sm_86"], PROBLEM),
        ((9, 0), ["sm_80", "sm_86"], PROBLEM),
        ((9, 0), ["sm_80", "compute_86"], OK),
        ((10, 0), ["sm_90a", "sm_100"], OK),
        ((7, 0), ["sm_75", "compute_90"], PROBLEM),
    ],
)
def test_torch_has_code_for_a_gpu(capability: tuple[int, int], codes: list[str], state: State) -> None:
    assert devices.built(torch.device("cuda:0"), capability, codes).state is state


def test_cpu_computes() -> None:
    cpu, update = torch.device("cpu"), devices.small_update()
    assert devices.matrix_product(cpu).state is OK
    loss = devices.loss_after_one_step(update, cpu)
    assert devices.inversion_step(cpu, update, loss).state is OK
    wrong = devices.inversion_step(cpu, update, 2 * loss)
    assert wrong.state is PROBLEM and "do not use this device" in wrong.fix


def test_a_device_that_does_not_compute() -> None:
    nowhere = torch.device("cuda:77")
    for finding in (devices.matrix_product(nowhere), devices.inversion_step(nowhere, devices.small_update(), 1.0)):
        assert finding.state is PROBLEM and finding.found and "\n" not in finding.found


def test_a_product_that_comes_out_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    true = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: true(a, b) * (1.1 if a.dtype == torch.float32 else 1))
    assert devices.matrix_product(torch.device("cpu")).state is PROBLEM


# Memory


@pytest.mark.parametrize(
    ("available", "in_group", "state"),
    [(8 * GIB, None, OK), (8 * GIB, 2 * GIB, NOTE), (64 * GIB, GIB // 2, PROBLEM), (None, None, NOTE)],
)
def test_memory(available: int | None, in_group: int | None, state: State) -> None:
    assert memory.memory(64 * GIB, in_group, available, in_group).state is state


# Tables


@pytest.fixture
def entry() -> Dataset:
    """A dataset of two files, whose checksums are known, one of them downloadable."""
    digest = hashlib.sha256(b"rows").hexdigest()
    card = replace(DATASETS.get("adult").card, name="made", files=("a", "b"), sha256={"a": digest})
    return Dataset(card, DATASETS.get("adult").load, (Download("https://example.org/a", "a"),))


def test_table_is_here(entry: Dataset, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"rows")
    (tmp_path / "b").write_bytes(b"anything")
    finding = tables.table(entry, tmp_path)
    assert finding.state is OK and "1 checksums right" in finding.found


def test_table_with_a_wrong_checksum(entry: Dataset, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"other rows")
    finding = tables.table(entry, tmp_path, " --data x")
    assert finding.state is PROBLEM and finding.fix == "lightleak data prepare made --data x --force"


def test_table_that_is_missing(entry: Dataset, tmp_path: Path) -> None:
    assert tables.table(entry, tmp_path).fix == "lightleak data prepare made"
    by_hand = tables.table(replace(entry, downloads=()), tmp_path)
    assert by_hand.state is NOTE and entry.card.urls[0] in by_hand.fix and str(tmp_path) in by_hand.fix


def test_table_that_cannot_be_read(entry: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "a").write_bytes(b"rows")
    monkeypatch.setattr(tables, "sha256_of", refuse)
    assert tables.table(entry, tmp_path).state is PROBLEM


def test_data_folder(tmp_path: Path) -> None:
    assert tables.data_folder_is_there(tmp_path, asked=True).state is OK
    assert tables.data_folder_is_there(tmp_path / "none", asked=True).state is PROBLEM
    assert tables.data_folder_is_there(tmp_path / "none", asked=False).state is NOTE


def test_every_dataset_is_told_about(tmp_path: Path) -> None:
    found = tables.check(Facts(tmp_path, tmp_path, {}))
    told = " ".join(f"{finding.check} {finding.found}" for finding in found)
    assert all(name in told for name in DATASETS) and not has_problem(found)


# Storage


def test_a_folder_that_is_fine_is_left_as_it_was(tmp_path: Path) -> None:
    found = storage.tries(tmp_path, tmp_path)
    assert {finding.state for finding in found} == {OK} and len(found) == 1 + len(storage.TRIALS)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_would_be_made(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    assert storage.nearest_folder(wanted) == tmp_path
    assert not has_problem(storage.tries(wanted, tmp_path)) and not wanted.exists()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    (finding,) = storage.tries(tmp_path / "runs", tmp_path)
    assert finding.state is PROBLEM and "is a file" in finding.found


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(storage.tempfile, "mkdtemp", refuse)  # root may write anywhere, so no mode stops it
    (finding,) = storage.tries(tmp_path, tmp_path)
    assert finding.state is PROBLEM and "Permission denied" in finding.found and "--output" in finding.fix


def _not_supported(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOTSUP, "Operation not supported")


def _stat_with(**changed: Any) -> Callable[..., os.stat_result]:
    true = Path.stat

    def stat(self: Path, **options: Any) -> os.stat_result:
        real = true(self, **options)
        mode = real.st_mode | changed.get("mode", 0)
        return os.stat_result((mode, *real[1:8], changed.get("mtime", real.st_mtime), *real[9:]))

    return stat


@pytest.mark.parametrize(
    ("where", "name", "broken", "check"),
    [
        (storage.os, "fsync", _not_supported, "journal"),
        (storage, "FileLock", lambda *_, **__: nullcontext(), "lock"),
        (storage, "FileLock", _not_supported, "lock"),
        (Path, "stat", _stat_with(mode=0o055), "owner only"),
        (Path, "replace", _not_supported, "rename"),
    ],
    ids=["no journal", "locks twice", "no locks", "no permissions", "no renaming"],
)
def test_a_file_system_that_lacks_something(
    where: Any, name: str, broken: Any, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    trial = {name: (try_, fine, fix) for name, try_, fine, fix in storage.TRIALS}[check]
    finding = storage._try(check, *trial, tmp_path)
    assert finding.state is PROBLEM and finding.fix


@pytest.mark.parametrize(("free", "state"), [(2**33, OK), (2**30, NOTE), (2**27, PROBLEM)])
def test_free_space(free: int, state: State, tmp_path: Path) -> None:
    assert storage.free_space(free, tmp_path).state is state


@pytest.mark.parametrize(("kind", "state"), [("ext4", OK), ("tmpfs", NOTE), ("nfs4", OK), (None, OK)])
def test_kind_of_file_system(kind: str | None, state: State) -> None:
    assert storage.is_kept(kind).state is state


def test_the_deepest_and_latest_mount_counts(tmp_path: Path) -> None:
    mounts = f"a / ext4 rw 0 0\nb {tmp_path} nfs rw 0 0\nc {tmp_path} lustre rw 0 0\nd {tmp_path}x xfs rw 0 0\nbad\n"
    assert storage.file_system(tmp_path / "runs", mounts) == "lustre"
    assert storage.file_system(tmp_path, "") is None


# Cluster

HERE = {"python": "3.12.1", "torch": "2.13.0"}
NODE = cluster.Node("10.0.0.1", 16, 2, "H100", HERE, 3.0)


def test_a_cluster_whose_nodes_agree() -> None:
    found = cluster.judge([NODE, replace(NODE, name="10.0.0.2")], HERE)
    assert states(found) == {"nodes": OK, "versions": OK, "10.0.0.1": OK, "10.0.0.2": OK}
    assert "2 nodes, 32 CPUs, 4 GPUs" in found[0].found and "torch 2.13.0" in found[1].found
    assert "2 GPUs H100" in found[2].found


def test_a_cluster_with_another_version_and_a_node_that_runs_nothing() -> None:
    other = replace(NODE, name="10.0.0.2", versions={**HERE, "torch": "2.12.0"})
    broken = replace(NODE, name="10.0.0.3", versions=None, error="ModuleNotFoundError: No module named 'lightleak'")
    found = cluster.judge([NODE, other, broken], HERE)
    assert states(found) == {"nodes": OK, "versions": PROBLEM, "10.0.0.1": OK, "10.0.0.2": OK, "10.0.0.3": PROBLEM}
    assert found[1].found == "torch is 2.12.0 on 10.0.0.2, 2.13.0 here"
    assert "No module named 'lightleak'" in found[-1].found and "ray start" in found[-1].fix


def test_no_cluster_is_examined_unless_asked_for() -> None:
    assert cluster.check(Facts(None, Path(), {})) == []


def test_a_cluster_that_is_not_there() -> None:
    (finding,) = cluster.check(Facts(None, Path(), {}, "ray", "127.0.0.1:1"))
    assert finding.state is PROBLEM and "127.0.0.1:1" in finding.found and "ray start --head" in finding.fix


def test_a_cluster_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (finding,) = cluster.check(Facts(None, Path(), {}, "ray"))
    assert finding.state is PROBLEM and "needs Ray" in finding.found
    assert finding.fix.startswith("install Ray: pip install") and "[cluster]" in finding.fix


@pytest.mark.slow
def test_a_pack_runs_on_every_node_of_a_cluster() -> None:
    ray = pytest.importorskip("ray", reason="the extra cluster brings it")
    nodes = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        nodes.add_node(num_cpus=1)
        found = cluster.check(Facts(None, Path(), {}, "ray", nodes.address))
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert [finding.state for finding in found] == [OK] * 4, found
    assert found[0].found == "2 nodes, 2 CPUs, 0 GPUs"
    assert all("a pack ran in" in finding.found for finding in found[2:])


# Attack


def rows(tableak: float) -> list[dict[str, Any]]:
    return [{"attack": a, "batch_size": 1, "cell_accuracy": c} for a, c in (("tableak", tableak), ("random", 0.4))]


def runs(code: int, rows: list[dict[str, Any]], report: bool = True) -> attack.Run:
    def run(config: Path, folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
        assert config.is_file() and "RANK" not in variables
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps({"rows": rows}))
        if report:
            (folder / "report.html").write_text("")
        return code, "a warning\nlightleak: the reason"

    return run


@pytest.mark.parametrize(
    ("run", "state", "said"),
    [
        (runs(0, rows(1.0)), OK, "100% of cells"),
        (runs(0, rows(0.5)), PROBLEM, "50% of cells"),
        (runs(1, rows(1.0)), PROBLEM, "the reason"),
        (runs(0, rows(1.0), report=False), PROBLEM, "report.html"),
        (runs(0, rows(1.0)[:1]), PROBLEM, "random"),
    ],
)
def test_end_to_end(run: attack.Run, state: State, said: str) -> None:
    finding = attack.end_to_end(run, {"RANK": "0"})
    assert finding.state is state and said in finding.found


@pytest.mark.slow
def test_end_to_end_for_real() -> None:
    variables = {**os.environ, "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}  # a launcher's, which must not count
    (finding,) = attack.check(Facts(None, Path(), variables))
    assert finding.state is OK, finding.found


# The command

RAY = ["--ray-address", "host:6379"]

GOOD = Finding("install", "python", OK, "3.12.1")
BAD = Finding("storage", "folder", PROBLEM, "nothing can be written in [bold]/here[/bold] " * 6, "chmod u+w /here")


@pytest.mark.parametrize(("findings", "code"), [([GOOD], 0), ([GOOD, BAD], 1)])
def test_command(
    findings: list[Finding],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(doctor, "examine", lambda facts: asked.append(facts) or findings)
    file = tmp_path / "doctor.json"
    assert main(["doctor", "--data", "d", "--output", "o", "--json", str(file), *RAY]) == code
    (facts,) = asked
    assert (facts.data, facts.output, facts.engine, facts.ray_address) == (Path("d"), Path("o"), "local", "host:6379")
    content = json.loads(file.read_text())
    assert content["problems"] == code and content["findings"] == [finding.to_dict() for finding in findings]
    assert "3.12.1" in capsys.readouterr().out


def test_table_fits_100_columns_and_shows_all() -> None:
    console = Console(width=180, record=True, file=io.StringIO())
    doctor.print_findings([GOOD, BAD], console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= doctor.WIDTH
    assert "[bold]/here[/bold]" in text and "fix: chmod u+w /here" in text and "1 to fix" in text


def test_a_check_that_breaks_is_a_problem_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(facts: Facts) -> list[Finding]:
        raise ImportError("no module named 'torch'")

    for topic, check in (("install", breaks), ("devices", breaks), ("attack", lambda facts: [GOOD])):
        monkeypatch.setattr(getattr(doctor, topic), "check", check)
    found = doctor.examine(Facts())
    broken = {finding.topic for finding in found if "cannot be examined" in finding.found}
    assert broken == {"install", "devices"} and GOOD in found
    assert {finding.topic for finding in found} >= {"memory", "data", "storage"}
