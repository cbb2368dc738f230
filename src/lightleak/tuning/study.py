"""The Optuna study of a folder: one driver asks it for trials and tells it how they ended.

Trials that a killed driver left unfinished run again under their numbers, so that the sampler sees no difference.
It also says which trial is best: of several objectives, the knee of their front.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from filelock import FileLock
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import FILE_MODE, write_whole
from lightleak.tuning.config import TuneConfig
from lightleak.tuning.samplers import build_pruner, build_sampler, without_experimental_warnings

_logger = logging.getLogger(__name__)
JOURNAL = "journal.log"
LOCK_SUFFIX = ".in-use"
"""Ends the name of a journal's lock, which the system releases when its process dies."""
PROXY = "grpc://"
"""Begins the address of a storage that is reached through Optuna's gRPC proxy."""
READY_SECONDS = 30.0
"""Timeout for the proxy to start."""


def open_storage(address: str) -> Any:
    """Return Optuna's storage at an address.

    Args:
        address: path of a journal, URL of a database, or ``grpc://HOST:PORT``.

    Raises:
        Exception: SQLAlchemy's and the driver's own, for a database that cannot be opened.
    """
    if address.startswith(PROXY):
        host, _, port = address.removeprefix(PROXY).rpartition(":")
        with without_experimental_warnings():
            return optuna.storages.GrpcStorageProxy(host=host, port=int(port))
    if Path(address).is_absolute():
        # Optuna's own lock outlives a killed process for 30 s, and then two that wait can both take it.
        lock: Any = FileLock(f"{address}{LOCK_SUFFIX}", mode=FILE_MODE)
        return optuna.storages.JournalStorage(JournalFileBackend(address, lock))
    return optuna.storages.get_storage(address)


@contextmanager
def served(storage: Any, host: str) -> Iterator[str]:
    """Serve a storage to other machines and yield its address; the server ends with this process.

    Requests are answered one at a time by one thread: Optuna's journal ties a trial to the thread that asked for it.

    Args:
        storage: of the study.
        host: address of this machine that the others reach.
    """
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    options = {"host": host, "port": port, "thread_pool": ThreadPoolExecutor(1)}
    with without_experimental_warnings():
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


STUDY_NAME = "lightleak"

MAX_RETRIES = 3
"""Maximum retries of a trial after the driver dies: a trial that kills the driver must not be tried forever."""

RETRIES, RESUMED, DEFAULT, WORKER, ERROR = "retries", "resumed", "is_default", "worker", "error"
"""Names of the user attributes of a trial."""


