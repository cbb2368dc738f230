"""One Optuna study shared by many processes: assignment of trials, and recovery of trials whose process died.

Optuna's records are in a journal file, which works on network file systems that break SQLite; claims in the same folder
show which processes are alive. Every decision about the study is made under one lock, so that the number of trials is
exactly that of the config, and a trial whose process died is resumed by another.
"""

import logging
import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from lightleak.core.claims import Claims
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import write_whole
from lightleak.tuning.config import TuneConfig
from lightleak.tuning.samplers import build_pruner, build_sampler, import_optuna

_logger = logging.getLogger(__name__)
JOURNAL = "journal.log"
STUDY_NAME = "lightleak"

MAX_RETRIES = 3
"""Maximum retries after a process dies: a trial that kills every process must not be tried forever."""

RETRIES, RESUMED, DEFAULT, WORKER, ERROR = "retries", "resumed", "is_default", "worker", "error"
"""Names of the user attributes of a trial."""


def quiet_optuna() -> Any:
    """Return Optuna with its log, a line for every trial, turned off.

    Raises:
        UnsupportedError: it is not installed.
    """
    optuna = import_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class SharedStudy:
    """The study in a folder; every process opens it anew.

    Args:
        config: the study's settings and search space.
        folder: where its files are, on a file system that all processes share.
    """

    def __init__(self, config: TuneConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.claims = Claims(folder / "claims")
        optuna = quiet_optuna()
        storage = _storage(optuna, config.study.storage, folder)
        with self.claims.wait_for("study"):
            name = STUDY_NAME if config.study.storage is None else f"{STUDY_NAME} {_name_of(folder)}"
            self.optuna = optuna.create_study(
                study_name=name,
                storage=storage,
                directions=[objective.direction for objective in config.study.objectives],
                pruner=build_pruner(config.study.pruner),
                load_if_exists=True,
            )
            if not self.trials:
                self.optuna.enqueue_trial(config.space.defaults(), user_attrs={DEFAULT: True})

    @property
    def trials(self) -> list[Any]:
        """Optuna's trials, by number."""
        trials: list[Any] = self.optuna.get_trials(deepcopy=False)
        return trials

    @property
    def is_over(self) -> bool:
        """Whether all trials that were asked for have ended."""
        return self._counted(self.trials) >= self.config.study.trials and not self._running(self.trials)

    @contextmanager
    def next_trial(self) -> Iterator[tuple[Any, dict[str, Any]] | None]:
        """Claim a new trial and its values within the block; ``None`` if there is none to start at the moment."""
        with ExitStack() as claimed:
            with self.claims.wait_for("study"):
                begun = self._begin(claimed)
            try:
                yield begun
            except KeyboardInterrupt:
                if begun is not None:
                    begun[0].set_user_attr(RETRIES, 0)  # it is not what ended the process
                raise

    def tell(self, trial: Any, values: Sequence[float]) -> None:
        """Record a complete trial."""
        self._end(trial.number, values=list(values))

    def tell_pruned(self, trial: Any) -> None:
        """Record a pruned trial."""
        self._end(trial.number, state=self._state.PRUNED)

    def tell_failed(self, trial: Any, error: str) -> None:
        """Record a trial that cannot be run with its settings; it counts, and is not repeated."""
        self._end(trial.number, {ERROR: error}, state=self._state.FAIL)

    def _end(self, number: int, attributes: Mapping[str, Any] | None = None, **how: Any) -> None:
        """End a trial; if it was taken over from a slow process, the first end counts."""
        from optuna.trial import Trial

        with self.claims.wait_for("study"):
            frozen = self.trials[number]
            if frozen.state == self._state.RUNNING:
                for name, value in (attributes or {}).items():
                    Trial(self.optuna, frozen._trial_id).set_user_attr(name, value)
                self.optuna.tell(number, **how)

    def _begin(self, claimed: ExitStack) -> tuple[Any, dict[str, Any]] | None:
        from optuna.trial import Trial

        dead = self._left_by_the_dead()
        if dead is None and self._counted(self.trials) >= self.config.study.trials:
            return None
        # A new sampler for every trial: a study resumed by one process continues as if it had never stopped.
        number = len(self.trials) if dead is None else max(1, dead.number)  # trial 0 is queued before it is asked for
        study = self.config.study
        seed = derive_seed(study.seed, "sampler", number)
        self.optuna.sampler = build_sampler(study.sampler, seed, len(study.objectives))
        trial = self.optuna.ask() if dead is None else Trial(self.optuna, dead._trial_id)
        claimed.enter_context(self.claims.hold(_claim(trial.number)))
        trial.set_user_attr(WORKER, f"{socket.gethostname()} {os.getpid()}")
        return trial, self.config.space.suggest(trial)

    @property
    def _state(self) -> Any:
        from optuna.trial import TrialState

        return TrialState

    def _running(self, trials: Sequence[Any]) -> list[Any]:
        return [trial for trial in trials if trial.state == self._state.RUNNING]

    def _counted(self, trials: Sequence[Any]) -> int:
        """Trials begun."""
        return sum(trial.state != self._state.WAITING for trial in trials)

    def _left_by_the_dead(self) -> Any | None:
        """Return the first trial whose process died, to be resumed under its number: the sampler sees no difference."""
        from optuna.trial import Trial

        for frozen in self._running(self.trials):
            if self.claims.is_held(_claim(frozen.number)):
                continue
            trial = Trial(self.optuna, frozen._trial_id)
            retries = int(frozen.user_attrs.get(RETRIES, 0))
            if retries < MAX_RETRIES:
                trial.set_user_attr(RETRIES, retries + 1)
                trial.set_user_attr(RESUMED, datetime.now().isoformat())
                return frozen
            trial.set_user_attr(ERROR, f"every process that ran it died, {retries + 1} in all")
            self.optuna.tell(frozen.number, state=self._state.FAIL)
        return None


def _claim(number: int) -> str:
    return f"trial-{number}"


def _name_of(folder: Path) -> str:
    """A name that no other folder's study has in a database that several share."""
    file = folder / "study-id"
    if not file.is_file():
        write_whole(file, uuid.uuid4().hex)
    return file.read_text()


def _cut_journal(file: Path) -> None:
    """Cut off a last record that a kill or a full disk left unfinished; the next one would be appended to it.

    A trial whose end is lost so runs again, and finds in its folder what it had done.
    """
    from optuna.storages.journal import JournalFileSymlinkLock

    if not file.is_file() or file.read_bytes()[-1:] in (b"", b"\n"):
        return
    lock = JournalFileSymlinkLock(str(file))
    lock.acquire()  # nobody is in the middle of a record
    try:
        content = file.read_bytes()
        if content and not content.endswith(b"\n"):
            whole = content[: content.rfind(b"\n") + 1]
            write_whole(file.with_name(f"{file.name}.damaged-{len(content)}"), content)
            write_whole(file, whole)
            _logger.warning("%s ended within a record, which was cut off; its trial runs again", file)
    finally:
        lock.release()


def _storage(optuna: Any, url: str | None, folder: Path) -> Any:
    if url is None:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        _cut_journal(folder / JOURNAL)
        return JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    try:
        return optuna.storages.get_storage(os.path.expandvars(url))
    except Exception as error:  # SQLAlchemy's and the driver's own
        raise UsageError(f"study.storage {url!r} cannot be opened: {error}") from error
