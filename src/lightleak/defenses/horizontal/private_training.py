"""DP-SGD inside a Lightning training: opacus' hooks and optimizer put in place, checked, accounted for, removed."""

import math
import warnings
from contextlib import ExitStack
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.defenses.horizontal.optional_opacus import import_opacus
from lightleak.defenses.horizontal.poisson import PoissonSampler
from lightleak.defenses.horizontal.privacy_accounting import PrivacyAccounting

PRECISIONS = ("32-true", "64-true")
"""Half precision rounds the noise too coarsely, and a loss scale would scale the gradients that are clipped."""


class PrivateTraining(lightning.Callback):
    """The part of DP-SGD that lives in a Trainer; made by `DPSGD.prepare`, whose data and network it expects.

    opacus hooks into the layers of the network, which keeps its names, and its ``DPOptimizer`` wraps the optimizer. The
    noise of step s depends on (seed, s) alone and is drawn on the network's device. Logs ``dp/epsilon`` per epoch.

    Args:
        defense: settings.
        sampler: the batches that it must get.
        seed: root seed.

    Attributes:
        steps: noised steps so far.
    """

    def __init__(self, defense: PrivacyAccounting, sampler: PoissonSampler, seed: int) -> None:
        super().__init__()
        self.defense, self.sampler, self.seed = defense, sampler, seed
        self.steps = 0
        self._resolved: PrivacyAccounting | None = None
        self._used_noise: float | None = None
        self._noise: torch.Generator | None = None
        self._undo = ExitStack()

    @property
    def epsilon(self) -> float:
        """Epsilon spent so far, at the defense's delta."""
        return 0.0 if self._resolved is None else self._resolved.epsilon(self.sampler.sample_rate, self.steps)

    def facts(self) -> dict[str, Any]:
        """What results say of the training's privacy, JSON-ready; epsilon is None where it is infinite.

        ``accountant`` is the one whose epsilon it is (see `PrivacyAccounting.spent`).
        """
        epsilon, accountant, release = 0.0, self.defense.accountant, math.inf
        if self._resolved is not None:
            epsilon, accountant = self._resolved.spent(self.sampler.sample_rate, self.steps)
            release = self._resolved.release_epsilon()
        return {
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "release_epsilon": release if math.isfinite(release) else None,
            "delta": self.defense.delta,
            "noise_multiplier": None if self._resolved is None else self._resolved.noise_multiplier,
            "max_grad_norm": self.defense.max_grad_norm,
            "sample_rate": self.sampler.sample_rate,
            "sampling": "poisson",
            "steps": self.steps,
            "accountant": accountant,
        }

    def wrap(self, optimizer: torch.optim.Optimizer, network: nn.Module) -> torch.optim.Optimizer:
        """Set opacus' hooks in ``network`` and wrap its optimizer.

        Raises:
            UsageError: the Trainer does not have this callback.
        """
        if self._resolved is None:
            raise UsageError("dp_sgd: give the callbacks of the DefendedTraining to the Trainer")
        opacus = import_opacus()
        hooked = opacus.grad_sample.GradSampleModule(network)
        self._undo.callback(hooked.to_standard_module)
        self._noise = torch.Generator(next(network.parameters()).device)
        wrapped: torch.optim.Optimizer = opacus.optimizers.DPOptimizer(
            optimizer,
            noise_multiplier=self._resolved.noise_multiplier,
            max_grad_norm=self.defense.max_grad_norm,
            expected_batch_size=self.sampler.batch_size,
            generator=self._noise,
        )
        wrapped.attach_step_hook(self._count)  # type: ignore[attr-defined]
        wrapped.defense = self._resolved  # type: ignore[attr-defined]
        return wrapped

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Refuse a Trainer that would break the guarantee, and decide the noise.

        Raises:
            UsageError: see the messages.
        """
        if stage != "fit":
            return
        check_trainer(trainer, pl_module)
        self._resolved = self.defense.resolved(self.sampler.sample_rate, self._planned_steps(trainer))
        self._undo.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Full backward hook is firing")

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Refuse other batches than those that are accounted for, and steps whose privacy is not.

        Raises:
            UsageError: see the messages.
        """
        if getattr(trainer.train_dataloader, "sampler", None) is not self.sampler:
            raise UsageError(
                "dp_sgd: train on the data of the DefendedTraining; epsilon is that of its Poisson batches"
            )
        if trainer.global_step != self.steps:
            raise UsageError(
                f"dp_sgd: {self.steps} steps are accounted for, but the Trainer resumes from {trainer.global_step}; "
                "prepare every training anew and resume it from its own checkpoint"
            )
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if progress.current.completed and not progress.is_last_batch:
            raise UsageError(
                "dp_sgd: the checkpoint is from the middle of an epoch, whose batches would be drawn a second time; "
                "resume from the end of one"
            )
        planned = None if self._resolved is None else self._resolved.noise_multiplier
        if self._used_noise not in (None, planned):
            raise UsageError(
                f"dp_sgd: steps so far had noise multiplier {self._used_noise}, further ones would have {planned}; "
                "resume with the same settings and number of epochs"
            )
        self._used_noise = planned

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Seed the noise of the step."""
        if self._noise is not None:
            self._noise.manual_seed(derive_seed(self.seed, "dp_sgd", self.steps))

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Log the epsilon spent so far."""
        pl_module.log("dp/epsilon", self.epsilon)

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Remove the hooks."""
        self._undo.close()

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Remove the hooks."""
        self._undo.close()

    def state_dict(self) -> dict[str, Any]:
        """What was spent, so that a resumed training keeps counting."""
        return {"steps": self.steps, "noise_multiplier": self._used_noise}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.steps, self._used_noise = state_dict["steps"], state_dict["noise_multiplier"]

    def _count(self, optimizer: torch.optim.Optimizer) -> None:
        self.steps += 1

    def _planned_steps(self, trainer: lightning.Trainer) -> int:
        epochs, steps = trainer.max_epochs, trainer.max_steps
        limits = [steps] if steps >= 0 else []
        if epochs is not None and epochs >= 0:
            limits.append(epochs * len(self.sampler))
        if not limits and self.defense.target_epsilon is not None:
            raise UsageError("dp_sgd: target_epsilon needs Trainer(max_epochs=...) or (max_steps=...), got neither")
        return min(limits, default=0)


def check_trainer(trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
    """Raise `UsageError` where a Trainer or the state of the network would break the guarantee."""
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        raise UsageError(f"dp_sgd trains on one device, got {type(trainer.strategy).__name__}")
    if not module.automatic_optimization:
        raise UsageError(f"dp_sgd needs automatic optimization; {type(module).__name__} optimizes by hand")
    if trainer.accumulate_grad_batches != 1:
        raise UsageError(
            f"dp_sgd needs accumulate_grad_batches=1, one Poisson batch a step; got {trainer.accumulate_grad_batches}"
        )
    if trainer.gradient_clip_val:
        raise UsageError(
            f"dp_sgd clips every row to max_grad_norm; Trainer(gradient_clip_val={trainer.gradient_clip_val}) would "
            "have no effect"
        )
    if trainer.precision not in PRECISIONS:
        raise UsageError(f"dp_sgd needs precision {' or '.join(PRECISIONS)}, got {trainer.precision}")
    if any(not part.training for part in module.network.modules()):  # type: ignore[union-attr]
        raise UsageError("dp_sgd needs the network in train mode, where opacus sees every row's gradient")
