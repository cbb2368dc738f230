"""Defenses that are no transform of a finished gradient: they change how a client trains."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import Tensor, nn

from lightleak.core.registry import Registry
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal.defense import HorizontalDefense
from lightleak.targets.classifier import TabularClassifier


@dataclass(frozen=True)
class DefendedTraining:
    """What a defended training hands to its Trainer.

    Attributes:
        data: in place of the undefended data.
        callbacks: for ``Trainer(callbacks=[...])``, in addition to any others.
        defense: what defends it.
    """

    data: lightning.LightningDataModule
    callbacks: list[lightning.Callback]
    defense: HorizontalDefense

    def facts(self) -> dict[str, Any]:
        """What the defense can say of the training so far, JSON-ready: for DP-SGD epsilon and what it follows from."""
        return {key: value for callback in self.callbacks for key, value in getattr(callback, "facts", dict)().items()}


class TrainingDefense(HorizontalDefense):
    """A defense that wraps what trains: the network, its optimizer and the batches it gets."""

    @abstractmethod
    def prepare(self, model: TabularClassifier, data: TableDataModule, seed: int) -> DefendedTraining:
        """Wire the defense into ``model`` (its ``wrap_optimizer``), whose weights and names do not change.

        Args:
            model: what is trained.
            data: the undefended batches.
            seed: what the defense draws depends on it and on the number of the step or epoch alone.

        Raises:
            UsageError: model or data cannot be defended; the message says why and what can.
        """

    @abstractmethod
    def check_client(self, network: nn.Module, width: int, loss: str, n_rows: int) -> None:
        """Refuse a network whose clients cannot train under this defense.

        Args:
            network: not modified.
            width: encoded features of a row.
            loss: name of the criterion.
            n_rows: training rows of all clients.

        Raises:
            UnsupportedError: it cannot be protected; the message names the layers.
            UsageError: settings that do not go with so many rows.
        """

    @abstractmethod
    def client_gradient(
        self,
        network: nn.Module,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        draws: torch.Generator,
        loss: str = "cross_entropy",
    ) -> dict[str, Tensor]:
        """The gradient that a client under this defense sends for one batch.

        Args:
            network: the module in its mode (train or eval); only its computation is used.
            parameters: named parameters.
            buffers: named buffers; those left out are the network's own.
            inputs: ``[n, d]``.
            labels: class indices ``[n]``.
            draws: a CPU generator, as in `UpdateDefense.apply`.
            loss: name of the criterion.

        Returns:
            A gradient per parameter, same names and shapes.
        """


TRAINING_DEFENSES: Registry[type[TrainingDefense]] = Registry("training defense")
"""Defenses of the training itself by name; called with their settings."""
