"""Workers of a study: this process, or several on this machine, each with its own core or GPU."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightleak.core.devices import one_thread
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.processes import run_in_processes
from lightleak.tuning.config import TuneConfig
from lightleak.tuning.study import DEFAULT, SharedStudy
from lightleak.tuning.trial import run_trial, trial_folder, trial_tree

WAIT_SECONDS = 0.5
"""Between two checks for a new trial while others run the last ones."""

VISIBLE = "CUDA_VISIBLE_DEVICES"

OnProgress = Callable[[], None]
"""Called after every trial, and while waiting."""


def work(config: TuneConfig, folder: Path, on_progress: OnProgress = lambda: None) -> None:
    """Run trials until all trials of the study have ended, in whichever process.

    Uses one thread, so that a trial's values do not depend on other processes.
    """
    study = SharedStudy(config, folder)
    with one_thread():
        while not study.is_over:
            with study.next_trial() as begun:
                if begun is not None:
                    _run(study, *begun)
            on_progress()
            if begun is None:
                time.sleep(WAIT_SECONDS)


def _run(study: SharedStudy, trial: Any, values: dict[str, Any]) -> None:
    from optuna import TrialPruned

    settings = study.config.study
    judged = _Spared(trial) if trial.user_attrs.get(DEFAULT) else trial

    def report(step: int, value: float) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The reported value is ignored")  # by a trial that is resumed
            judged.report(value, step)
        if judged.should_prune():
            raise TrialPruned

    try:
        tree = trial_tree(study.config, values)
        folder = trial_folder(study.folder, tree)
        # Trials with the same settings share a folder: the second reuses the results of the first.
        with study.claims.wait_for(f"settings-{folder.name}"):
            found = run_trial(settings, tree, folder, report, judged)
    except TrialPruned:
        study.tell_pruned(trial)
    except OSError:
        raise  # a fault of this machine, not of the settings: another process may repeat the trial
    except Exception as error:
        study.tell_failed(trial, f"{type(error).__name__}: {error}")
        if (trial.user_attrs.get(DEFAULT) and isinstance(error, UsageError)) or "CUDA error" in str(error):
            raise  # the study cannot be run; after a CUDA error this process is unusable
    else:
        study.tell(trial, found)


class _Spared:
    """The default trial, which is never pruned, as all others are compared with it."""

    def __init__(self, trial: Any) -> None:
        self.number, self.report = trial.number, trial.report

    def should_prune(self) -> bool:
        return False


def work_in_processes(config: TuneConfig, folder: Path, devices: Sequence[str | None], on_progress: OnProgress) -> None:
    """As `work`, by one process for each entry of ``devices``.

    Args:
        config: the study.
        folder: its folder.
        devices: for each worker the GPU it sees, or None for a core.
        on_progress: called now and then.

    Raises:
        LightLeakError: every worker was killed and the study is not over; rerun the command to resume.
    """
    given = [(config, folder, device) for device in devices]
    codes = run_in_processes(_start, given, lambda *_: None, idle=on_progress)
    if not SharedStudy(config, folder).is_over:
        listed = ", ".join(map(str, codes))
        raise LightLeakError(f"every worker ended before the study was over (exit codes {listed})")


def _start(config: TuneConfig, folder: Path, device: str | None, tell: Callable[[Any], None]) -> None:
    if device is not None:
        os.environ[VISIBLE] = device  # before anything asks for a GPU
        config = replace(config, space=replace(config.space, tree={**config.space.tree, "device": "cuda"}))
    work(config, folder)
