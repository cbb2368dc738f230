"""What an attack takes: processor time and memory, for its row of ``results.json``."""

import time
from typing import Any, Self

from lightleak.core.devices import peak_resident

TOOK = ("seconds", "cpu_seconds", "peak_memory")
"""Keys of a row that differ from run to run."""


class Took:
    """Context that measures the work within it.

    Attributes:
        cpu_seconds: processor time of this process, all its threads together; 0 before the context ends.
        peak_memory: most bytes of main memory that the process held during the work, what it held before included; None
            before the context ends, or where the system does not say.

    >>> with Took() as took:
    ...     total = sum(range(1000))
    >>> sorted(took.facts()), took.cpu_seconds >= 0
    (['cpu_seconds', 'peak_memory'], True)
    """

    cpu_seconds = 0.0
    peak_memory: int | None = None

    def __enter__(self) -> Self:
        self._measured = peak_resident()  # of an attack before it in the same process nothing counts
        self._peak = self._measured.__enter__()
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_seconds = time.process_time() - self._began
        self._measured.__exit__(None, None, None)
        self.peak_memory = self._peak()

    def facts(self, shares: int = 1) -> dict[str, Any]:
        """Return ``cpu_seconds`` and ``peak_memory`` of a row, where `shares` rows share the time."""
        return {"cpu_seconds": self.cpu_seconds / shares, "peak_memory": self.peak_memory}
