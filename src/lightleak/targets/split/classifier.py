"""The LightningModule that trains a split network as the parties would (ProVFL Algorithm 2)."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection

from lightleak.targets.classifier import classification_metrics
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split.exchange import Exchange, Transform
from lightleak.targets.split.network import SplitNetwork, SplitSpec

Batch = tuple[Tensor, Tensor, Tensor]
Relabel = Callable[[Tensor, Tensor], Tensor]
"""``(ids [batch], labels [batch]) -> labels [batch]``."""


class SplitClassifier(lightning.LightningModule):
    """Trains on batches ``(inputs [batch, d], labels [batch], ids [batch])``; logs ``test/auroc``, ``test/accuracy``.

    Attributes:
        network: the split network.
        transform: the defence, or one that changes nothing.
        relabel: what the active party trains on in place of the labels; ``None`` leaves them.
        query_relabelled: `Exchange.gradients` are those of the relabelled loss (as ProVFL's code has it) instead of the
            loss of the true labels.
        exchange: what travelled in the last step.
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
            spec: the split network.
            optimizer: every party's optimiser.
            decay: factor on the bottom networks' learning rate after every epoch.
            decay_top: decay the top network's as well; ProVFL's code forgets it.
            seed: initial weights depend on nothing else.
        """
        super().__init__()
        self.automatic_optimization = False
        config = OptimizerConfig(**optimizer) if isinstance(optimizer, Mapping) else optimizer or OptimizerConfig()
        known = spec if isinstance(spec, SplitSpec) else SplitSpec.from_dict(spec)
        self.save_hyperparameters(
            {"spec": known.to_dict(), "optimizer": asdict(config), "decay": decay, "decay_top": decay_top, "seed": seed}
        )
        self.optimizer_config, self.decay, self.decay_top = config, decay, decay_top
        self.network = SplitNetwork(known, seed)
        self.transform = Transform()
        self.relabel: Relabel | None = None
        self.query_relabelled = False
        self.exchange: Exchange | None = None
        self.val_metrics: MetricCollection = classification_metrics(known.n_classes, "val/")
        self.test_metrics: MetricCollection = classification_metrics(known.n_classes, "test/")

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of rows ``[n, d]``."""
        logits: Tensor = self.network(inputs)
        return logits

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy."""
        if self.network.spec.n_classes == 2:
            return F.binary_cross_entropy_with_logits(logits, labels.float())
        return F.cross_entropy(logits, labels)

    def training_step(self, batch: Batch, batch_index: int) -> None:
        """One step of Algorithm 2, lines 3 to 11."""
        inputs, labels, ids = batch
        optimizer = self.optimizers(use_pl_optimizer=False)
        optimizer.zero_grad()
        outputs = self.network.outputs(inputs)
        sent = self.transform.outputs(outputs, training=True)
        received = sent.detach().requires_grad_()
        logits = self.network.logits(received)
        trained = labels if self.relabel is None else self.relabel(ids, labels)
        loss = self.loss(logits, trained)
        queried = None
        if self.relabel is not None and not self.query_relabelled:
            (queried,) = torch.autograd.grad(self.loss(logits, labels), received, retain_graph=True)
        loss.backward()
        gradients = received.grad
        sent.backward(self.transform.gradients(gradients, sent.detach()))
        optimizer.step()
        self.exchange = Exchange(ids, sent.detach(), gradients if queried is None else queried)

    def on_train_epoch_end(self) -> None:
        """Decay the learning rates."""
        self.lr_schedulers().step()

    def test_step(self, batch: Batch, batch_index: int) -> None:
        """Update the test metrics."""
        self._evaluate("test", self.test_metrics, batch)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Update the validation metrics."""
        self._evaluate("val", self.val_metrics, batch)

    def configure_optimizers(self) -> Any:
        """One optimiser with a group for the bottom networks and one for the top network."""
        optimizer = self.optimizer_config.build(self.network.bottoms.parameters())
        optimizer.add_param_group({"params": list(self.network.top.parameters())})
        top = (lambda epoch: self.decay**epoch) if self.decay_top else (lambda epoch: 1.0)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda epoch: self.decay**epoch, top])]

    def _evaluate(self, stage: str, metrics: MetricCollection, batch: Batch) -> None:
        inputs, labels, _ = batch
        sent = self.transform.outputs(self.network.outputs(inputs), training=False)
        logits = self.network.logits(sent)
        two = self.network.spec.n_classes == 2
        metrics.update(torch.sigmoid(logits) if two else torch.softmax(logits, -1), labels)
        self.log(f"{stage}/loss", self.loss(logits, labels), on_epoch=True, sync_dist=True, batch_size=len(labels))
        self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=len(labels))
