"""Processes that work on one study: in this one, or several on this machine, each with a core or a GPU of its own."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lightleak.core.errors import LightLeakError
from lightleak.tuning.config import TuneConfig
from lightleak.tuning.study import SharedStudy
from lightleak.tuning.trial import run_trial, trial_folder, trial_tree

WAIT_SECONDS = 0.5
"""Between two looks for a trial, or at the workers."""

VISIBLE = "CUDA_VISIBLE_DEVICES"

Told = Callable[[], None]
"""Called after every trial, and while there is nothing to do."""


def work(config: TuneConfig, folder: Path, told: Told = lambda: None) -> None:
    """Run trials until the study is over; returns when all of them have ended, whoever ran them.

    One thread: a trial's values do not depend on what runs beside it.
    """
    study, threads = SharedStudy(config, folder), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        while not study.is_over:
            with study.next_trial() as begun:
                if begun is not None:
                    _run(study, *begun)
            told()
            if begun is None:
                time.sleep(WAIT_SECONDS)
    finally:
        torch.set_num_threads(threads)


def _run(study: SharedStudy, trial: Any, values: dict[str, Any]) -> None:
    from optuna import TrialPruned

    settings = study.config.study

    def report(step: int, value: float) -> None:
        trial.report(value, step)
        if trial.should_prune():
            raise TrialPruned

    try:
        tree = trial_tree(study.config, values)
        found = run_trial(settings, tree, trial_folder(study.folder, tree), report, trial)
    except TrialPruned:
        study.tell_pruned(trial)
    except (LightLeakError, RuntimeError, ValueError, ArithmeticError) as error:
        study.tell_failed(trial, f"{type(error).__name__}: {error}")
    else:
        study.tell(trial, found)


def work_in_processes(config: TuneConfig, folder: Path, devices: Sequence[str | None], told: Told) -> None:
    """As `work`, by one process for each entry of ``devices``.

    Args:
        config: the study.
        folder: its folder.
        devices: for each worker the GPU it sees, or None for a core.
        told: called now and then.

    Raises:
        LightLeakError: every worker died and the study is not over; the same command goes on.
    """
    # Spawned, not forked: a copy of a process that has worked holds the locks of threads it does not have.
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_start, args=(config, folder, device)) for device in devices]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers):
            time.sleep(WAIT_SECONDS)
            told()
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    if not SharedStudy(config, folder).is_over:
        codes = ", ".join(str(worker.exitcode) for worker in workers)
        raise LightLeakError(f"every worker ended before the study was over (exit codes {codes})")


def _start(config: TuneConfig, folder: Path, device: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    if device is not None:
        os.environ[VISIBLE] = device
    parent = os.getppid()

    def still_wanted() -> None:
        if os.getppid() != parent:
            os._exit(1)  # the parent was killed; what was begun is repeated by whoever goes on

    work(config, folder, still_wanted)
