"""Any defense at work in a training of ours: one call before the Trainer is made."""

from functools import partial

import lightning
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from lightleak.core.errors import UsageError
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal.defense import UpdateDefense
from lightleak.defenses.horizontal.optimizer import DefendedOptimizer
from lightleak.defenses.horizontal.training_defense import DefendedTraining, TrainingDefense
from lightleak.targets.classifier import TabularClassifier


def defend_training(
    defense: UpdateDefense | TrainingDefense, model: TabularClassifier, data: TableDataModule, seed: int
) -> DefendedTraining:
    """Wire ``defense`` into the training of ``model`` on ``data``.

    An `UpdateDefense` acts on the mean gradient of every step (`DefendedOptimizer`); a `TrainingDefense` does what it
    does. The result's parts go to the Trainer::

        training = defend_training(DPSGD(noise_multiplier=1.0), model, data, seed=0)
        trainer = lightning.Trainer(max_epochs=10, callbacks=[*training.callbacks, *others])
        trainer.fit(model, datamodule=training.data)
        training.facts()  # for DP-SGD: epsilon, delta, ...

    Args:
        defense: an `UpdateDefense` or a `TrainingDefense`.
        model: what is trained; its ``wrap_optimizer`` is set.
        data: the undefended batches.
        seed: what the defense draws depends on it, the rank and the step alone.

    Raises:
        UsageError: the defense cannot protect this model or these data.
    """
    if isinstance(defense, TrainingDefense):
        return defense.prepare(model, data, seed)
    model.wrap_optimizer = partial(DefendedOptimizer, defense=defense, seed=seed)
    return DefendedTraining(data, [UpdateDefenseChecks(defense)], defense)


class UpdateDefenseChecks(lightning.Callback):
    """Refuses, before the first step, a Trainer in which a client's own gradient cannot be defended."""

    def __init__(self, defense: UpdateDefense) -> None:
        super().__init__()
        self.defense = defense

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Check the Trainer.

        Raises:
            UsageError: sharded parameters, or clipping or a loss scale that act on what several processes have reduced.
        """
        if stage != "fit":
            return
        name = self.defense.name
        if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            got = type(trainer.strategy).__name__
            raise UsageError(f"{name} needs one device or DDP, where a rank holds every parameter; got {got}")
        if trainer.world_size == 1:
            return
        if trainer.gradient_clip_val:
            raise UsageError(
                f"{name} replaces what {trainer.world_size} processes have reduced, so gradient_clip_val would have no "
                "effect"
            )
        if isinstance(trainer.precision_plugin, MixedPrecision) and trainer.precision_plugin.scaler is not None:
            raise UsageError(f"{name} on {trainer.world_size} processes needs gradients without a loss scale, got fp16")
