"""One Optuna study that many processes share: who takes which trial, and what becomes of the trials of the dead.

Optuna's records lie in a journal file, which network file systems serve where they break SQLite; who is alive is told
by claims in the same folder. Every decision about the study is taken under one lock, so that as many trials are asked
for as the config says, and a trial whose process died is repeated by one of the living.
"""

import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lightleak.core.claims import Claims
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.tuning.config import TuneConfig
from lightleak.tuning.samplers import build_pruner, build_sampler, import_optuna

JOURNAL = "journal.log"
STUDY_NAME = "lightleak"

MAX_RETRIES = 3
"""How often a trial is repeated whose process died: one that kills every process must not be tried for ever."""

LOST, RETRY_OF, DEFAULT, WORKER, ERROR = "lost", "retry_of", "is_default", "worker", "error"
"""Names of the user attributes of a trial."""


def quiet_optuna() -> Any:
    """Optuna, which tells of every trial in the log; the command speaks for itself.

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
        """Within the block a new trial and its values are ours; ``None`` where there is none to begin just now."""
        with ExitStack() as held:
            with self.claims.wait_for("study"):
                begun = self._begin(held)
            yield begun

    def tell(self, trial: Any, values: Sequence[float]) -> None:
        """A trial is complete."""
        self._end(trial.number, values=list(values))

    def tell_pruned(self, trial: Any) -> None:
        """A trial was stopped by the pruner."""
        self._end(trial.number, state=self._state.PRUNED)

    def tell_failed(self, trial: Any, error: str) -> None:
        """A trial cannot be run with these settings; it counts, and is not repeated."""
        self._end(trial.number, {ERROR: error}, state=self._state.FAIL)

    def _end(self, number: int, attributes: Mapping[str, Any] | None = None, **how: Any) -> None:
        """Of a trial that was given up while its process was only slow, the repetition counts."""
        from optuna.trial import Trial

        with self.claims.wait_for("study"):
            frozen = self.trials[number]
            if frozen.state == self._state.RUNNING:
                for name, value in (attributes or {}).items():
                    Trial(self.optuna, frozen._trial_id).set_user_attr(name, value)
                self.optuna.tell(number, **how)

    def _begin(self, held: ExitStack) -> tuple[Any, dict[str, Any]] | None:
        self._repeat_the_dead()
        study, trials = self.config.study, self.trials
        if self._counted(trials) >= study.trials:
            return None
        # A sampler of its own for every trial: a study that one process resumes goes on as if it had never ended.
        seed = derive_seed(study.seed, "sampler", len(trials))
        self.optuna.sampler = build_sampler(study.sampler, seed, len(study.objectives))
        trial = self.optuna.ask()
        held.enter_context(self.claims.hold(_claim(trial.number)))
        trial.set_user_attr(WORKER, f"{socket.gethostname()} {os.getpid()}")
        return trial, self.config.space.suggest(trial)

    @property
    def _state(self) -> Any:
        from optuna.trial import TrialState

        return TrialState

    def _running(self, trials: Sequence[Any]) -> list[Any]:
        return [trial for trial in trials if trial.state == self._state.RUNNING]

    def _counted(self, trials: Sequence[Any]) -> int:
        """Trials begun, without those that another one repeats."""
        repeated = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        begun = [trial for trial in trials if trial.state != self._state.WAITING]
        return sum(trial.number not in repeated for trial in begun)

    def _repeat_the_dead(self) -> None:
        """Give up trials whose process died, and queue each of them once more."""
        from optuna.trial import Trial

        for trial in self._running(self.trials):
            if not self.claims.is_held(_claim(trial.number)):
                Trial(self.optuna, trial._trial_id).set_user_attr(LOST, True)
                self.optuna.tell(trial.number, state=self._state.FAIL)
        trials = self.trials
        repeated = {trial.user_attrs.get(RETRY_OF) for trial in trials}
        for trial in trials:
            # Also those of a process that died between giving up and queueing.
            lost = trial.state == self._state.FAIL and trial.user_attrs.get(LOST) and trial.number not in repeated
            if lost and _retries(trial, trials) < MAX_RETRIES:
                attributes = {RETRY_OF: trial.number, DEFAULT: trial.user_attrs.get(DEFAULT, False)}
                # What was queued for it counts also where it died before it had asked for all of its settings.
                settings = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
                self.optuna.enqueue_trial(settings, user_attrs=attributes)


def _claim(number: int) -> str:
    return f"trial-{number}"


def _retries(trial: Any, trials: Sequence[Any]) -> int:
    """How many trials before this one it repeats."""
    count, earlier = 0, trial.user_attrs.get(RETRY_OF)
    while earlier is not None:
        count, earlier = count + 1, trials[earlier].user_attrs.get(RETRY_OF)
    return count


def _name_of(folder: Path) -> str:
    """A name that no other folder's study has in a database that several share."""
    file = folder / "study-id"
    if not file.is_file():
        file.write_text(uuid.uuid4().hex)
    return file.read_text()


def _storage(optuna: Any, url: str | None, folder: Path) -> Any:
    if url is None:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        return JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    try:
        return optuna.storages.get_storage(os.path.expandvars(url))
    except Exception as error:  # SQLAlchemy's and the driver's own
        raise UsageError(f"study.storage {url!r} cannot be opened: {error}") from error
