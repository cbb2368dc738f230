"""The beginning of a run: whatever the number of processes that come at once, one says what its folder holds.

A folder that is continued is looked through first: what a full disk, a kill or a copy that broke off has damaged is set
aside, so that the run makes it again.
"""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryFile

from lightleak.core.claims import Claims
from lightleak.core.errors import UsageError
from lightleak.core.stored import FOLDER_MODE, is_tensor_file, set_aside
from lightleak.experiments.campaign import CLAIMS
from lightleak.experiments.results import RESULTS_FILE
from lightleak.experiments.unit import unit_file


def begin_folder(
    folder: Path, saved: Path, noun: str, begin: Callable[[], object], beside: Collection[Path] = ()
) -> None:
    """Return when the folder is begun: created, for its owner only, and ``saved`` written by one of all processes.

    Args:
        folder: of a run, a reproduction or a study.
        saved: the file that says what the folder is about.
        noun: what it holds, for the error.
        begin: writes ``saved``, whole, after everything else.
        beside: JSON files that say more of what it is about.

    Raises:
        UsageError: it is a file, holds something else, cannot be made or written, or what says what it is about is
            damaged.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output must be a folder, got the file {folder}")
    if saved.is_file():
        about = (saved, *beside)
        if damaged := [file for file in about if file.suffix == ".json" and file.exists() and not _is_json(file)]:
            raise UsageError(f"{damaged[0]} is damaged, and says what {folder} is about; choose another --output")
        set_aside_damaged(folder, about)
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


def set_aside_damaged(folder: Path, about: Collection[Path]) -> None:
    """Rename every file of a run that cannot be read, and the unit it belongs to, so that the run makes them again.

    Looked at are the files that are written whole, which no process is in the middle of writing: JSON, reconstructions
    and kept weights, of this run and of runs within its folder. Checkpoints are looked at when they are used.

    Args:
        folder: of a run, a reproduction or a study.
        about: files that say what it is about, which nobody could make again.
    """
    for run in (folder, *(units.parent for units in folder.glob("*/units"))):
        damaged = [file for file in run.glob("*.json") if file not in about and not _is_json(file)]
        damaged += [file for file in run.glob("*/*.json") if not _is_json(file)]
        damaged += [file for file in run.glob("reconstructions/*.csv") if not _ends(file)]
        damaged += [file for file in run.glob("models/*/*.safetensors") if not is_tensor_file(file)]
        for file in damaged:
            for unit in (file.stem, file.parent.name, f"model-{file.parent.name}"):
                kept = unit_file(run, unit)
                if kept not in damaged and kept.is_file():  # before the file: without it, whoever resumes makes both
                    set_aside(kept, f"it belongs to {file.name}, which is damaged; both are made again")
            set_aside(file, "it is damaged and made again")
        if damaged:
            (run / RESULTS_FILE).unlink(missing_ok=True)  # what else is made with the results is then made again too


def _is_json(file: Path) -> bool:
    """Whether it holds a mapping or a list; all that a run writes does."""
    try:
        return isinstance(json.loads(file.read_text(encoding="utf-8")), dict | list)
    except (ValueError, RecursionError):  # also bytes that are not UTF-8
        return False
    except FileNotFoundError:  # replaced meanwhile
        return True


def _ends(file: Path) -> bool:
    """Whether a CSV file ends in a whole line of text."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return True
    return content.endswith(b"\n") and b"\0" not in content
