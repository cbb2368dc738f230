"""Check that runs can be stored in a folder, and that several processes can share it.

The checks try what the code relies on: claims (`lightleak.core.claims`) create files exclusively and touch them,
results are renamed into place, and Optuna's journal takes a symbolic link as its lock and appends.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from lightleak.doctor.finding import Check, Facts, Finding

TOPIC = "storage"
FOLDER, SPACE, FILE_SYSTEM = (Check(TOPIC, name) for name in ("folder", "space", "file system"))

NETWORK = frozenset(("9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4"))
NETWORK |= {"orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"}
LOCAL = frozenset(
    ("apfs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfs", "ntfs", "overlay", "ramfs", "tmpfs")
)
LOCAL |= {"vfat", "xfs", "zfs"}
IN_MEMORY = frozenset(("tmpfs", "ramfs"))

NO_SPACE_BYTES = 2**28
LITTLE_SPACE_BYTES = 2**31
"""A run of a few hundred units with its reconstructions takes some hundred megabytes."""

_COUNTS = ("SLURM_NNODES", "WORLD_SIZE", "LOCAL_WORLD_SIZE")

MOUNTS = Path("/proc/self/mounts")


def check(facts: Facts) -> list[Finding]:
    """Check the folder that runs are written to; files of the checks are removed again."""
    folder = nearest_folder(facts.output)
    kind = file_system(folder, MOUNTS.read_text() if MOUNTS.is_file() else "")
    return [
        *tries(facts.output, folder),
        free_space(shutil.disk_usage(folder).free, folder),
        shared(kind, nodes(facts.variables)),
    ]


def nodes(variables: Mapping[str, str]) -> int:
    """Return the number of nodes that take part, as far as the launcher says.

    >>> nodes({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"})
    2
    """
    counts = {name: int(text) for name, text in variables.items() if text.isdigit() and name in _COUNTS}
    by_torchrun = counts.get("WORLD_SIZE", 1) // max(1, counts.get("LOCAL_WORLD_SIZE", counts.get("WORLD_SIZE", 1)))
    return max(1, counts.get("SLURM_NNODES", 1), by_torchrun)


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


def shared(kind: str | None, n_nodes: int) -> Finding:
    """Check that the kind of file system fits the number of nodes that share the folder."""
    if kind in NETWORK or (kind or "").startswith("fuse."):
        found = f"{kind}: looks like a network file system, which other machines may share"
        fix = "databases such as SQLite break on it: use a journal file for studies, which is the default"
        return FILE_SYSTEM.note(found, fix)
    if n_nodes > 1 and kind in LOCAL:
        fix = "name a folder that all nodes see with --output, often below /scratch or /project"
        return FILE_SYSTEM.problem(f"{kind}: other nodes do not see it, and there are {n_nodes}", fix)
    if kind in IN_MEMORY:
        fix = "name a folder on a disk with --output if the run is to be kept"
        return FILE_SYSTEM.note(f"{kind}: its content is lost at the next restart", fix)
    if kind in LOCAL:
        return FILE_SYSTEM.ok(f"{kind}: a disk of this machine alone")
    return FILE_SYSTEM.ok(f"{kind or 'unknown'}: unclear whether other machines share it")


def owner_only(folder: Path) -> str | None:
    """Return what is wrong with permissions: run folders hold private rows, for their owner alone."""
    inner = folder / "private"
    inner.mkdir()
    inner.chmod(0o700)
    others = stat.S_IMODE(inner.stat().st_mode) & 0o077
    return f"others can still read a folder closed to them (mode {others:03o} is left)" if others else None


def exclusive_creation(folder: Path) -> str | None:
    """Return what is wrong with exclusive creation of a file."""
    file = folder / "one.claim"
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    return "a file could be created twice"


def signs_of_life(folder: Path) -> str | None:
    """Return what is wrong with touching a file so that others see it."""
    file = folder / "touched.claim"
    file.write_text("")
    os.utime(file, (1, 1))
    os.utime(file)
    return None if file.stat().st_mtime > 1 else "touching a file does not change its time"


def locks(folder: Path) -> str | None:
    """Return what is wrong with the lock of Optuna's journal, a symbolic link that only one process may create."""
    journal, lock = folder / "journal.log", folder / "journal.log.lock"
    with journal.open("ab") as file:
        file.write(b"one\n")
        file.flush()
        os.fsync(file.fileno())
        os.symlink(journal, lock)
        try:
            os.symlink(journal, lock)
        except FileExistsError:
            pass
        else:
            return "a link could be created twice"
        with journal.open("ab") as other:
            other.write(b"two\n")
    return None if journal.read_bytes() == b"one\ntwo\n" else "what two handles append to one file is not kept"


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
    ("claims", exclusive_creation, "only one process can create a file", f"{_ELSEWHERE}, or start one process"),
    ("heartbeat", signs_of_life, "touching a file changes its time", f"{_ELSEWHERE}, or start one process"),
    ("journal", locks, "links lock, appends are kept", f"{_ELSEWHERE}, or give studies a database (study.storage)"),
    ("rename", renaming, "a file is replaced whole", _ELSEWHERE),
)


def _try(check: str, trial: Callable[[Path], str | None], fine: str, fix: str, folder: Path) -> Finding:
    try:
        wrong = trial(folder)
    except OSError as error:
        wrong = f"{error.strerror}"
    return Check(TOPIC, check).ok(fine) if wrong is None else Check(TOPIC, check).problem(wrong, fix)
