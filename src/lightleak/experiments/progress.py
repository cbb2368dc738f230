"""Progress of a campaign: a bar on a terminal; elsewhere, as in a log, a line at the start, each minute, at the end."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lightleak.core.console import SteadyConsole
from lightleak.core.grouping import by_key
from lightleak.experiments.pack import Pack

LINE_SECONDS = 60.0
"""Between two lines where there is no terminal."""

LEAST_SHARE = 0.01
"""Share of the work that must be done before the time left is estimated from it."""


class Bar:
    """Shows how many of a number of units are done; called with units done, or parts of one.

    Args:
        noun: name of the units, in the plural.
        units: in all.
        done: units that are done already.
        console: where it is shown.

    Attributes:
        done: units, or parts of them.
    """

    def __init__(self, noun: str, units: int, done: int, console: Console) -> None:
        self._noun, self._units, self._before, self.done = noun, units, done, float(done)
        self._console, self._began = console, time.monotonic()
        self._over = threading.Event()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._live = Progress(*columns, console=console) if console.is_interactive else None
        self._task = self._live.add_task(self._said, total=1.0, left="elapsed") if self._live else None

    def __call__(self, amount: float) -> None:
        """Count units."""
        self.done += amount
        self._show()

    @property
    def left(self) -> float | None:
        """Seconds; None where too little is done to tell."""
        share = (self.done - self._before) / (self._units - self._before) if self._units > self._before else 1.0
        return self._elapsed * (1 - share) / share if share >= LEAST_SHARE else None

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _said(self) -> str:
        return f"{int(self.done + 1e-6)} of {self._units} {self._noun}"  # of parts, the last of which may round

    def _show(self) -> None:
        if self._live and self._task is not None:
            left = self.left
            share = 0.0 if left is None else self._elapsed / max(self._elapsed + left, 1e-9)
            words = "elapsed" if left is None else f"elapsed, about {clock(left)} left"
            self._live.update(self._task, completed=share, description=self._said, left=words)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        else:
            self._print(f"{self._said} done; progress is reported every {LINE_SECONDS:.0f} s")
            threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._live:
            self._live.stop()
        else:
            self._print(f"{self._said} done, {clock(self._elapsed)} elapsed")

    def _print_lines(self) -> None:
        while not self._over.wait(LINE_SECONDS):
            left = self.left
            words = "time left unknown" if left is None else f"about {clock(left)} left"
            self._print(f"{self._said} done, {clock(self._elapsed)} elapsed, {words}")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


TINY = 1e-9
"""Least work of a pack."""


@dataclass
class _Part:
    """One pack: its kind, its work, how much of that is done, and how long it took or runs."""

    kind: str
    units: int
    work: float
    done: float = 0.0
    began: float | None = None
    took: float | None = None

    @property
    def share(self) -> float:
        """Of its work that is done."""
        return self.done / self.work

    @property
    def seconds(self) -> float:
        """So far."""
        if self.took is not None:
            return self.took
        return 0.0 if self.began is None else time.monotonic() - self.began


class PackBar(Bar):
    """Shows the progress of packs, whose work can be compared within a kind alone.

    A pack takes as long, by its work, as what is done of its kind; as what is done of all, by its units, where nothing
    of its kind is. Packs that run side by side share the time.

    Args:
        noun: name of the units, in the plural.
        packs: that are left.
        done: units that are done already.
        console: where it is shown.
    """

    def __init__(self, noun: str, packs: Sequence[Pack], done: int, console: Console) -> None:
        self._parts = {pack.ids[0]: _Part(pack.kind, len(pack.ids), max(pack.cost, TINY)) for pack in packs}
        super().__init__(noun, done + sum(part.units for part in self._parts.values()), done, console)

    def reach(self, pack: Pack, work: float) -> None:
        """A pack has begun, or come so far; less than before where its worker died."""
        part = self._parts[pack.ids[0]]
        part.began, part.done = part.began or time.monotonic(), min(work, part.work)
        self._show()

    def finish(self, pack: Pack, units: int) -> None:
        """A pack has ended, with so many units done."""
        part = self._parts[pack.ids[0]]
        part.took, part.done = part.seconds, part.work
        self(units)

    @property
    def left(self) -> float | None:
        """See `Bar.left`."""
        parts = [replace(part, took=part.seconds) for part in self._parts.values()]  # of one moment
        known = [part for part in parts if part.share >= LEAST_SHARE and part.seconds]
        if not known:
            return None if any(part.share < 1 for part in parts) else 0.0
        by_kind = by_key(known, attrgetter("kind"))
        by_unit = sum(part.seconds for part in known) / sum(part.units * part.share for part in known)
        rests = []
        for part in parts:
            if like := by_kind.get(part.kind):
                whole = part.work * sum(one.seconds for one in like) / sum(one.done for one in like)
            else:
                whole = part.units * by_unit
            rests.append(whole * (1 - part.share) if part.share >= LEAST_SHARE else max(0.0, whole - part.seconds))
        side_by_side = sum(part.seconds for part in parts) / self._elapsed
        return max(sum(rests) / side_by_side, *rests)


def silent() -> Console:
    """Return a console that shows nothing."""
    return Console(quiet=True, force_interactive=False)


def console_of(quiet: bool) -> Console:
    """Return the console of this process, or one that shows nothing."""
    return silent() if quiet else SteadyConsole()


def clock(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> clock(7), clock(754), clock(3725)
    ('0:07', '12:34', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
