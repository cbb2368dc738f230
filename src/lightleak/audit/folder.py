"""The beginning of a run: whatever the number of processes that come at once, one says what its folder holds."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

from lightleak.audit.campaign import CLAIMS
from lightleak.core.claims import Claims
from lightleak.core.errors import UsageError
from lightleak.core.stored import FOLDER_MODE


def begin_folder(folder: Path, saved: Path, noun: str, begin: Callable[[], object]) -> None:
    """Return when the folder is begun: created, for its owner only, and ``saved`` written by one of all processes.

    Args:
        folder: of a run, a reproduction or a study.
        saved: the file that says what the folder is about.
        noun: what it holds, for the error.
        begin: writes ``saved``, whole, after everything else.

    Raises:
        UsageError: it is a file, holds something else, or cannot be made or written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output must be a folder, got the file {folder}")
    if saved.is_file():
        return
    # The first thing in a new folder are the claims of whoever made it.
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CLAIMS).is_dir() and not saved.is_file():
        raise UsageError(f"{folder} is not empty and holds no {noun}; choose another --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(FOLDER_MODE)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--output {folder} cannot be made or written ({error.strerror}); choose another") from error
    Claims(folder / CLAIMS).once("config", saved.is_file, begin)
