"""What a redacted run leaves behind once it is finished."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from lightleak.callbacks.capture_store import redact_captures
from lightleak.core.private_files import private_files
from lightleak.core.stored import read_json, write_json
from lightleak.experiments.settings import Redact

ATTACKABLE = ("captures", "checkpoints", "models", "generators")
"""Folders of a run from which rows can be recovered: updates, and networks that can remember rows."""

DROPPED_FILE = "dropped.json"
"""Says which folders of a finished run were dropped, and which captures there were."""


def redact_run(folder: Path, redact: Redact, private: Sequence[str] = ()) -> None:
    """Redact a finished run folder; one that is redacted already stays unchanged.

    Args:
        folder: the run folder.
        redact: ``True`` takes rows and marginals out of the captures; ``all`` removes `ATTACKABLE` and notes it in
            ``dropped.json``, so that the run is known to be finished.
        private: folders that no redacted run keeps.
    """
    if redact != "all":
        if redact:
            redact_captures(folder / "captures")
            for name in private:
                shutil.rmtree(folder / name, ignore_errors=True)
        return
    if dropped(folder) is None:
        held = sorted(path.name for path in (folder / "captures").glob("*"))
        with private_files():
            write_json(folder / DROPPED_FILE, {"folders": list(ATTACKABLE), "captures": held})
    for name in (*ATTACKABLE, *private):  # also where an earlier process was stopped in between
        shutil.rmtree(folder / name, ignore_errors=True)


def dropped(folder: Path) -> list[str] | None:
    """Names of the captures that a finished run has dropped, or None where it has dropped nothing."""
    file = folder / DROPPED_FILE
    if not file.is_file():
        return None
    return list(read_json(file)["captures"])
