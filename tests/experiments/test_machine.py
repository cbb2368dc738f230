"""Cores and memory of this machine, and the limits of the control group a process is in."""

from pathlib import Path

import pytest

from lightleak.experiments.machine import (
    available_memory,
    core_quota,
    cpu_name,
    launcher,
    memory_in_group,
    memory_limit,
    nvidia_driver,
    total_memory,
    usable_cores,
)


def group(root: Path, folder: str, **files: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / folder / name.replace("__", ".")).write_text(text)


def test_limits_of_version_2_hold_at_every_level(tmp_path: Path) -> None:
    proc, root = tmp_path / "cgroup", tmp_path / "fs"
    proc.write_text("0::/job/step\n")
    group(root, "job", cpu__max="200000 100000\n", memory__max="4000\n", memory__current="1000\n")
    group(root, "job/step", cpu__max="max 100000\n", memory__max="max\n", memory__current="900\n")
    assert core_quota(proc, root) == 2.0
    assert memory_limit(proc, root) == 4000
    assert memory_in_group(proc, root) == 3000


def test_limits_of_version_1(tmp_path: Path) -> None:
    proc, root = tmp_path / "cgroup", tmp_path / "fs"
    proc.write_text("4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/job\n")
    group(root, "cpu,cpuacct/job", cpu__cfs_quota_us="150000\n", cpu__cfs_period_us="100000\n")
    group(root, "memory/job", memory__limit_in_bytes="5000\n", memory__usage_in_bytes="2000\n")
    group(root, "memory", memory__limit_in_bytes=f"{2**63 - 4096}\n", memory__usage_in_bytes="2000\n")
    assert (core_quota(proc, root), memory_limit(proc, root), memory_in_group(proc, root)) == (1.5, 5000, 3000)


def test_a_container_whose_path_is_the_hosts_has_its_limits_at_the_root(tmp_path: Path) -> None:
    proc, root = tmp_path / "cgroup", tmp_path / "fs"
    proc.write_text("4:memory:/docker/123\n2:cpu:/docker/123\n")
    group(root, "memory", memory__limit_in_bytes="5000\n")
    group(root, "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert memory_limit(proc, root) == 5000
    assert core_quota(proc, root) is None


def test_no_control_groups_no_limits(tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    assert core_quota(nowhere, nowhere) is memory_limit(nowhere, nowhere) is memory_in_group(nowhere, nowhere) is None


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (x)\n", "570.86.15"),
        ("nothing known\n", None),
    ],
)
def test_driver(tmp_path: Path, line: str, version: str | None) -> None:
    file = tmp_path / "version"
    file.write_text(line)
    assert nvidia_driver(file) == version


def test_this_machine_is_plausible(tmp_path: Path) -> None:
    assert usable_cores() >= 1
    total, available = total_memory(), available_memory()
    assert total is not None and total > 2**28
    assert available is None or 0 < available <= total
    assert available_memory(tmp_path / "none") is None and cpu_name(tmp_path / "none") is None


def test_a_single_task_has_no_launcher() -> None:
    assert launcher({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"}) is None
    assert launcher({}) is None
