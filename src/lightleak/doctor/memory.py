"""Check that there is memory for a process on this machine."""

from lightleak.doctor.finding import Check, Facts, Finding
from lightleak.experiments.machine import available_memory, memory_in_group, memory_limit, total_memory

MEMORY = Check("memory", "memory")
NEEDED_BYTES = 2**30
"""A process that has loaded torch and lightning takes about half of it before any work."""
EASY_BYTES = 3 * 2**30


def check(facts: Facts) -> list[Finding]:
    """Return the finding about the memory of this machine."""
    return [memory(total_memory(), memory_limit(), available_memory(), memory_in_group())]


def memory(total: int | None, limit: int | None, available: int | None, in_group: int | None) -> Finding:
    """Check that there is room for a process.

    Args:
        total: bytes of the machine; ``None`` where the system does not report it, here and below.
        limit: bytes that the control group (a container, a job of the scheduler) allows; ``None`` also without one.
        available: bytes that are free on the machine.
        in_group: bytes that the control group has left.
    """
    free = min((bytes_ for bytes_ in (available, in_group) if bytes_ is not None), default=None)
    if total is None or free is None:
        return MEMORY.note("this system does not report how much is free")
    limited = "" if limit is None else f", {_gib(limit)} allowed by the control group"
    found = f"{_gib(free)} free of {_gib(total)}{limited}"
    if free < NEEDED_BYTES:
        return MEMORY.problem(found, f"a process needs {_gib(NEEDED_BYTES)} or more: request more memory (--mem)")
    if free < EASY_BYTES:
        lower = f"less than {_gib(EASY_BYTES)} is little: lower --workers or an attack's memory_mb if it runs out"
        return MEMORY.note(found, lower)
    return MEMORY.ok(found)


def _gib(bytes_: int) -> str:
    return f"{bytes_ / 2**30:.1f} GiB"
