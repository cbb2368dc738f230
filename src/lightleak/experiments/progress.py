"""How far a campaign is: what this process and its workers do, and what files tell of the others."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LOOK_SECONDS = 5.0
"""Between two looks at the files of finished units: one listing of a folder, whatever the number of packs."""

Report = Callable[[float], None]


@contextmanager
def progress_bar(title: str, total: float, quiet: bool) -> Iterator[Report]:
    """A bar with the time left; the function it yields is told about work done, in units of ``total``."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=quiet) as progress:
        task = progress.add_task(title, total=total)
        yield lambda amount: progress.advance(task, amount)


class CampaignProgress:
    """Tells a bar how much of a campaign is done, whoever does it.

    Args:
        costs: of the packs that are not done yet, by number.
        files: names of the files that each of them leaves.
        folder: where those files are.
        report: the bar's.
    """

    def __init__(
        self, costs: Mapping[int, float], files: Mapping[int, Sequence[str]], folder: Path, report: Report
    ) -> None:
        self._costs, self._files, self._folder, self._report = costs, dict(files), folder, report
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
        self._looked = time.monotonic()

    def finish(self) -> None:
        """Everything is done."""
        for pack in list(self._files):
            self._finish(pack)

    def _finish(self, pack: int) -> None:
        del self._files[pack]
        self._set(pack, self._costs[pack])

    def _set(self, pack: int, done: float) -> None:
        self._report(done - self._done.get(pack, 0.0))
        self._done[pack] = done
