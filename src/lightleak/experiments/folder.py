"""The folder of a run: opened by one process at a time, and checked for damage when it is opened again.

What a full disk, a kill or an interrupted copy has damaged is set aside, so that the run makes it again.
"""

import json
import os
import socket
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing import parent_process
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zipfile import BadZipFile, ZipFile

from filelock import FileLock, Timeout

from lightleak.core.errors import UsageError
from lightleak.core.stored import FILE_MODE, FOLDER_MODE, PARTIAL, is_tensor_file, set_aside, write_whole
from lightleak.experiments.results import RESULTS_FILE
from lightleak.experiments.unit import PEOPLE, unit_file

LOCK_FILE, HOLDER_FILE = ".lock", ".in-use.json"
"""The lock of a folder in use, which the system releases when its process dies, and who holds it."""

DYING_SECONDS = 10.0
"""How long to wait for the folder of a killed process: its workers end when they notice, and hold it until then."""


@contextmanager
def opened_folder(
    folder: Path, saved: Path, noun: str, begin: Callable[[], object], others: Collection[Path] = ()
) -> Iterator[None]:
    """Within the block this process alone uses the folder, which exists and says in ``saved`` what it is about.

    Args:
        folder: of a run, a reproduction or a study; created, readable by its owner only.
        saved: the file that says what the folder is about.
        noun: what it holds, for errors.
        begin: writes ``saved``, after everything else that a new folder needs.
        others: JSON files that also say what it is about.

    Raises:
        UsageError: the folder is a file, holds something else, cannot be written, is in use by another process, or a
            file that says what it is about is damaged.
    """
    require_reachable(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output must be a folder, got the file {folder}")
    begun = {LOCK_FILE, HOLDER_FILE, *(file.name for file in others)}
    if folder.is_dir() and not saved.is_file() and _holds_more(folder, begun):
        raise UsageError(f"{folder} is not empty and holds no {noun}; choose another --output")
    with _locked(folder):
        for left in folder.rglob(f"*{PARTIAL}"):
            if left.is_file():
                left.unlink(missing_ok=True)
        if saved.is_file():
            about = (saved, *others)
            if damaged := [file for file in about if file.suffix == ".json" and file.exists() and not _is_json(file)]:
                raise UsageError(f"{damaged[0]} is damaged, and says what {folder} is about; choose another --output")
            set_aside_damaged(folder, about)
        else:
            begin()
        yield


def require_reachable(folder: Path) -> None:
    """Check that this user may look for a folder and into it.

    Raises:
        UsageError: not so.
    """
    try:
        if folder.is_dir():
            next(folder.iterdir(), None)
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}; choose a folder of your own") from error


def _holds_more(folder: Path, begun: Collection[str]) -> bool:
    """Whether a folder holds anything but these files and what a kill left of files that were being written."""
    return any(file.name not in begun and file.suffix != PARTIAL for file in folder.iterdir())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock, holder = FileLock(folder / LOCK_FILE, mode=FILE_MODE), folder / HOLDER_FILE
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(FOLDER_MODE)
        with TemporaryFile(dir=folder):
            pass
        try:
            lock.acquire(timeout=0)
        except Timeout:
            lock.acquire(timeout=0 if _is_at_work(_held_by(holder)) else DYING_SECONDS)
    except Timeout:
        who = _held_by(holder)
        words = "process {pid} on {host} since {since}".format(**who) if who else "another process"
        raise UsageError(f"{folder} is in use by {words}; wait until it ends, or choose another --output") from None
    except OSError as error:
        raise UsageError(f"--output {folder} cannot be made or written ({error.strerror}); choose another") from error
    try:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"host": socket.gethostname(), "pid": os.getpid(), "since": now}
        if driver := parent_process():  # a worker, which ends when its driver has
            who["driver"] = driver.pid
        write_whole(holder, json.dumps(who))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _held_by(holder: Path) -> dict[str, Any]:
    """What a folder says of who holds it: process, host and since when; empty where it says nothing."""
    return json.loads(holder.read_text()) if holder.is_file() and _is_json(holder) else {}


def _is_at_work(who: dict[str, Any]) -> bool:
    """Whether the process that holds a folder lives, and the driver of a worker; those of another machine may."""
    if not who or who["host"] != socket.gethostname():
        return bool(who)
    return all(_lives(who[name]) for name in ("pid", "driver") if name in who)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def set_aside_damaged(folder: Path, about: Collection[Path]) -> None:
    """Rename every file of a run that cannot be read, and the unit it belongs to, so that the run makes them again.

    Checks JSON files, reconstructions, what is kept of people, and weights of this run and of runs within its folder.
    Checkpoints are checked when they are used.

    Args:
        folder: of a run, a reproduction or a study.
        about: files that say what it is about, which cannot be made again.
    """
    for run in (folder, *(units.parent for units in folder.glob("*/units"))):
        damaged = [file for file in run.glob("*.json") if file not in about and not _is_json(file)]
        damaged += [file for file in run.glob("*/*.json") if not _is_json(file)]
        damaged += [file for file in run.glob("reconstructions/*.csv") if not _ends(file)]
        damaged += [file for file in run.glob(f"{PEOPLE}/*.npz") if not _is_whole_archive(file)]
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


def _is_whole_archive(file: Path) -> bool:
    """Whether every member of a zip file has the checksum that it names."""
    try:
        with ZipFile(file) as archive:
            return archive.testzip() is None
    except FileNotFoundError:
        return True
    except (BadZipFile, EOFError, zlib.error, NotImplementedError):  # the last by damage that reads as a compression
        return False
