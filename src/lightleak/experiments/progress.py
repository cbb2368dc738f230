"""How far a campaign is: what this process and its workers do, and what files say of the others.

On a terminal a bar shows it; elsewhere, as in a log, a line at the start, one a minute and one at the end.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LOOK_SECONDS = 5.0
"""Between two looks at the files of finished units: one listing of a folder, whatever the number of packs."""

LINE_SECONDS = 60.0
"""Between two lines where there is no terminal."""

Report = Callable[[float], None]


class Bar:
    """Shows the progress of a number of units; called with work done, in the measure of ``total``.

    Args:
        noun: what the units are, in the plural.
        total: all work that is left.
        units: number of units; None where work and units are the same.
        done: units that are done already.
        console: where it is shown.
    """

    def __init__(self, noun: str, total: float, units: int | None, done: int, console: Console) -> None:
        self._noun, self._total, self._work = noun, total, 0.0
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
        self._work += amount
        if self._live and self._task is not None:
            self._live.update(self._task, completed=self._work, description=self._said)

    def finished(self, units: int) -> None:
        """Say how many units are done, by whatever process."""
        self._done = units
        self(0.0)

    @property
    def _said(self) -> str:
        done, of = (self._work, self._total) if self._units is None else (self._done, self._units)
        return f"{done:.0f} of {of:.0f} {self._noun}"

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
            elapsed, share = time.monotonic() - self._began, self._work / self._total if self._total else 1.0
            left = f"about {clock(elapsed * (1 - share) / share)} left" if share > 0 else "time left unknown"
            self._print(f"{self._said} done, {100 * share:.0f}% of the work, {clock(elapsed)} elapsed, {left}")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def clock(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> clock(7), clock(754), clock(3725)
    ('0:07', '12:34', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def progress_bar(noun: str, total: float, quiet: bool, units: int | None = None, done: int = 0) -> Iterator[Bar]:
    """Show a `Bar` within the block, or nothing if ``quiet``; arguments as for `Bar`."""
    console = Console(quiet=True, force_interactive=False) if quiet else Console()
    with Bar(noun, total, units, done, console) as bar:
        yield bar


class CampaignProgress:
    """Reports how much of a campaign is done, whoever does it.

    Args:
        costs: of the packs that are not done yet, by number.
        files: names of the files that each of them leaves.
        folder: where those files are.
        report: called with work done.
        finished: called with the number of these files that exist.
    """

    def __init__(
        self,
        costs: Mapping[int, float],
        files: Mapping[int, Sequence[str]],
        folder: Path,
        report: Report,
        finished: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._costs, self._files, self._folder, self._report = costs, dict(files), folder, report
        self._all, self._finished = {name for names in files.values() for name in names}, finished
        self._done: dict[int, float] = {}
        self._looked = time.monotonic()

    def advance(self, pack: int, amount: float) -> None:
        """Work was done on a pack."""
        before = self._done.get(pack, 0.0)
        self._set(pack, min(before + amount, self._costs[pack]))
        self.look()

    def lose(self, pack: int) -> None:
        """Whoever worked on a pack has died: what it did is done again."""
        if pack in self._files:
            self._set(pack, 0.0)

    def look(self) -> None:
        """Count what others have finished, where the last look was a while ago."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        present = {file.name for file in self._folder.iterdir()}
        for pack in [pack for pack, files in self._files.items() if present.issuperset(files)]:
            self._finish(pack)
        self._finished(len(self._all & present))
        self._looked = time.monotonic()

    def finish(self) -> None:
        """Everything is done."""
        for pack in list(self._files):
            self._finish(pack)
        self._finished(len(self._all))

    def _finish(self, pack: int) -> None:
        del self._files[pack]
        self._set(pack, self._costs[pack])

    def _set(self, pack: int, done: float) -> None:
        self._report(done - self._done.get(pack, 0.0))
        self._done[pack] = done
