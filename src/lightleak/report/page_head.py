"""What every report's template shows first."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Protocol

import lightleak
from lightleak.report.run_folder import RunFolder


class HasFolder(Protocol):
    """A run, of whatever kind."""

    @property
    def folder(self) -> RunFolder:
        """Config, environment and name."""


def page_head(runs: Sequence[HasFolder], title: str, subject: str, redact: bool) -> dict[str, Any]:
    """Title and origin of a report.

    Args:
        runs: what it is of.
        title: its heading.
        subject: what was measured on, in a few words.
        redact: whether values of rows are left out.
    """
    return {
        "runs": [run.folder for run in runs],
        "title": title,
        "subject": subject,
        "today": date.today().isoformat(),
        "version": lightleak.__version__,
        "redact": redact,
    }
