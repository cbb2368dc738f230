"""What an attack takes: processor time and memory, for its row of ``results.json``."""

import time
from typing import Any, Self

from lightleak.core.devices import resident_bytes

TOOK = ("seconds", "cpu_seconds", "peak_memory")
"""Keys of a row that differ from run to run."""


class Took:
    """Context that measures the work within it.

    Attributes:
        cpu_seconds: processor time of this process, all its threads together; 0 before the context ends.

    >>> with Took() as took:
    ...     total = sum(range(1000))
    >>> sorted(took.facts()), took.cpu_seconds >= 0
    (['cpu_seconds', 'peak_memory'], True)
    """

    cpu_seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_seconds = time.process_time() - self._began

    def facts(self, shares: int = 1) -> dict[str, Any]:
        """Return ``cpu_seconds`` and ``peak_memory`` of a row, where `shares` rows share the time."""
        return {"cpu_seconds": self.cpu_seconds / shares, "peak_memory": resident_bytes("VmHWM")}
