"""Where the work runs: one place that turns ``auto|cpu|cuda|cuda:1`` into a device and bounds the CPU threads."""

import ctypes
from functools import cache

import torch

from lightleak.core.errors import UsageError

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
        raise UsageError(f"device {name!r} is not on this machine ({torch.cuda.device_count()} CUDA devices found)")
    return device


@cache
def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks instead of handing each one back to the system; ``False`` where there is no glibc.

    An inversion step allocates and frees the same megabytes thousands of times. By default every such block is mapped
    and faulted in anew, which took 35 to 40% of the step when measured (`benchmarks/RESULTS.md`).
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        raised = any(libc.mallopt(_M_MMAP_THRESHOLD, size) for size in _MMAP_THRESHOLDS)
        return raised and bool(libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, AttributeError):
        return False
