"""Who does what, among processes that share nothing but a folder: a claim is a file that one of them could create.

No server, no collective that hangs when a process dies: processes on one machine or on many nodes come and go. A claim
is kept alive by touching its file; one whose process is gone, or whose file has not been touched for a while, may be
taken over. Two processes may in rare cases believe that they hold the same claim (a takeover while the holder was only
slow), so claims save work and never guard results: what is done under them must be safe to do twice.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BEAT_SECONDS = 5.0
"""Between two signs of life."""

STALE_SECONDS = 60.0
"""A claim of another machine that shows no sign of life for so long is abandoned. A dead process of this machine is
known at once."""

POLL_SECONDS = 0.2


def this_machine() -> str:
    """Name of this machine and of its space of process ids: containers may share the first."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


@dataclass(frozen=True)
class Holder:
    """The process that made a claim.

    Attributes:
        machine: where it runs; process ids have a meaning there alone.
        pid: its process id there.
        token: unlike any other claim's.
    """

    machine: str = field(default_factory=this_machine)
    pid: int = field(default_factory=os.getpid)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def is_dead(self) -> bool:
        """Whether it ran on this machine and runs no more; what happens elsewhere cannot be known so."""
        if self.machine != this_machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return _is_zombie(self.pid)


class Claims:
    """The claims in one folder, made if need be.

    Args:
        folder: where the files are; every process that shares the work sees it.
        stale_after: seconds; see `STALE_SECONDS`.
    """

    def __init__(self, folder: Path, stale_after: float = STALE_SECONDS) -> None:
        self.folder, self.stale_after = folder, stale_after
        self._seen: dict[str, tuple[tuple[str, int], float]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Within the block the claim ``name`` is ours and kept alive, or ``False`` where another process holds it."""
        holder = self._take(name)
        if holder is None:
            yield False
            return
        over = threading.Event()
        heart = threading.Thread(target=self._beat, args=(name, over), daemon=True)
        heart.start()
        try:
            yield True
        finally:
            over.set()
            heart.join()
            if self.holder(name) == holder:
                self._file(name).unlink(missing_ok=True)

    @contextmanager
    def wait_for(self, name: str) -> Iterator[None]:
        """Within the block the claim ``name`` is ours; waits until it can be had."""
        while True:
            with self.hold(name) as ours:
                if ours:
                    yield
                    return
            time.sleep(POLL_SECONDS)

    def once(self, name: str, is_done: Callable[[], bool], work: Callable[[], object]) -> None:
        """Return when ``is_done``: one process does the ``work``, the others wait, one of them takes over where it dies."""
        while not is_done():
            with self.hold(name) as ours:
                if ours and not is_done():
                    work()
            if not ours:
                time.sleep(POLL_SECONDS)

    def holder(self, name: str) -> Holder | None:
        """Who holds a claim; ``None`` where nobody does, or where it is being written."""
        try:
            return Holder(**json.loads(self._file(name).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def is_held(self, name: str) -> bool:
        """Whether a process that is alive, as far as can be known, holds the claim."""
        return self._file(name).exists() and not self._is_stale(name)

    def _take(self, name: str) -> Holder | None:
        if self._is_stale(name):
            self._file(name).unlink(missing_ok=True)
        holder = Holder()
        try:
            descriptor = os.open(self._file(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return None
        with os.fdopen(descriptor, "w") as file:
            json.dump(vars(holder), file)
        return holder

    def _is_stale(self, name: str) -> bool:
        """Dead here, or seen without a sign of life for `stale_after` seconds of our own clock; machines' clocks differ."""
        holder = self.holder(name)
        if holder is not None and holder.is_dead:
            return True
        try:
            sign = (holder.token if holder else "", self._file(name).stat().st_mtime_ns)
        except FileNotFoundError:
            return False
        seen, since = self._seen.get(name, (None, 0.0))
        if seen != sign:
            self._seen[name] = (sign, time.monotonic())
            return False
        return time.monotonic() - since > self.stale_after

    def _beat(self, name: str, over: threading.Event) -> None:
        while not over.wait(min(BEAT_SECONDS, self.stale_after / 4)):
            try:
                os.utime(self._file(name))
            except FileNotFoundError:
                return  # taken over

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.claim"


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its parent has not asked; unknown, and so ``False``, without ``/proc``."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
