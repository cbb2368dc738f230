"""Files: written atomically, read with size limits and never unpickled, set aside when damaged."""

import json
import logging
import uuid
from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from lightleak.core.errors import ObservationError

MAX_FACTS_BYTES = 64 * 2**20  # a schema of 100,000 categories takes a few MiB; more is not ours
MAX_TENSOR_BYTES = 16 * 2**30
_logger = logging.getLogger(__name__)
DAMAGED = ".damaged-"
"""Stands between the name of what was set aside and a number."""

PARTIAL = ".part"
"""Ends the name of a file that is being written, or that a kill has left."""

FOLDER_MODE, FILE_MODE = 0o700, 0o600  # what is stored may hold private rows: its owner alone reads it


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file atomically, and its folder if need be: a file that exists is complete.

    Of several processes that write the same file at once, the last one's content stays. A disk that fills up leaves
    the earlier file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk: a write knows no name
            error.filename = str(path)
        raise


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON file as `write_whole` does."""
    write_whole(path, json.dumps(content, indent=indent))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that this package has written."""
    return json.loads(path.read_text())


def set_aside(path: Path, why: str) -> None:
    """Rename a damaged file or folder, so that it is made again and can still be looked at; log a warning.

    Args:
        path: what is renamed. Where another process was faster, nothing is done.
        why: the reason, and what happens now, for the warning.
    """
    for number in count(1):
        kept = path.with_name(f"{path.name}{DAMAGED}{number}")
        if not kept.exists():
            break
    try:
        path.rename(kept)
    except FileNotFoundError:
        return
    _logger.warning("%s was renamed to %s: %s", path, kept.name, why)


def read_facts(path: Path, what: str, version: int) -> dict[str, Any]:
    """The mapping in a JSON file, without its ``schema_version``.

    Args:
        path: the file.
        what: what it describes, for errors.
        version: the version it must have.

    Raises:
        ObservationError: the file is missing, too large, no JSON mapping, or of another version.
    """
    _check_file(path, what, MAX_FACTS_BYTES)
    try:
        facts = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8, endless numbers, endless nesting
        raise ObservationError(f"{path} is not JSON: {error}") from error
    found = facts.pop("schema_version", None) if isinstance(facts, dict) else None
    if found != version or isinstance(found, bool):
        raise ObservationError(
            f"{path}: schema_version must be {version}, got {found!r}; another version of lightleak wrote it: capture "
            "again, or attack it with that version"
        )
    return dict(facts)


def read_tensors(path: Path, max_bytes: int = MAX_TENSOR_BYTES) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ObservationError: the file is missing, too large or damaged.
    """
    _check_file(path, "tensors", max_bytes)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ObservationError(f"{path} is not a safetensors file: {error}") from error


def write_groups(path: Path, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write named tensors in groups as one safetensors file; `read_groups` reads it."""
    tensors = {
        f"{group}/{name}": tensor.detach().cpu().clone().contiguous()
        for group, named in groups.items()
        for name, tensor in named.items()
    }
    save_file(tensors, path)


def write_parts(
    folder: Path, facts: Mapping[str, Any], groups: Mapping[str, Mapping[str, Tensor]], tables: Mapping[str, Any]
) -> None:
    """Write ``facts.json``, ``tensors.safetensors`` and a Parquet file of each frame, for their owner only."""
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    write_groups(folder / "tensors.safetensors", groups)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))
    for name, rows in tables.items():
        rows.to_parquet(folder / f"{name}.parquet", index=False)
    for file in folder.iterdir():
        file.chmod(FILE_MODE)


def read_groups(path: Path, names: Collection[str], max_bytes: int = MAX_TENSOR_BYTES) -> dict[str, dict[str, Tensor]]:
    """Named tensors by group, empty groups included.

    Raises:
        ObservationError: the file is missing, too large or damaged, or has a tensor of another group.
    """
    groups: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for key, tensor in read_tensors(path, max_bytes).items():
        group, _, name = key.partition("/")
        if group not in groups:
            raise ObservationError(f"{path.parent}: unknown tensor {key!r}; expected one of {sorted(groups)}")
        groups[group][name] = tensor
    return groups


def is_tensor_file(path: Path) -> bool:
    """Whether a safetensors file has a header and the length that it names; the tensors are not read."""
    try:
        with safe_open(path, "pt"):
            return True
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError):
        return False


def _check_file(path: Path, what: str, max_bytes: int) -> None:
    if not path.is_file():
        raise ObservationError(f"no {what} at {path.parent}: {path.name} is missing")
    if path.stat().st_size > max_bytes:
        raise ObservationError(f"{path} has {path.stat().st_size} bytes; at most {max_bytes} are read")
