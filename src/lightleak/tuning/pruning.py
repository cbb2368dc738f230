"""Ends the training of a pruned trial: one process reports to the study, all stop at the same epoch."""

import math
from typing import Any, NamedTuple

import lightning

from lightleak.core.errors import LightLeakError, UsageError
from lightleak.tuning.samplers import import_optuna


class _Verdict(NamedTuple):
    """The message of rank 0 to the others: continue, stop for a reason, or fail."""

    stop: str | None = None
    unlogged: str | None = None
    failure: str | None = None


class TrialPruning(lightning.Callback):
    """Reports a validation metric to a trial after each validated epoch and stops the training when it is pruned.

    The step is the number of epochs trained, as pruners count resources. Under DDP rank 0 alone reports its value of
    the metric and decides. A value that is not finite is not reported: it prunes the trial whatever the pruner, as
    no comparison with it means anything. What was reported is kept in checkpoints: a resumed training reports no epoch
    twice, and a trial that replaces a killed one receives all reports again.

    Call `raise_if_pruned` after ``trainer.fit``: Lightning would take an exception within it for a crash.

    Args:
        trial: the Optuna trial; needed on rank 0 only.
        monitor: name of the metric among ``trainer.callback_metrics``, synchronised over ranks by whoever logs it.
    """

    def __init__(self, trial: Any | None, monitor: str) -> None:
        self.trial, self.monitor = trial, monitor
        self.pruned: str | None = None
        """Why the training was stopped."""
        self._values: dict[int, float] = {}
        self._reported: set[int] = set()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Raise `UsageError` where there is nothing to report, or more than once an epoch."""
        if trainer.global_rank == 0 and self.trial is None:
            raise UsageError("TrialPruning needs its trial on rank 0, got None")
        if not trainer.enable_validation:
            raise UsageError(f"TrialPruning reports {self.monitor!r} of validation epochs, and there is no validation")
        interval, epochs = trainer.val_check_interval, trainer.check_val_every_n_epoch
        if not isinstance(interval, float) or interval != 1.0 or epochs is None:
            raise UsageError(
                "TrialPruning reports whole epochs: val_check_interval must be 1.0 and check_val_every_n_epoch a "
                f"number, got {interval!r} and {epochs!r}"
            )

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Report the epoch and stop all ranks where rank 0 says so.

        Raises:
            UsageError: nothing of the monitor's name is logged.
        """
        if trainer.sanity_checking or trainer.state.fn != "fit" or self.pruned:
            return
        error: Exception | None = None
        verdict = _Verdict()
        if trainer.global_rank == 0:
            try:
                verdict = self._judge(trainer)
            except Exception as problem:  # the other ranks wait for an answer
                error, verdict = problem, _Verdict(failure=f"{type(problem).__name__}: {problem}")
        verdict = trainer.strategy.broadcast(verdict)
        if error is not None:
            raise error
        if verdict.unlogged is not None:
            raise UsageError(verdict.unlogged)
        if verdict.failure is not None:
            raise LightLeakError(f"rank 0 could not report to its trial: {verdict.failure}")
        if verdict.stop is not None:
            self.pruned = verdict.stop
            trainer.should_stop = True

    def raise_if_pruned(self) -> None:
        """Raise ``optuna.TrialPruned`` where the training was stopped, on every rank."""
        if self.pruned:
            raise import_optuna().TrialPruned(self.pruned)

    def state_dict(self) -> dict[str, Any]:
        """Return the reported values, and the number of the trial."""
        return {"trial": None if self.trial is None else self.trial.number, "values": dict(self._values)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self._values = dict(state_dict["values"])
        same = self.trial is not None and self.trial.number == state_dict["trial"]
        self._reported = set(self._values) if same else set()

    def _judge(self, trainer: lightning.Trainer) -> _Verdict:
        assert self.trial is not None  # checked when the training began
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            logged = ", ".join(sorted(metrics)) or "nothing"
            return _Verdict(unlogged=f"monitor {self.monitor!r} is not logged by validation; logged: {logged}")
        step, value = trainer.current_epoch + 1, float(metrics[self.monitor])
        if not math.isfinite(value):
            return _Verdict(stop=f"{self.monitor} is {value} after epoch {step}")
        self._values.setdefault(step, value)
        for earlier in sorted(set(self._values) - self._reported):
            self.trial.report(self._values[earlier], earlier)
            self._reported.add(earlier)
        return _Verdict(stop=f"pruned after epoch {step}" if self.trial.should_prune() else None)
