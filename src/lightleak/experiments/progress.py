"""Progress of a campaign: a bar on a terminal; elsewhere, as in a log, a line at the start, each minute, at the end."""

import threading
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 60.0
"""Between two lines where there is no terminal."""

LEAST_SHARE = 0.01
"""Share of the work that must be done before the time left is estimated from it."""


class Bar:
    """Shows the progress of a number of units; called with work done, in the measure of ``total``.

    Args:
        noun: name of the units, in the plural.
        total: all work that is left.
        units: number of units; None where work and units are the same.
        done: units that are done already.
        console: where it is shown.

    Attributes:
        work: done since the start.
    """

    def __init__(self, noun: str, total: float, units: int | None, done: int, console: Console) -> None:
        self._noun, self._total, self.work = noun, total, 0.0
        self._parts: dict[str, float] = {}
        self._units, self._done = units, done
        self._console, self._began = console, time.monotonic()
        self._over = threading.Event()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._live = Progress(*columns, console=console) if console.is_interactive else None
        self._task = self._live.add_task(self._said, total=total) if self._live else None

    def __call__(self, amount: float) -> None:
        """Count work."""
        self.work += amount
        if self._live and self._task is not None:
            self._live.update(self._task, completed=self.work, description=self._said)

    def reach(self, part: str, work: float, units: int = 0) -> None:
        """Show that a part of the work has come so far, and that more units are done."""
        self._done += units
        self(work - self._parts.get(part, 0.0))
        self._parts[part] = work

    @property
    def _said(self) -> str:
        done, of = (self.work, self._total) if self._units is None else (self._done, self._units)
        return f"{int(done + 1e-6)} of {of:.0f} {self._noun}"  # of shares, the last of which may round

    def __enter__(self) -> "Bar":
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
            self._print(f"{self._said} done, {clock(time.monotonic() - self._began)} elapsed")

    def _print_lines(self) -> None:
        while not self._over.wait(LINE_SECONDS):
            elapsed, share = time.monotonic() - self._began, self.work / self._total if self._total else 1.0
            left = f"about {clock(elapsed * (1 - share) / share)} left" if share >= LEAST_SHARE else "time left unknown"
            self._print(f"{self._said} done, {100 * share:.0f}% of the work, {clock(elapsed)} elapsed, {left}")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def silent() -> Console:
    """Return a console that shows nothing."""
    return Console(quiet=True, force_interactive=False)


def clock(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> clock(7), clock(754), clock(3725)
    ('0:07', '12:34', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def progress_bar(noun: str, total: float, quiet: bool, units: int | None = None, done: int = 0) -> Bar:
    """Return a `Bar`, to be used in a `with` block; it shows nothing if ``quiet``. Arguments as for `Bar`."""
    return Bar(noun, total, units, done, silent() if quiet else Console())
