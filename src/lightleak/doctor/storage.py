"""Check that runs can be stored in a folder.

The checks try what the code relies on: permissions for the owner alone, a lock on a folder in use, results that are
renamed into place, and Optuna's journal, which is locked like a folder and appended to.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from lightleak.doctor.finding import Check, Facts, Finding

TOPIC = "storage"
FOLDER, SPACE, FILE_SYSTEM = (Check(TOPIC, name) for name in ("folder", "space", "file system"))

IN_MEMORY = frozenset(("tmpfs", "ramfs"))

NO_SPACE_BYTES = 2**28
LITTLE_SPACE_BYTES = 2**31
"""A run of a few hundred units with its reconstructions takes some hundred megabytes."""

MOUNTS = Path("/proc/self/mounts")


def check(facts: Facts) -> list[Finding]:
    """Check the folder that runs are written to; files of the checks are removed again."""
    folder = nearest_folder(facts.output)
    kind = file_system(folder, MOUNTS.read_text() if MOUNTS.is_file() else "")
    return [*tries(facts.output, folder), free_space(shutil.disk_usage(folder).free, folder), is_kept(kind)]


def nearest_folder(path: Path) -> Path:
    """Return the folder, or its deepest existing parent, in which it would be created."""
    path = path.expanduser().absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def tries(output: Path, folder: Path) -> list[Finding]:
    """Try the operations of a run in ``output`` in a temporary folder within ``folder``."""
    if output.exists() and not output.is_dir():
        return [FOLDER.problem(f"{output} is a file", "name a folder with --output")]
    try:
        inside = Path(tempfile.mkdtemp(prefix=".lightleak-doctor-", dir=folder))
    except OSError as error:
        fix = "name a folder of your own with --output, or get write permission (chmod u+w)"
        return [FOLDER.problem(f"nothing can be written in {folder}: {error.strerror}", fix)]
    try:
        where = str(folder) if folder == output.expanduser().absolute() else f"{output} would be created in {folder}"
        return [FOLDER.ok(where), *(_try(*trial, inside) for trial in TRIALS)]
    finally:
        shutil.rmtree(inside, ignore_errors=True)


def free_space(free: int, folder: Path) -> Finding:
    """Check that there is room for runs; quotas of a cluster are often known only to its own commands."""
    found = f"{free / 2**30:.1f} GiB free"
    if free < NO_SPACE_BYTES:
        return SPACE.problem(found, f"free space in {folder}, or name another folder with --output")
    if free < LITTLE_SPACE_BYTES:
        return SPACE.note(found, "enough for small runs; --redact true keeps runs smaller")
    return SPACE.ok(found)


def file_system(folder: Path, mounts: str) -> str | None:
    r"""Return the type of the file system of a folder from the table of mounts; ``None`` if it is not listed.

    >>> file_system(Path("/data/runs"), "/dev/sda / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\n")
    'nfs4'
    """
    path = folder.resolve()
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = Path(words[1].replace("\\040", " "))
        # Of two mounts at one place the later one is seen.
        if path.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = len(point.parts), words[2]
    return found[1] if found else None


def is_kept(kind: str | None) -> Finding:
    """Check that the content of a file system survives a restart."""
    if kind in IN_MEMORY:
        fix = "name a folder on a disk with --output if the run is to be kept"
        return FILE_SYSTEM.note(f"{kind}: its content is lost at the next restart", fix)
    return FILE_SYSTEM.ok(kind or "unknown")


def owner_only(folder: Path) -> str | None:
    """Return what is wrong with permissions: run folders hold private rows, for their owner alone."""
    inner = folder / "private"
    inner.mkdir()
    inner.chmod(0o700)
    others = stat.S_IMODE(inner.stat().st_mode) & 0o077
    return f"others can still read a folder closed to them (mode {others:03o} is left)" if others else None


def lock(folder: Path) -> str | None:
    """Return what is wrong with the lock of a folder in use."""
    file = folder / ".lock"
    with FileLock(file):
        try:
            with FileLock(file, blocking=False):
                return "a file could be locked twice"
        except Timeout:
            return None


def journal(folder: Path) -> str | None:
    """Return what is wrong with appending to Optuna's journal, which several processes do in turn."""
    log = folder / "journal.log"
    with log.open("ab") as file:
        file.write(b"one\n")
        file.flush()
        os.fsync(file.fileno())
        with log.open("ab") as other:
            other.write(b"two\n")
    return None if log.read_bytes() == b"one\ntwo\n" else "what two handles append to one file is not kept"


def renaming(folder: Path) -> str | None:
    """Return what is wrong with replacing a file by a finished one."""
    old, new = folder / "results.json", folder / "results.json.part"
    old.write_text("old")
    new.write_text("new")
    new.replace(old)
    return None if old.read_text() == "new" and not new.exists() else "a file cannot be renamed onto another"


_ELSEWHERE = "name a folder on another file system with --output"

TRIALS: tuple[tuple[str, Callable[[Path], str | None], str, str], ...] = (
    ("owner only", owner_only, "folders can be closed to others", f"{_ELSEWHERE}: this one ignores permissions"),
    ("lock", lock, "only one process can lock a file", _ELSEWHERE),
    ("journal", journal, "appends are kept", f"{_ELSEWHERE}, or give studies a database (study.storage)"),
    ("rename", renaming, "a file is replaced whole", _ELSEWHERE),
)


def _try(check: str, trial: Callable[[Path], str | None], fine: str, fix: str, folder: Path) -> Finding:
    try:
        wrong = trial(folder)
    except OSError as error:
        wrong = f"{error.strerror}"
    return Check(TOPIC, check).ok(fine) if wrong is None else Check(TOPIC, check).problem(wrong, fix)
