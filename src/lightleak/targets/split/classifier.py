"""The LightningModule that trains a split network as the parties would (ProVFL Algorithm 2)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

import lightning
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor
from torchmetrics import MetricCollection

from lightleak.core.errors import UsageError
from lightleak.targets.evaluation import RowMean, classification_metrics
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split.exchange import Exchange, Transform
from lightleak.targets.split.loss import EpochLoss, loss_sum
from lightleak.targets.split.network import SplitNetwork, SplitSpec
from lightleak.targets.split.optimizer import build_optimizer
from lightleak.targets.split.ranks import mean_gradients, summed, summed_gradients
from lightleak.targets.split.step import Step, StepLabels
from lightleak.targets.split.support import check_loaders, check_trainer

Batch = tuple[Tensor, Tensor, Tensor]
Relabel = Callable[[Tensor, Tensor], Tensor]
"""``(ids [batch], labels [batch]) -> labels [batch]``."""


class SplitClassifier(lightning.LightningModule):
    """Trains on batches ``(inputs [batch, d], labels [batch], ids [batch])`` of all parties.

    Logged per epoch, over all ranks: ``train/loss``; ``val/loss``, ``val/accuracy``, ``val/auroc`` and the same under
    ``test/``. ``SplitClassifier.load_from_checkpoint(path, weights_only=True)`` rebuilds it, without `transform` and
    `relabel`, which are not part of the target.

    Under several ranks the loss is the mean over the rows of all of them, so that the weights are those of one process
    with the same global batch, and `exchange` holds this rank's share of it.

    Attributes:
        network: the split network.
        transform: the defense, or one that changes nothing.
        relabel: what the active party trains on in place of the labels; ``None`` leaves them.
        query_relabeled: `Exchange.gradients` are those of the relabeled loss (as ProVFL's code has it) instead of the
            loss of the true labels.
        exchange: what traveled in the last step.
    """

    def __init__(
        self,
        spec: SplitSpec | Mapping[str, Any],
        optimizer: OptimizerConfig | Mapping[str, Any] | None = None,
        decay: float = 0.97,
        decay_top: bool = False,
        seed: int | None = None,
    ) -> None:
        """Build the network.

        Args:
            spec: the split network (or its ``to_dict``).
            optimizer: every party's optimizer (or its dictionary); None is plain SGD.
            decay: factor on the bottom networks' learning rate after every epoch, above 0 and at most 1.
            decay_top: decay the top network's as well; ProVFL's code forgets it.
            seed: initial weights depend on nothing else; None draws them from torch's global generator.

        Raises:
            UsageError: a value outside its domain.
        """
        super().__init__()
        if not 0 < decay <= 1:
            raise UsageError(f"decay must be above 0 and at most 1, got {decay!r}")
        self.automatic_optimization = False
        config = OptimizerConfig.of(optimizer)
        known = spec if isinstance(spec, SplitSpec) else SplitSpec.from_dict(spec)
        # Plain containers only: the checkpoint must load with weights_only.
        self.save_hyperparameters(
            {"spec": known.to_dict(), "optimizer": asdict(config), "decay": decay, "decay_top": decay_top, "seed": seed}
        )
        self.optimizer_config, self.decay, self.decay_top = config, decay, decay_top
        self.network = SplitNetwork(known, seed)
        self.transform = Transform()
        self.relabel: Relabel | None = None
        self.query_relabeled = False
        self.exchange: Exchange | None = None
        self.val_metrics: MetricCollection = classification_metrics(known.n_classes, "val/")
        self.test_metrics: MetricCollection = classification_metrics(known.n_classes, "test/")
        # Lightning's own mean over ranks is wrong where they hold unequal numbers of rows.
        self.val_loss, self.test_loss = RowMean(), RowMean()
        self._epoch_loss = EpochLoss()
        self._step: Step

    def __setattr__(self, name: str, value: Any) -> None:
        # A Trainer notes the hook it is in two dozen times per step; a module's own setter first looks for parameters,
        # which made up a twelfth of the time of training.
        if name == "_current_fx_name":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of rows ``[n, d]``."""
        logits: Tensor = self.network(inputs)
        return logits

    def training_step(self, batch: Batch, batch_index: int) -> None:
        """One step of Algorithm 2, lines 3 to 11."""
        inputs, labels, ids = batch
        trained = labels if self.relabel is None else self.relabel(ids, labels)
        queried = None if self.relabel is None or self.query_relabeled else labels
        n_rows = len(ids)
        several = self.trainer.world_size > 1
        if several:
            n_rows = int(summed(torch.tensor(n_rows, device=self.device)))
        step = self._step(inputs, StepLabels(trained, queried, n_rows), self.transform)
        if several:
            summed_gradients(self.network.parameters())
        cast(LightningOptimizer, self.optimizers()).step()
        self._epoch_loss.add(step.logits, trained)
        self.exchange = Exchange(ids, step.sent, step.computed, step.gradients)

    def step_party(self, party: int, gradient: Tensor, inputs: Tensor) -> None:
        """Update one party's bottom network alone, with its own optimizer state and settings, outside the protocol.

        For an adversary that trains its bottom network on a loss of its own (ProVFL's model refinement, Algorithm 2,
        line 14). No other party's parameters, momentum or weight decay are touched, nor is the count of training steps.
        Callable while a Trainer fits this module, between steps or epochs. Under several ranks, every rank must call
        it, and the mean of their gradients is applied.

        Args:
            party: index of the party.
            gradient: ``[n, output_width]`` gradient of the loss with respect to what the party sends.
            inputs: ``[n, d_k]`` the party's own columns.

        Raises:
            UsageError: no such party, or shapes that do not fit.
        """
        network = self.network
        network.check_party(party, inputs)
        wanted = (len(inputs), network.spec.output_width)
        if tuple(gradient.shape) != wanted:
            raise UsageError(f"gradient of party {party} must have shape {list(wanted)}, got {list(gradient.shape)}")
        network.zero_grad(set_to_none=True)  # an optimizer leaves parameters without gradient alone
        parameters = list(network.bottoms[party].parameters())
        with torch.enable_grad():
            output = network.party_output(party, inputs)
        gradients = torch.autograd.grad(output, parameters, gradient)
        for parameter, value in zip(parameters, gradients, strict=True):
            parameter.grad = value
        if self.trainer.world_size > 1:
            mean_gradients(parameters)
        self._optimizer().step()
        network.zero_grad(set_to_none=True)

    def setup(self, stage: str) -> None:
        """Refuse a Trainer that cannot train this module; see `lightleak.targets.split.support`."""
        if stage == "fit":
            check_trainer(self.trainer)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer with a group for the bottom networks and one for the top network."""
        return build_optimizer(self.optimizer_config, self.network)

    def on_train_start(self) -> None:
        """Look the parameters up, on their device, as the optimizer has done."""
        self._check_loaders(self.trainer.train_dataloader)
        self._step = Step(self.network)
        self.on_train_epoch_start()  # a resumed run may enter an epoch without this hook

    def on_train_epoch_start(self) -> None:
        """Set the epoch's learning rates; they depend on its number alone, so that a resumed run has the same."""
        self._epoch_loss.reset()
        rate = self.optimizer_config.learning_rate
        decayed = rate * self.decay**self.current_epoch
        bottoms, top = self._optimizer().param_groups
        bottoms["lr"], top["lr"] = decayed, decayed if self.decay_top else rate

    def on_train_epoch_end(self) -> None:
        """Log the epoch's mean training loss over the rows of all ranks."""
        total = self._epoch_loss.total()
        if total is None:  # resumed at the end of an epoch
            return
        if self.trainer.world_size > 1:
            total = summed(total.to(self.device))
        self.log("train/loss", (total[0] / total[1]).float(), sync_dist=True)

    def on_validation_start(self) -> None:
        """Check the loaders, and drop what an interrupted validation has left."""
        self._check_loaders(self.trainer.val_dataloaders)
        self.val_metrics.reset()
        self.val_loss.reset()

    def on_test_start(self) -> None:
        """Check the loaders, and drop what an interrupted test has left."""
        self._check_loaders(self.trainer.test_dataloaders)
        self.test_metrics.reset()
        self.test_loss.reset()

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Update the validation metrics."""
        self._evaluate("val", self.val_metrics, self.val_loss, batch)

    def test_step(self, batch: Batch, batch_index: int) -> None:
        """Update the test metrics."""
        self._evaluate("test", self.test_metrics, self.test_loss, batch)

    def predict_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Class probabilities ``[n, n_classes]``."""
        logits = self._answer(batch[0])
        if logits.ndim == 2:
            return torch.softmax(logits, -1)
        positive = torch.sigmoid(logits)
        return torch.stack([1 - positive, positive], 1)

    def _optimizer(self) -> torch.optim.Optimizer:
        """The optimizer itself, whose steps a Trainer does not count."""
        return cast(torch.optim.Optimizer, self.optimizers(use_pl_optimizer=False))

    def _answer(self, inputs: Tensor) -> Tensor:
        """Float32 logits as the parties compute them together, with the defense's evaluation mode."""
        sent = self.transform.outputs(self.network.outputs(inputs), training=False)
        logits = self.network.logits(sent)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _evaluate(self, stage: str, metrics: MetricCollection, mean_loss: RowMean, batch: Batch) -> None:
        inputs, labels, _ = batch
        is_first = not mean_loss.update_called
        if len(labels):  # a last batch may have fewer rows than there are ranks
            logits = self._answer(inputs)
            metrics.update(torch.sigmoid(logits) if logits.ndim == 1 else torch.softmax(logits, -1), labels)
            mean_loss.update(loss_sum(logits, labels) / len(labels), len(labels))
        if is_first:  # see `TabularClassifier`
            self.log(f"{stage}/loss", mean_loss, on_step=False, on_epoch=True, batch_size=len(labels))
            self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=len(labels))

    def _check_loaders(self, loaders: Any) -> None:
        listed: Iterable[Any] = loaders if isinstance(loaders, list | tuple) else [loaders]
        check_loaders(listed, self.network.spec, self.trainer.world_size)
