"""The console of a command or a run."""

import os

from rich.console import Console


class SteadyConsole(Console):
    """A console that falls silent where nobody reads on, as behind ``| head``; rich's own ends the process."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on, and let the work continue."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # what others print, and what is flushed at the end of the process
        os.close(nowhere)
