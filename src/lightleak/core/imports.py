"""Imports that the garbage collector leaves alone: a command that computes starts a quarter faster for it."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected_imports() -> Iterator[None]:
    """Turn garbage collection off within the block, and leave what exists at its end out of later collections.

    Imports leave little garbage, yet Python visits the objects of 4,000 modules again and again while they are
    imported, and once more when the process ends (`benchmarks/RESULTS.md`). Where PyTorch is loaded already, as by a
    plug-in or by a program that calls this one, nothing changes.
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
