"""Observations that a process has made or read, kept while memory allows: each serves every attack on it."""

from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from uuid import uuid4

from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.remembered import Remembered
from lightleak.core.stored import DAMAGED

Observed = tuple[ClientUpdate, GroundTruth | None]

KEPT_BYTES = 2**29
"""Tensors of observations that a process keeps; at least one observation is always kept."""


def shared(observe: Callable[[int, int], Observed]) -> Callable[[int, int], Callable[[], Observed]]:
    """Return a function that gives, for a number of rows and an index, what observes that client once for all attacks.

    Args:
        observe: makes the observation; it must depend on nothing else.
    """
    plan = uuid4().hex
    return lambda n_rows, index: partial(recall, (plan, n_rows, index), partial(observe, n_rows, index))


def recall(key: Hashable, make: Callable[[], Observed]) -> Observed:
    """Return the observation of ``key`` from those of this process, made by ``make`` unless it is still there."""
    return OBSERVATIONS.get((), make, key)


def version_of(folder: Path) -> Hashable:
    """Return the files of a folder with their times and sizes: a capture that was written again has another version."""
    files = ((file, file.stat()) for file in sorted(folder.rglob("*")) if file.is_file())
    return folder.resolve(), tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in files)


def bytes_of(observed: Observed) -> int:
    """Bytes of the tensors of an observation and of the rows behind it."""
    update, truth = observed
    further = (update.further_parameters, update.further_updates)
    groups = (update.parameters, update.update, update.buffers, update.encoder_tensors, *further)
    held: list[Tensor] = [tensor for group in groups for tensor in group.values()]
    held += [] if truth is None else [truth.inputs, truth.labels]
    return sum(tensor.nbytes for tensor in held)


OBSERVATIONS = Remembered(KEPT_BYTES, bytes_of)
"""Those of this process."""


def find_captures(root: Path) -> list[Path]:
    """Folders below ``root`` (or ``root`` itself) that hold an ``observation/``, sorted.

    Raises:
        UsageError: there is none.
    """
    folders = sorted(path.parent for path in root.rglob("observation") if path.is_dir()) if root.is_dir() else []
    found = [folder for folder in folders if DAMAGED not in folder.name]
    if not found:
        raise UsageError(f"--capture {root} holds no captured update (a folder with observation/facts.json)")
    return found


def named_captures(root: Path) -> dict[str, Path]:
    """The same by names that are unique among them: parts of the path, joined; a number where two would be equal."""
    found: dict[str, Path] = {}
    for path in find_captures(root):
        name = plain = "-".join(path.relative_to(root).parts) or root.resolve().name
        number = 2
        while name in found:
            name, number = f"{plain}-{number}", number + 1
        found[name] = path
    return found
