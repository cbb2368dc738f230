"""SIGTERM, as ``kill``, systemd and batch systems send it, ends a command the way Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Termination:
    """Whether SIGTERM has arrived.

    Attributes:
        came: it has.
    """

    def __init__(self) -> None:
        self.came = False

    def handle(self, _: int, frame: FrameType | None) -> None:
        """Act as Ctrl-C would: the current SIGINT handler decides, such as a training that first finishes its epoch."""
        first, self.came = not self.came, True
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt):
            interrupt(signal.SIGINT, frame)
        elif first:  # ignored: a job of a shell without job control; later ones find Lightning shutting down
            raise KeyboardInterrupt


@contextmanager
def interrupted_by_sigterm() -> Iterator[Termination]:
    """Within the block SIGTERM raises `KeyboardInterrupt` in the main thread; elsewhere nothing changes.

    >>> with interrupted_by_sigterm() as termination:
    ...     try:
    ...         signal.raise_signal(signal.SIGTERM)
    ...     except KeyboardInterrupt:
    ...         termination.came
    True
    """
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield termination
        return
    before = signal.signal(signal.SIGTERM, termination.handle)
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, before)
