"""Where Optuna keeps a study: a journal file or a database, which a cluster reaches through Optuna's gRPC proxy."""

import logging
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.core.stored import write_whole

_logger = logging.getLogger(__name__)
JOURNAL = "journal.log"
PROXY = "grpc://"
"""Begins the address of a storage that is reached through Optuna's gRPC proxy."""
READY_SECONDS = 30.0
"""Timeout for the proxy to start."""


def address_of(url: str | None, folder: Path) -> str:
    """Return the URL of a database with its environment variables filled in, or else the path of the journal."""
    return str(folder.resolve() / JOURNAL) if url is None else os.path.expandvars(url)


def open_storage(address: str) -> Any:
    """Return Optuna's storage at an address.

    Args:
        address: path of a journal, URL of a database, or ``grpc://HOST:PORT``.

    Raises:
        Exception: SQLAlchemy's and the driver's own, for a database that cannot be opened.
    """
    import optuna

    if address.startswith(PROXY):
        host, _, port = address.removeprefix(PROXY).rpartition(":")
        with _without_experimental_warnings():
            return optuna.storages.GrpcStorageProxy(host=host, port=int(port))
    if Path(address).is_absolute():
        from optuna.storages import journal

        return optuna.storages.JournalStorage(journal.JournalFileBackend(address))
    return optuna.storages.get_storage(address)


def open_study_storage(url: str | None, folder: Path) -> Any:
    """Return the storage of a study that this process alone writes; a damaged journal is repaired first.

    Raises:
        UsageError: the database cannot be opened.
    """
    if url is None:
        cut_journal(folder / JOURNAL)
    try:
        return open_storage(address_of(url, folder))
    except Exception as error:
        raise UsageError(f"study.storage {url!r} cannot be opened: {error}") from error


@contextmanager
def served(storage: Any, host: str) -> Iterator[str]:
    """Serve a storage to other machines and yield its address; the server ends with this process.

    Requests are answered one at a time by one thread: Optuna's journal ties a trial to the thread that asked for it.

    Args:
        storage: of the study.
        host: address of this machine that the others reach.
    """
    import optuna

    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    options = {"host": host, "port": port, "thread_pool": ThreadPoolExecutor(1)}
    with _without_experimental_warnings():
        serve = optuna.storages.run_grpc_proxy_server
        threading.Thread(target=serve, args=(storage,), kwargs=options, daemon=True).start()
        proxy = optuna.storages.GrpcStorageProxy(host=host, port=port)
        proxy.wait_server_ready(timeout=READY_SECONDS)
        proxy.close()
    yield f"{PROXY}{host}:{port}"


def cut_journal(file: Path) -> None:
    """Cut off a last record that a kill or a full disk left unfinished; the next one would be appended to it.

    A trial whose end is lost runs again.
    """
    content = file.read_bytes() if file.is_file() else b""
    if content and not content.endswith(b"\n"):
        write_whole(file.with_name(f"{file.name}.damaged-{len(content)}"), content)
        write_whole(file, content[: content.rfind(b"\n") + 1])
        _logger.warning("%s ended within a record, which was cut off; its trial runs again", file)


@contextmanager
def _without_experimental_warnings() -> Iterator[None]:
    import optuna

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        yield
