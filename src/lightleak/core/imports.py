"""Imports whose objects the garbage collector leaves alone: commands start and end a third faster for it."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_imports() -> Iterator[None]:
    """Within the block nothing is collected, and what exists at its end never will be.

    Imports leave no garbage, yet Python visits the objects of 4,000 modules again and again while they are imported,
    and once more when the process ends (`benchmarks/RESULTS.md`). Where PyTorch is loaded already, nothing changes: the
    process is not the command's own.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
