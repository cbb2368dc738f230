"""Who does what, among processes that share nothing but a folder: a claim is a file that one of them could create.

No server, no collective that hangs when a process dies: processes on one machine or on many nodes come and go. A claim
is kept alive by touching its file; one whose process is gone, or whose file has not been touched for a while, may be
taken over. Two processes may in rare cases believe that they hold the same claim (a takeover while the holder was only
slow), so claims save work and never guard results: what is done under them must be safe to do twice. A process that is
suspended (a laptop that sleeps, SIGSTOP, a job that is set aside) is replaced after `STALE_SECONDS` like a dead one,
but goes on when it wakes, beside the one that took over.

A claim is taken over by a second file, named by the token of the holder that died; only one process can create it, and
so on from heir to heir: the last of the chain holds the claim. Nobody removes the file of another's living claim, which
any scheme of "remove the stale file, then make mine" does when two heirs come at once.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from lightleak.core.ranks import launch_name

BEAT_SECONDS = 5.0
"""Between two signs of life."""

STALE_SECONDS = 60.0
"""A claim of another machine that shows no sign of life for so long is abandoned. A dead process of this machine is
known at once."""

POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 1.0
"""Between two looks at a claim that another process holds, at first and after a while."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Where Linux tells a name that is drawn anew at every start of the machine."""


def this_machine() -> str:
    """Name of this machine, of its space of process ids and of its start, as far as they can be known.

    Containers may share the first, and on the first two of another machine with the same name, or of the same one
    after a restart, a process id may be another's.
    """
    words = [socket.gethostname()]
    with suppress(OSError):
        words.append(os.readlink("/proc/self/ns/pid"))
    with suppress(OSError):
        words.append(BOOT_ID.read_text().strip())
    return " ".join(words)


@dataclass(frozen=True)
class Holder:
    """The process that made a claim.

    Attributes:
        machine: where it runs; process ids have a meaning there alone.
        pid: its process id there.
        token: unlike any other claim's.
        launch: name of its launch, which the processes started with it share; empty if it was started by itself.
    """

    machine: str = field(default_factory=this_machine)
    pid: int = field(default_factory=os.getpid)
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    launch: str = field(default_factory=launch_name)

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


@dataclass(frozen=True)
class _Link:
    """A file of a claim's chain and who made it; ``None`` where that is still being written, or never was."""

    file: Path
    holder: Holder | None


class Claims:
    """The claims in one folder, made if need be.

    Args:
        folder: where the files are; every process that shares the work sees it.
        stale_after: seconds; see `STALE_SECONDS`. The same in all processes: a holder beats four times as often.
    """

    def __init__(self, folder: Path, stale_after: float = STALE_SECONDS) -> None:
        self.folder, self.stale_after = folder, stale_after
        self._seen: dict[str, tuple[tuple[str, int], float]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Within the block the claim ``name`` is ours and kept alive, or ``False`` where another process holds it."""
        mine = self._take(name)
        if mine is None:
            yield False
            return
        over = threading.Event()
        heart = threading.Thread(target=self._beat, args=(mine.file, over), daemon=True)
        heart.start()
        try:
            yield True
        finally:
            over.set()
            heart.join()
            self._release(name, mine)

    @contextmanager
    def wait_for(self, name: str) -> Iterator[None]:
        """Within the block the claim ``name`` is ours; waits until it can be had."""
        for pause in pauses():
            with self.hold(name) as ours:
                if ours:
                    yield
                    return
            time.sleep(pause)

    def once(self, name: str, is_done: Callable[[], bool], work: Callable[[], object]) -> None:
        """Return when ``is_done``: one process does the ``work`` while the others wait; if it dies, one takes over.

        Where the work raises, so does the process that did it, and the others try in turn.
        """
        for pause in pauses():
            if is_done():
                return
            with self.hold(name) as ours:
                if ours and not is_done():
                    work()
            if not ours:
                time.sleep(pause)

    def holder(self, name: str) -> Holder | None:
        """Who holds a claim, alive or not; ``None`` where nobody does, or where it is being written."""
        chain = self._chain(name)
        return chain[-1].holder if chain else None

    def is_held(self, name: str) -> bool:
        """Whether a process that is alive, as far as can be known, holds the claim."""
        chain = self._chain(name)
        return bool(chain) and not self._is_abandoned(chain[-1])

    def _take(self, name: str) -> _Link | None:
        chain = self._chain(name)
        if chain and not self._is_abandoned(chain[-1]):
            return None
        mine = _Link(self._next(name, chain[-1]) if chain else self._file(name), Holder())
        try:
            descriptor = os.open(mine.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return None
        with os.fdopen(descriptor, "w") as file:
            json.dump(vars(mine.holder), file)
        if self._chain(name)[-1:] != [mine]:
            # Another heir came first and has released the claim since: ours hangs on a chain that is no more.
            mine.file.unlink(missing_ok=True)
            return None
        return mine

    def _release(self, name: str, mine: _Link) -> None:
        chain = self._chain(name)
        if chain[-1:] == [mine]:  # else it was taken over, and is another's
            for link in chain:  # the first file first: without it the others mean nothing
                link.file.unlink(missing_ok=True)

    def _chain(self, name: str) -> list[_Link]:
        """The files of a claim: the first holder's, its heir's, and so on; empty where nobody holds it."""
        chain: list[_Link] = []
        file = self._file(name)
        while True:
            try:
                text = file.read_text()
            except FileNotFoundError:
                return chain
            try:
                holder = Holder(**json.loads(text))
            except (ValueError, TypeError):
                holder = None
            chain.append(_Link(file, holder))
            file = self._next(name, chain[-1])

    def _next(self, name: str, link: _Link) -> Path:
        """The file of whoever takes over from ``link``."""
        return self._file(f"{name}.{link.holder.token}" if link.holder else f"{link.file.stem}.unwritten")

    def _is_abandoned(self, link: _Link) -> bool:
        """Whether its maker is dead, or has shown no sign of life for `stale_after` seconds of our own clock.

        Machines' clocks differ: times of files are compared with each other alone.
        """
        if link.holder is not None and link.holder.is_dead:
            return True
        try:
            sign = (link.holder.token if link.holder else "", link.file.stat().st_mtime_ns)
        except FileNotFoundError:
            return False
        seen, since = self._seen.get(link.file.name, (None, 0.0))
        if seen != sign:
            self._seen[link.file.name] = (sign, time.monotonic())
            return False
        return time.monotonic() - since > self.stale_after

    def _beat(self, file: Path, over: threading.Event) -> None:
        while not over.wait(min(BEAT_SECONDS, self.stale_after / 4)):
            with suppress(OSError):  # taken over, or a file system that has gone for a moment
                os.utime(file)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.claim"


def pauses() -> Iterator[float]:
    """Seconds between looks at what others do: a tenth of the time that was waited, within bounds; without end."""
    waited = 0.0
    while True:
        pause = min(LONGEST_POLL_SECONDS, max(POLL_SECONDS, waited / 10))
        yield pause
        waited += pause


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its parent has not asked; unknown, and so ``False``, without ``/proc``."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
