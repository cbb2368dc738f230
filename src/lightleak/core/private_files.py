"""Files of a run are readable by their owner only, whether our code, Lightning or a logger writes them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OTHERS = 0o077
"""Rights of the group and of everybody else: none is given to a new file or folder."""


@contextmanager
def private_files() -> Iterator[None]:
    """Within the block every file and folder that this process creates is readable by its owner only.

    The umask belongs to the whole process: other threads' files are private meanwhile too, and processes started within
    the block inherit it.

    >>> with private_files():
    ...     outer = os.umask(0o022)
    ...     os.umask(outer) == 0o022, oct(outer)
    (True, '0o77')
    """
    before = os.umask(OTHERS)
    _forget_umask()
    try:
        yield
    finally:
        os.umask(before)
        _forget_umask()


def _forget_umask() -> None:
    """Have fsspec, through which Lightning writes checkpoints, ask for the umask again: it keeps the first it sees."""
    local = sys.modules.get("fsspec.implementations.local")
    if local is not None and hasattr(local, "get_umask"):
        local.get_umask.cache_clear()
