"""Find and verify the raw files of a dataset, with one clear error if they are missing or damaged."""

import hashlib
import logging
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lightleak.core.errors import DataError

if TYPE_CHECKING:  # so that `lightleak data list` starts without pandas
    from lightleak.data.table import DatasetCard

DATA_DIR_VARIABLE = "LIGHTLEAK_DATA_DIR"

_logger = logging.getLogger(__name__)


def data_root(data_dir: Path | str | None = None) -> Path:
    """The folder that holds one subfolder per dataset.

    The argument wins, then the environment variable ``LIGHTLEAK_DATA_DIR``, then ``data/`` of the source checkout the
    package runs from, then the user's cache folder.
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get(DATA_DIR_VARIABLE):
        return Path(named).expanduser()
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file() and (checkout / "src" / "lightleak").is_dir():
        return checkout / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lightleak"


def dataset_folder(name: str, data_dir: Path | str | None = None) -> Path:
    """The folder with the raw files of one dataset; it need not exist."""
    return data_root(data_dir) / name


def find_file(folder: Path, *names: str) -> Path:
    """The first of ``names`` that exists in the folder of a dataset.

    Raises:
        DataError: none exists; the message names the file, the folder and the command that fetches it.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    wanted = " or ".join(repr(name) for name in names)
    raise DataError(
        f"dataset {folder.name!r} needs the file {wanted} in {folder}, which has none; run `lightleak data prepare "
        f"{folder.name}` or let {DATA_DIR_VARIABLE} name the folder that holds {folder.name}/"
    )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_checksums(card: "DatasetCard", folder: Path) -> None:
    """Compare every file of the card that is there and has a known checksum; the log names those that have none.

    Raises:
        DataError: a checksum differs.
    """
    for name in card.files:
        path = folder / name
        if not path.is_file():
            continue
        expected = card.sha256.get(name)
        if expected is None:
            _logger.info("%s: no checksum is known for %s; it is read unchecked", card.name, name)
        elif (got := sha256_of(path)) != expected:
            raise DataError(
                f"{path}: expected SHA-256 {expected}, got {got}; fetch it again with `lightleak data prepare "
                f"{card.name} --force`, or skip the check with verify=False"
            )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every way in which reading a file can fail into one error that names the file.

    Raises:
        DataError: the file is damaged, truncated or of another format.
    """
    import pandas as pd

    try:
        yield
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read: it is not UTF-8 text ({error}); save it as UTF-8") from error
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{path} cannot be read: it is empty; it needs a line of column names and rows") from error
    except pd.errors.ParserError as error:
        fix = "quote cells that hold the separator"
        raise DataError(f"{path} cannot be read: {' '.join(str(error).split())}; {fix}") from error
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        zlib.error,
        tarfile.TarError,
        zipfile.BadZipFile,
    ) as error:
        raise DataError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
