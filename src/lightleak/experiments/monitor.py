"""An attack's score as a validation metric: an attack that runs while the target trains."""

import math
import warnings
from typing import Any

import lightning
import torch

from lightleak.attacks import ATTACKS
from lightleak.callbacks.capture_store import Capture
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.callbacks.update_capture import UpdateCapture
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.score import score

LOGGED = ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "exact_match_rate")


class LeakageMonitor(lightning.Callback):
    """Every k epochs (FedAvg: rounds) attack what a capture has just recorded and log the scores.

    The values ``reconstruction/<attack>/<metric>`` stand next to the validation metrics in any Lightning logger. They
    are scores of the reconstructions, not leakage, which is the difference to guessing: log the attack ``random`` as
    well to see it. The monitor draws from generators of its own and only reads, so training is bit for bit the same
    with and without it. Under DDP the values are those of all ranks' captures. An attack that does not apply, or fails,
    ends no training: a warning says so once and it is left out.

    Args:
        capture: the callback that records updates (`GradientCapture` or `UpdateCapture`); it must stand before the
            monitor in the Trainer's list.
        attack: name of the attack.
        every: epochs between two looks; only what was captured in that very epoch is attacked.
        seed: root seed of the attack.
        options: settings of the attack.

    Attributes:
        found: what the attack found, by the number of the capture in ``capture.captured``.
        trouble: why the attack is left out from now on; None while it is not.

    Raises:
        UsageError: an unknown attack or setting, or a capture that keeps nothing.
    """

    def __init__(
        self,
        capture: GradientCapture | UpdateCapture,
        attack: str = "tableak",
        every: int = 1,
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.capture, self.every, self.seed = capture, every, seed
        self.found: dict[int, Reconstruction]
        self.trouble: str | None
        self._seen: int
        self.reset()
        if every < 1:
            raise UsageError(f"every must be at least 1, got {every}")
        if not capture.keep:
            kind = type(capture).__name__
            raise UsageError(f"LeakageMonitor reads what its {kind} keeps in memory: give it keep=True")
        self.attack = ATTACKS.get(attack)(**(options or {}))

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Begin anew; `UsageError` where the capture is not among the Trainer's callbacks before the monitor."""
        callbacks: list[Any] = list(trainer.callbacks)  # type: ignore[attr-defined]
        if self.capture not in callbacks or callbacks.index(self.capture) > callbacks.index(self):
            kind = type(self.capture).__name__
            raise UsageError(f"LeakageMonitor needs its {kind} before it in Trainer(callbacks=[...])")
        if stage == "fit":
            self.reset()

    def reset(self) -> None:
        """Forget an earlier training, as the capture does when another begins."""
        self.found, self.trouble, self._seen = {}, None, 0

    def check(self, update: ClientUpdate) -> None:
        """Leave the attack out where it does not apply to an update."""
        try:
            self.attack.check(update)
        except Exception as error:  # a training must not end for it
            self._leave_out(error)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Attack the updates recorded in this epoch."""
        first, self._seen = self._seen, len(self.capture.captured)
        new = self.capture.captured[first:]
        if trainer.current_epoch % self.every:
            return
        scores = []
        for i, capture in enumerate(new):
            if self.trouble is None:
                try:
                    scores.append(self._score(first + i, capture, trainer.current_epoch, i, pl_module.device))
                except Exception as error:  # memory, a layer's missing derivative: a training must not end for it
                    self._leave_out(error)
        for name in LOGGED:
            values = [one[name] for one in scores if not math.isnan(one[name])]
            held = torch.tensor([sum(values), len(values)], dtype=torch.float64)
            if trainer.world_size > 1:  # every rank takes part, also one that recorded nothing
                held = trainer.strategy.reduce(held.to(pl_module.device), reduce_op="sum")
            if held[1]:
                pl_module.log(f"reconstruction/{self.attack.name}/{name}", (held[0] / held[1]).float())

    @torch.no_grad()
    def _score(self, number: int, capture: Capture, epoch: int, i: int, device: torch.device) -> dict[str, float]:
        """Attack capture ``number``, the i-th of its epoch, and keep what was found."""
        update = capture.update
        encoder = TableEncoder.of(update)
        found = self.attack.run(update, derive_seed(self.seed, "monitor", epoch, i), device)
        scores = score(found, capture.truth, encoder)
        self.found[number] = found
        return scores

    def _leave_out(self, error: Exception) -> None:
        known = isinstance(error, LightLeakError)
        self.trouble = str(error) if known else f"{type(error).__name__}: {error}"
        self.trouble = self.trouble.removeprefix(f"{self.attack.name}: ")
        warnings.warn(f"{self.attack.name} is left out of this training: {self.trouble}", stacklevel=3)
