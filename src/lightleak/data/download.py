"""Fetch the official files of a dataset: resumable, with a progress bar, checked where a checksum is known."""

import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from lightleak.core.errors import DataError
from lightleak.data.datasets import DATASETS, Dataset, Download
from lightleak.data.sources import dataset_folder, reading, sha256_of

TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class PreparedFile:
    """A file that is ready to be loaded.

    Attributes:
        path: where it lies.
        sha256: its checksum.
        verified: the checksum was compared with a known one; otherwise none is known.
    """

    path: Path
    sha256: str
    verified: bool


def prepare(name: str, data_dir: Path | str | None = None, force: bool = False) -> tuple[PreparedFile, ...]:
    """Download the official files of a dataset into its folder; existing files are kept.

    Args:
        name: name in the registry.
        data_dir: folder with one subfolder per dataset; default: `lightleak.data.sources.data_root`.
        force: download existing files again.

    Returns:
        The files, none for a dataset that is generated or ships inside a package.

    Raises:
        UsageError: unknown dataset.
        DataError: no network, a broken transfer (the next call resumes it), a wrong checksum, or a dataset that only a
            person can fetch; the message says from where and into which folder.
    """
    entry, folder = DATASETS.get(name), dataset_folder(name, data_dir)
    for download in entry.downloads:
        if force or not all((folder / file).is_file() for file in download.provides):
            _fetch_and_unpack(entry, download, folder)
    return tuple(_prepared(entry, folder / file, file) for file in _files(entry, folder))


def _files(entry: Dataset, folder: Path) -> tuple[str, ...]:
    if entry.downloads:
        return tuple(file for download in entry.downloads for file in download.provides)
    absent = [file for file in entry.card.files if not (folder / file).is_file()]
    if absent:
        raise DataError(
            f"dataset {entry.card.name!r} cannot be fetched by a program ({entry.card.license}); "
            f"get {', '.join(absent)} from {entry.card.urls[0]} and put them into {folder}"
        )
    return entry.card.files


def _prepared(entry: Dataset, path: Path, file: str) -> PreparedFile:
    got, expected = sha256_of(path), entry.card.sha256.get(file)
    if expected is not None and got != expected:
        raise DataError(f"{path}: expected SHA-256 {expected}, got {got}; fetch it again with --force")
    return PreparedFile(path, got, verified=expected is not None)


def _fetch_and_unpack(entry: Dataset, download: Download, folder: Path) -> None:
    part = folder / f"{download.file}.part"
    fetch(download.url, part)
    expected = entry.card.sha256.get(download.file)
    if expected is not None and (got := sha256_of(part)) != expected:
        part.unlink()  # resuming a wrong file cannot make it right
        raise DataError(f"{download.url}: expected SHA-256 {expected}, got {got}; nothing was kept")
    if not download.members:
        os.replace(part, folder / download.file)
        return
    try:
        unpack(part, folder, download.members)
    finally:
        part.unlink()


def fetch(url: str, part: Path) -> None:
    """Download ``url`` to ``part``, resuming an earlier partial download, with a progress bar on stderr.

    Raises:
        DataError: the address cannot be reached or the transfer was interrupted; the partial file stays in ``part``.
    """
    try:
        with _open(url, part) as (response, start):
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else None
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab" if start else "wb") as file:
                _copy(response, file, part.name.removesuffix(".part"), start, total)
    except (urllib.error.URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} cannot be fetched: {reason}; try again, or download it elsewhere and put it into {part.parent}"
        ) from error
    if total is not None and (got := part.stat().st_size) != total:
        raise DataError(f"{url} was interrupted after {got} of {total} bytes; rerun the command to resume")


@contextmanager
def _open(url: str, part: Path) -> Iterator[tuple[HTTPResponse, int]]:
    """The response and the byte it starts at: 0 where the server cannot resume."""
    start = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "lightleak"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start:
            raise
        part.unlink()  # longer than the file there is now, or complete but never renamed: start over
        with _open(url, part) as again:
            yield again
        return
    with response:
        yield response, start if response.status == HTTPStatus.PARTIAL_CONTENT else 0


def _copy(response: HTTPResponse, file: IO[bytes], name: str, start: int, total: int | None) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=total, completed=start)
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)
            progress.advance(task, len(chunk))


def unpack(archive: Path, folder: Path, members: tuple[str, ...]) -> None:
    """Unpack the named members of a zip or tar archive into ``folder``, and nothing else of it.

    Raises:
        DataError: the archive is damaged or lacks a member.
    """
    with reading(archive):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for member in members:
                    with opened.open(_inside(member, opened.namelist())) as source:
                        _write(source, folder / member)
            return
        with tarfile.open(archive) as opened_tar:
            for member in members:
                content = opened_tar.extractfile(_inside(member, opened_tar.getnames()))
                if content is None:
                    raise ValueError(f"{member!r} is no file in it")
                with content:
                    _write(content, folder / member)


def _inside(member: str, names: list[str]) -> str:
    """The archive's own name of a member, which may stand below a leading folder."""
    for name in names:
        if name == member or name.endswith(f"/{member}"):
            return name
    raise ValueError(f"it has no {member!r}; it has {names[:10]}")


def _write(source: IO[bytes], target: Path) -> None:
    """Write the whole file or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.part")
    with unfinished.open("wb") as file:
        shutil.copyfileobj(source, file)
    os.replace(unfinished, target)
