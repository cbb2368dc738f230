"""Progress of a campaign: a bar on a terminal; elsewhere, as in a log, a line at the start, each minute, at the end."""

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

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


@dataclass
class _Part:
    """One pack: its kind, its work, how much of that is done, and when it began."""

    kind: str
    work: float
    units: int
    done: float = 0.0
    began: float | None = None
    seconds: float = 0.0


class PackBar(Bar):
    """Shows the progress of packs, whose work can be compared within a kind alone.

    What is left of a kind takes as long, by its work, as what is done of it; of one that has not begun, by its units,
    as what is done of all. Packs that run side by side share the time.

    Args:
        noun: name of the units, in the plural.
        packs: that are left.
        done: units that are done already.
        console: where it is shown.
    """

    def __init__(self, noun: str, packs: Sequence[Pack], done: int, console: Console) -> None:
        self._parts = {pack.ids[0]: _Part(pack.kind, pack.cost, len(pack.ids)) for pack in packs}
        super().__init__(noun, done + sum(part.units for part in self._parts.values()), done, console)

    def begun(self, packs: Iterable[Pack]) -> Iterator[Pack]:
        """The packs; each begins when it is taken."""
        for pack in packs:
            self._parts[pack.ids[0]].began = time.monotonic()
            yield pack

    def reach(self, pack: Pack, work: float) -> None:
        """A running pack has come so far; less than before where its worker died."""
        part = self._parts[pack.ids[0]]
        if part.began is not None:
            part.done, part.seconds = min(work, part.work), time.monotonic() - part.began
        self._show()

    def finish(self, pack: Pack, units: int) -> None:
        """A pack has ended, with so many units done."""
        self.done += units
        self.reach(pack, math.inf)
        self._parts[pack.ids[0]].began = None

    @property
    def left(self) -> float | None:
        """See `Bar.left`."""
        begun = [part for part in self._parts.values() if part.seconds]
        known = [part for part in begun if part.done >= LEAST_SHARE * part.work]
        if not known:
            return None if self._parts else 0.0
        units, left = sum(part.units * part.done / part.work for part in known), 0.0
        for kind in {part.kind for part in self._parts.values()}:
            done, of_kind = _of_kind(known, kind), _of_kind(self._parts.values(), kind)
            if done:
                rest = sum(part.work - part.done for part in of_kind) / sum(part.done for part in done)
                left += rest * sum(part.seconds for part in done)
            else:
                left += sum(part.units for part in of_kind) / units * sum(part.seconds for part in known)
        return left * self._elapsed / sum(part.seconds for part in begun)


def _of_kind(parts: Iterable[_Part], kind: str) -> list[_Part]:
    return [part for part in parts if part.kind == kind]


def silent() -> Console:
    """Return a console that shows nothing."""
    return Console(quiet=True, force_interactive=False)


def console_of(quiet: bool) -> Console:
    """Return the console of this process, or one that shows nothing."""
    return silent() if quiet else Console()


def clock(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> clock(7), clock(754), clock(3725)
    ('0:07', '12:34', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
