"""What results and speed depend on in a machine: cores and memory, and the limits a container or a job sets to them."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from lightleak.core.ranks import detect_ranks

_NO_LIMIT_BYTES = 2**60
"""Version 1 of control groups writes a number near 2**63 where there is no limit."""


def usable_cores() -> int:
    """Cores on which this process may run."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def core_quota(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores' worth of time that the control group allows; ``None`` without a limit."""
    shares = []
    for folder in _control_groups("cpu", proc, root):
        try:
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            shares.append(float(quota) / float(period))
        except (OSError, ValueError):  # no such file at this level, or "max"
            continue
    return min((share for share in shares if share > 0), default=None)


def memory_limit(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that the control group allows; ``None`` without a limit."""
    return min((limit for limit, _ in _memory_limits(proc, root)), default=None)


def memory_in_group(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that the innermost control group with a limit still has; ``None`` if no group reports it."""
    left = []
    for limit, used in _memory_limits(proc, root):
        with suppress(OSError, ValueError):
            left.append(limit - int(used.read_text()))
    return min(left, default=None)


def _memory_limits(proc: Path, root: Path) -> Iterator[tuple[int, Path]]:
    """Yield the limit of every control group that has one, and the file that says how much is used."""
    for folder in _control_groups("memory", proc, root):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            with suppress(OSError, ValueError):  # no such file at this level, or "max"
                if (limit := int((folder / most).read_text())) < _NO_LIMIT_BYTES:
                    yield limit, folder / used


def total_memory() -> int | None:
    """Bytes of memory that the machine has; ``None`` where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def cores_and_memory() -> dict[str, float | None]:
    """Return cores and memory of the machine, and the limits set to them."""
    return {
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "core_quota": core_quota(),
        "memory_bytes": total_memory(),
        "memory_limit_bytes": memory_limit(),
    }


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that a new process could take without swapping; ``None`` where the system does not tell."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(meminfo), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def nvidia_driver(version_file: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA driver of this machine, whether torch can use it or not.

    >>> nvidia_driver(Path("/no/such/file")) is None
    True
    """
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", _text(version_file))
    return found[1] if found else None


def launcher(variables: Mapping[str, str]) -> str | None:
    """What started this process among others: ``torchrun``, ``lightning``, ``srun``, or nothing that is known.

    >>> launcher({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    'torchrun'
    """
    if "WORLD_SIZE" in variables and "LOCAL_RANK" in variables:
        return "torchrun" if "RANK" in variables else "lightning"
    return "srun" if detect_ranks(variables).world > 1 else None


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """What the processor calls itself; ``None`` where the system does not tell."""
    found = re.search(r"^model name\s*:\s*(.+)$", _text(cpuinfo), re.MULTILINE)
    return found[1] if found else None


def _control_groups(controller: str, proc: Path, root: Path) -> list[Path]:
    """Folders of the control groups this process is in, the innermost first; limits of any of them hold."""
    folders: list[Path] = []
    for line in _text(proc).splitlines():
        _, names, inner = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        # Within a container the path may be that of the host, which is not there: then the root is the own group.
        for base in (root, root / "unified") if not names else (root / names, root / controller):
            group = base / inner.strip("/")
            folders += [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