class Study:
    """The study in a folder.

    Args:
        config: the study's settings and search space.
        folder: where its files are; no other process has it open.

    Attributes:
        name: its name in Optuna.
        address: where workers of this machine reach its storage.
        storage: Optuna's storage.
        optuna: Optuna's study.

    Raises:
        UsageError: the database cannot be opened.
    """

    def __init__(self, config: TuneConfig, folder: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # not a line for every trial
        self.config, self.folder = config, folder
        self.name = STUDY_NAME if config.study.storage is None else f"{STUDY_NAME} {_id_of(folder)}"
        url, journal = config.study.storage, folder.resolve() / JOURNAL
        if url is None:
            cut_journal(journal)
        self.address = str(journal) if url is None else os.path.expandvars(url)
        try:
            self.storage = open_storage(self.address)
        except Exception as error:
            raise UsageError(f"study.storage {url!r} cannot be opened: {error}") from error
        self.optuna = optuna.create_study(
            study_name=self.name,
            storage=self.storage,
            directions=[objective.direction or "maximize" for objective in config.study.objectives],
            pruner=build_pruner(config.study.pruner),
            load_if_exists=True,
        )
        self._begun: dict[int, Any] = {}  # by this process, by number
        if not self.trials:
            self.optuna.enqueue_trial(config.space.defaults(), user_attrs={DEFAULT: True})

    @property
    def trials(self) -> list[Any]:
        """Optuna's trials, by number."""
        return self.optuna.get_trials(deepcopy=False)

    @property
    def complete(self) -> list[Any]:
        """The trials that have values."""
        return [trial for trial in self.trials if trial.state.name == "COMPLETE"]

    @property
    def default_trial(self) -> Any | None:
        """The complete trial of the defaults."""
        return next((trial for trial in self.complete if trial.user_attrs.get(DEFAULT)), None)

    def best_and_front(self) -> tuple[Any | None, set[int]]:
        """Return the best complete trial (for several objectives the knee of their front), and the front's numbers."""
        complete, objectives = self.complete, self.config.study.objectives
        if not complete:
            return None, set()
        signs = np.array([-1.0 if one.direction == "maximize" else 1.0 for one in objectives])
        if len(objectives) == 1:
            return complete[int(np.argmin([trial.values[0] * signs[0] for trial in complete]))], set()
        numbers = {trial.number for trial in self.optuna.best_trials}
        front = [trial for trial in complete if trial.number in numbers]
        return front[knee(np.array([trial.values for trial in front]) * signs)], numbers

    def ask(self) -> tuple[Any, dict[str, Any]] | None:
        """Begin the next trial and return it with its values by dotted key; ``None`` when all trials have begun.

        A trial whose settings an earlier one has had ends at once, with the same values.
        """
        while True:
            left = self._left_unfinished()
            begun = sum(trial.state.name != "WAITING" for trial in self.trials)
            if left is None and begun >= self.config.study.trials:
                return None
            # A new sampler for every trial: a resumed study continues as if it had never stopped. Trial 0 is queued.
            study, number = self.config.study, len(self.trials) if left is None else max(1, left.number)
            seed = derive_seed(study.seed, "sampler", number)
            self.optuna.sampler = build_sampler(study.sampler, seed)
            trial = self.optuna.ask() if left is None else Trial(self.optuna, left._trial_id)
            self._begun[trial.number] = trial
            values = self.config.space.suggest(trial)
            twin = next((one for one in self.complete if one.params == trial.params), None)
            if twin is None:
                return trial, values
            if len(study.objectives) == 1:
                for step, value in twin.intermediate_values.items():
                    trial.report(value, step)
            self.tell(trial.number, twin.values)

    def tell(self, number: int, values: Sequence[float] | None) -> None:
        """Record the values of a trial, or ``None`` for a pruned one."""
        self.optuna.tell(number, values, state=TrialState.PRUNED if values is None else None)

    def tell_failed(self, number: int, error: str) -> None:
        """Record a trial that cannot be run with its settings; it counts, and is not repeated."""
        self._begun[number].set_user_attr(ERROR, error)
        self.optuna.tell(number, state=TrialState.FAIL)

    def forgive(self) -> None:
        """Note that running trials were interrupted, or that a machine failed: they did not kill the driver."""
        for frozen in self.trials:
            if frozen.state.name == "RUNNING" and frozen.number in self._begun:
                self._begun[frozen.number].set_user_attr(RETRIES, 0)

    def _left_unfinished(self) -> Any | None:
        """Return the first running trial of an earlier driver; those that killed too many are ended."""
        for frozen in self.trials:
            if frozen.state.name != "RUNNING" or frozen.number in self._begun:
                continue
            trial, retries = Trial(self.optuna, frozen._trial_id), int(frozen.user_attrs.get(RETRIES, 0))
            if retries < MAX_RETRIES:
                trial.set_user_attr(RETRIES, retries + 1)
                trial.set_user_attr(RESUMED, datetime.now().isoformat())
                return frozen
            self._begun[frozen.number] = trial
            self.tell_failed(frozen.number, f"every process that ran it died, {retries + 1} in all")
        return None


def _id_of(folder: Path) -> str:
    """A name that no other folder's study has in a database that several share."""
    file = folder / "study-id"
    if not file.is_file():
        write_whole(file, uuid.uuid4().hex)
    return file.read_text()


def knee(values: Sequence[Sequence[float]] | np.ndarray) -> int:
    """Index of the point of a front that lies farthest from the line between its ends, towards the good corner.

    Objectives are scaled to [0, 1] over the front. With more than two objectives, or where no point lies on the good
    side of the line: the point nearest to the best of every objective.

    Args:
        values: ``[points, objectives]`` of the front, small is good.

    >>> knee([[0.0, 1.0], [0.1, 0.2], [1.0, 0.0]])
    1
    """
    points = np.asarray(values, dtype=float)
    low, high = points.min(0), points.max(0)
    scaled = (points - low) / np.where(high > low, high - low, 1.0)
    if points.shape[1] == 2:
        inside = 1 - scaled.sum(1)  # of the line from (0, 1) to (1, 0), in units of its distance
        if inside.max() > 0:
            return int(inside.argmax())
    return int(np.linalg.norm(scaled, axis=1).argmin())
