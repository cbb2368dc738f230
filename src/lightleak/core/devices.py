"""Where the work runs: one place that turns ``auto|cpu|cuda|cuda:1`` into a device and bounds the CPU threads."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from lightleak.core.errors import UnsupportedError, UsageError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # names and numbers of glibc's mallopt(3)
_MMAP_THRESHOLDS = (2**30, 2**25)  # older glibc refuses more than 32 MiB


def resolve_device(name: str = "auto") -> torch.device:
    """Turn ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` into a device; ``auto`` takes a GPU where there is one.

    Raises:
        UsageError: the name is none of these, or no such device is on this machine.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        found = torch.cuda.device_count()
        raise UsageError(
            f"device {name!r} is not on this machine ({found} CUDA devices found); leave it at auto or cpu"
        )
    return device


@cache
def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks instead of handing each one back to the system; ``False`` where there is no glibc.

    An inversion step allocates and frees the same megabytes thousands of times. By default every such block is mapped
    and faulted in again, which took 35 to 40% of the step when measured (`benchmarks/RESULTS.md`).
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        raised = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _MMAP_THRESHOLDS)
        return raised and bool(libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, AttributeError):
        return False


def return_freed_memory() -> None:
    """Hand back to the system what `keep_freed_memory` kept, so that it does not count as memory in use."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # no glibc: nothing was kept
        return


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that a call could take: what no process has, and what this one holds without use."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)


def synchronize(device: torch.device) -> None:
    """Wait for the work a GPU was given, before a clock is read; a CPU has done its own."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def require_tf32(device: torch.device) -> None:
    """Check that a device multiplies in TF32.

    Raises:
        UnsupportedError: it is no GPU, or one from before TF32.
    """
    words = "precision 'tf32' needs a GPU of compute capability 8.0 or more"
    if device.type != "cuda":
        raise UnsupportedError(f"{words}, got device {str(device)!r}")
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        raise UnsupportedError(f"{words}, got {major}.{minor} ({torch.cuda.get_device_name(device)})")


@contextmanager
def tf32_products(on: bool) -> Iterator[None]:
    """Within the block float32 matrix products on a GPU may round their factors to TF32, where ``on``."""
    if not on:  # torch refuses to tell the setting where a program has chosen it by torch's newer settings
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the block torch uses one thread, as a worker process does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes(name: str) -> int | None:
    """Main memory of this process: ``VmRSS`` now, ``VmHWM`` at most so far; None where the system does not say."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


_PEAKS: list[list[int]] = []
"""What was seen so far of every `peak_resident` that is open."""


@contextmanager
def peak_resident() -> Iterator[Callable[[], int | None]]:
    """Measure the most main memory that this process holds within the block, which may hold further such blocks.

    Yields:
        Returns bytes, once the block has ended; None where the system cannot count from the beginning of the block.
    """
    seen: list[int] = []

    def note() -> None:
        for one in _PEAKS:
            one.append(resident_bytes("VmHWM") or 0)

    note()
    return_freed_memory()
    try:
        CLEAR_REFS.write_text("5")  # VmHWM counts from here on
        is_counted = True
    except OSError:
        is_counted = False
    _PEAKS.append(seen)
    try:
        yield lambda: max(seen, default=0) or None if is_counted else None
    finally:
        note()
        _PEAKS.pop()
