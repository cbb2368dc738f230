"""Early stopping of trials: what a running trial reports, and the end of a pruned training."""

import math
import warnings
from typing import Any, Protocol

import lightning

from lightleak.core.errors import UsageError


class Reporting(Protocol):
    """What a run needs of an Optuna trial."""

    def report(self, value: float, step: int) -> None:
        """Report the objective after a step."""

    def should_prune(self) -> bool:
        """Return whether the trial is pruned."""


class JudgedTrial:
    """An Optuna trial that may be resumed, whose repeated reports Optuna ignores.

    Args:
        trial: the trial.
        spare: never prune it: all others are compared with the defaults.
    """

    def __init__(self, trial: Any, spare: bool = False) -> None:
        self._trial, self._spare = trial, spare

    def report(self, value: float, step: int) -> None:
        """See `Reporting`."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The reported value is ignored")
            self._trial.report(value, step)

    def should_prune(self) -> bool:
        """See `Reporting`."""
        return not self._spare and bool(self._trial.should_prune())


class TrialPruning(lightning.Callback):
    """Reports a validation metric to a trial after each validated epoch and stops the training when it is pruned.

    The step is the number of epochs trained, as pruners count resources. A value that is not finite is not reported:
    it prunes the trial whatever the pruner, as no comparison with it means anything. Reported values are kept in
    checkpoints, so that a trial that continues a checkpoint receives those of earlier epochs as well.

    Call `raise_if_pruned` after ``trainer.fit``: Lightning would take an exception within it for a crash.

    Args:
        trial: the trial.
        monitor: name of the metric among ``trainer.callback_metrics``.
    """

    def __init__(self, trial: Reporting, monitor: str) -> None:
        self.trial, self.monitor = trial, monitor
        self.pruned: str | None = None
        """Why the training was stopped."""
        self._values: dict[int, float] = {}
        self._reported: set[int] = set()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Ask again about what a checkpoint holds: a trial that was pruned there trains no further.

        Raises:
            UsageError: there is nothing to report, or more than once an epoch, or on several devices.
        """
        if trainer.world_size > 1:
            raise UsageError(f"TrialPruning needs a training on one device, got {trainer.world_size}")
        if not trainer.enable_validation:
            raise UsageError(f"TrialPruning reports {self.monitor!r} of validation epochs, and there is no validation")
        interval, epochs = trainer.val_check_interval, trainer.check_val_every_n_epoch
        if not isinstance(interval, float) or interval != 1.0 or epochs is None:
            raise UsageError(
                "TrialPruning reports whole epochs: val_check_interval must be 1.0 and check_val_every_n_epoch a "
                f"number, got {interval!r} and {epochs!r}"
            )
        if self._values:
            self._report(trainer)

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Report the epoch and stop a pruned training.

        Raises:
            UsageError: nothing of the monitor's name is logged.
        """
        if trainer.sanity_checking or trainer.state.fn != "fit" or self.pruned:
            return
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            logged = ", ".join(sorted(metrics)) or "nothing"
            raise UsageError(f"monitor {self.monitor!r} is not logged by validation; logged: {logged}")
        epoch, value = trainer.current_epoch + 1, float(metrics[self.monitor])
        self._values.setdefault(epoch, value)
        self._report(trainer)

    def _report(self, trainer: lightning.Trainer) -> None:
        """Report the values that the trial does not have yet, and stop the training if it is pruned."""
        for step in sorted(self._values.keys() - self._reported):
            if math.isfinite(self._values[step]):
                self.trial.report(self._values[step], step)
            self._reported.add(step)
        last = max(self._values)
        if not math.isfinite(self._values[last]):
            self.pruned = f"{self.monitor} is {self._values[last]} after epoch {last}"
        else:
            self.pruned = f"pruned after epoch {last}" if self.trial.should_prune() else None
        trainer.should_stop = trainer.should_stop or self.pruned is not None

    def raise_if_pruned(self) -> None:
        """Raise ``optuna.TrialPruned`` where the training was stopped."""
        if self.pruned:
            from optuna import TrialPruned

            raise TrialPruned(self.pruned)

    def state_dict(self) -> dict[str, Any]:
        """Return the reported values."""
        return {"values": dict(self._values)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self._values = dict(state_dict["values"])
