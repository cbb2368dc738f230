"""The LightningModule that trains any network on encoded rows, on any Trainer."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from lightleak.core.arguments import require_kind
from lightleak.core.errors import UsageError
from lightleak.targets.evaluation import RowMean, classification_metrics
from lightleak.targets.functional import criterion
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.spec import NetworkSpec, build_network

Batch = tuple[Tensor, Tensor]
WrapOptimizer = Callable[[torch.optim.Optimizer, nn.Module], torch.optim.Optimizer]


class TabularClassifier(lightning.LightningModule):
    """Trains a network on batches ``(inputs [n, d], labels [n])`` and logs loss, accuracy and AUROC.

    Logged per epoch, over all ranks: ``train/loss``, ``train/accuracy``, ``train/auroc`` and the same under ``val/``
    and ``test/``. A classifier built from a `NetworkSpec` is rebuilt from its checkpoint alone:
    ``TabularClassifier.load_from_checkpoint(path, weights_only=True)``.

    Attributes:
        network: the network; what an attacker reads.
        spec: its specification, None where a bare module was given.
        optimizer_config: settings of the optimizer.
        loss_name: name of the `lightleak.targets.functional.criterion`.
        wrap_optimizer: returns the optimizer to train with, given optimizer and network, as a defense does; or None.
    """

    def __init__(
        self,
        network: NetworkSpec | Mapping[str, Any] | nn.Module,
        optimizer: OptimizerConfig | Mapping[str, Any] | None = None,
        loss: str = "cross_entropy",
        n_classes: int | None = None,
        seed: int | None = None,
        wrap_optimizer: WrapOptimizer | None = None,
    ) -> None:
        """Build the network and its metrics.

        Args:
            network: specification (or its ``to_dict``), or a module ``[n, d] -> [n, n_classes]``. A module is not part
                of the checkpoint's hyperparameters: hand it to ``load_from_checkpoint`` again.
            optimizer: settings (or their dictionary); None is plain SGD.
            loss: name of the training criterion.
            n_classes: only for a bare module, whose specification is unknown.
            seed: initial weights depend on nothing else; None draws them from torch's global generator.
            wrap_optimizer: see the attribute; no part of the hyperparameters, so hand it over again when resuming.

        Raises:
            UsageError: an unknown name or option, an argument of another type, or a bare module without ``n_classes``.
        """
        super().__init__()
        config = OptimizerConfig.of(optimizer)
        self.optimizer_config = config
        self.loss_name = loss
        self.criterion = criterion(loss)
        self.wrap_optimizer = wrap_optimizer
        # Plain containers only: the checkpoint must load with weights_only.
        hyperparameters: dict[str, Any] = {"optimizer": asdict(config), "loss": loss}
        if isinstance(network, nn.Module):
            if n_classes is None:
                raise UsageError("n_classes must be given with a bare module, got None")
            self.spec, self.network = None, network
            hyperparameters["n_classes"] = n_classes
        else:
            require_kind("network", network, (NetworkSpec, Mapping), "a NetworkSpec, its dictionary or an nn.Module")
            self.spec = network if isinstance(network, NetworkSpec) else NetworkSpec.from_dict(network)
            self.network = build_network(self.spec, seed)
            n_classes = self.spec.n_classes
            hyperparameters |= {"network": self.spec.to_dict(), "seed": seed}
        self.n_classes = n_classes
        self.save_hyperparameters(hyperparameters)
        self.train_metrics, self.train_loss = classification_metrics(n_classes, "train/"), RowMean()
        self.val_metrics, self.val_loss = classification_metrics(n_classes, "val/"), RowMean()
        self.test_metrics, self.test_loss = classification_metrics(n_classes, "test/"), RowMean()

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits ``[n, n_classes]`` of encoded rows ``[n, d]``."""
        logits: Tensor = self.network(inputs)
        return logits

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Mean loss of the batch."""
        return self._step("train", self.train_metrics, self.train_loss, batch)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Update the validation metrics."""
        self._step("val", self.val_metrics, self.val_loss, batch)

    def test_step(self, batch: Batch, batch_index: int) -> None:
        """Update the test metrics."""
        self._step("test", self.test_metrics, self.test_loss, batch)

    def predict_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Class probabilities ``[n, n_classes]``."""
        return torch.softmax(self(batch[0]), dim=-1)

    def on_train_start(self) -> None:
        """Drop what a training that was interrupted within an epoch has left."""
        _reset(self.train_metrics, self.train_loss)

    def on_validation_start(self) -> None:
        """Drop what an interrupted validation has left."""
        _reset(self.val_metrics, self.val_loss)

    def on_test_start(self) -> None:
        """Drop what an interrupted test has left."""
        _reset(self.test_metrics, self.test_loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer of `optimizer_config`, wrapped where asked for."""
        optimizer = self.optimizer_config.build(self.network.parameters())
        return optimizer if self.wrap_optimizer is None else self.wrap_optimizer(optimizer, self.network)

    def _step(self, stage: str, metrics: MetricCollection, mean_loss: RowMean, batch: Batch) -> Tensor:
        inputs, labels = batch
        logits = self(inputs)
        if not len(labels):
            return logits.sum()  # a Poisson batch may hold no row: nothing to log, and a gradient of zero
        loss = self.criterion(logits, labels)
        probabilities = torch.softmax(logits.detach().float(), dim=-1)
        is_first = not mean_loss.update_called
        metrics.update(probabilities[:, 1] if self.n_classes == 2 else probabilities, labels)
        mean_loss.update(loss, len(labels))
        if is_first:  # at every batch, a Trainer would walk over all that the metrics hold of the batches before
            self.log(f"{stage}/loss", mean_loss, on_step=False, on_epoch=True, batch_size=len(labels))
            self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss


def _reset(metrics: MetricCollection, mean_loss: RowMean) -> None:
    metrics.reset()
    mean_loss.reset()
