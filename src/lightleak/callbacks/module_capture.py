"""`ModuleCapture`: gradient capture for any LightningModule, without changes to it."""

import copy
import warnings
from collections.abc import Callable, Collection
from typing import Any

import lightning
from torch import Tensor, nn
from torch.optim import Optimizer

from lightleak.callbacks.capture_store import Capture
from lightleak.callbacks.capture_support import described_network, is_a
from lightleak.callbacks.gradient_capture import GradientCapture, NamedTensors
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.data.described_inputs import DescribedInputs
from lightleak.data.encoder import TableEncoder
from lightleak.data.input_form import InputForm
from lightleak.data.marginals import Marginals
from lightleak.protocols.replay import require_replay
from lightleak.targets.client_form import PREFIX, ClientForm
from lightleak.targets.own import hand_over, uncompiled
from lightleak.targets.own_check import ROWS, require_classifier, require_trained
from lightleak.targets.single_logit import two_logit_gradient, two_logit_weights, with_two_logits
from lightleak.targets.spec import NetworkSpec

ReadBatch = Callable[[Any], tuple[Tensor, Tensor]]

REFUSALS_IN_A_ROW = 5
"""After this many the training is assumed to have another loss: every further attempt costs a gradient. With
weighted classes a batch of 8 fits about once in a hundred tries, when all its rows are of one class."""


class ModuleCapture(GradientCapture):
    """Records the gradients of any LightningModule whose loss is the mean cross-entropy of a network's logits.

    A network of one logit under mean binary cross-entropy is recorded as the network of two classes that it equals
    (`lightleak.targets.single_logit`).

    The network is found automatically if one submodule holds all parameters, or if the LightningModule itself is the
    network; its structure is kept in this process (`lightleak.targets.own`), so that attacks can rebuild it. Every
    capture is replayed from its rows. If they do not reproduce it (another loss, weighted classes, inputs changed on
    the way), or if the batch cannot be read, the capture is dropped. A warning describes the first such step, and
    another at the end reports their number. After `REFUSALS_IN_A_ROW` in a row, recording stops and the training
    continues. Captures stay in memory; nothing else differs from `GradientCapture`.

    Attributes:
        tried: steps that were recorded and replayed.
        left_out: how many of them are not among the captures.
    """

    def __init__(
        self,
        encoder: TableEncoder,
        *,
        network: str | None = None,
        batch: ReadBatch | None = None,
        share_labels: bool = True,
        share_statistics: bool = False,
        marginals: Marginals | None = None,
        epochs: Collection[int] = (0,),
        per_epoch: int | None = 1,
        max_captures: int = 100,
    ) -> None:
        """Choose what is recorded.

        Args:
            encoder: describes the columns of the network's inputs.
            network: attribute of the LightningModule that takes inputs ``[n, d]`` to logits; ``"self"`` for the module.
            batch: from a batch of the training to inputs ``[n, d]`` and labels ``[n]``; left out, a batch is that pair.
            share_labels: updates carry their labels.
            share_statistics: updates carry mean and variance of every BatchNorm layer on their batch.
            marginals: one-way marginals that the server knows.
            epochs: see `CaptureSchedule`.
            per_epoch: see `CaptureSchedule`.
            max_captures: see `CaptureSchedule`.

        Raises:
            UsageError: as `GradientCapture`.
        """
        super().__init__(
            encoder,
            share_labels=share_labels,
            share_statistics=share_statistics,
            marginals=marginals,
            keep=True,
            epochs=epochs,
            per_epoch=per_epoch,
            max_captures=max_captures,
        )
        self.network_name, self.read_batch = network, batch
        self._grown: str | None = None
        self.tried, self.left_out, self._in_a_row = 0, 0, 0

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Reset the counters; errors as for `GradientCapture`."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            self.tried, self.left_out, self._in_a_row = 0, 0, 0

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """As `GradientCapture`; a batch that cannot be read does not stop the training."""
        try:
            super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        except Exception as error:  # reading a batch runs the user's function
            self._refuse(error)

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: Optimizer
    ) -> None:
        """As `GradientCapture`; a step that cannot be recorded does not stop the training."""
        try:
            super().on_before_optimizer_step(trainer, pl_module, optimizer)
        except Exception as error:  # replay runs the user's network
            self._refuse(error)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Remove every hook and report how many steps were left out."""
        if self.left_out:
            self._passed_over = None  # the first warning gave a reason
        super().on_train_end(trainer, pl_module)
        if self.left_out:
            warnings.warn(left_out_words(self.left_out, self.tried), stacklevel=2)

    def _describe(self, module: lightning.LightningModule) -> tuple[nn.Module, NetworkSpec]:
        if self.network_name is None and isinstance(getattr(module, "spec", None), NetworkSpec):
            return described_network(module, self.encoder)
        self._called = find_network(module, self.network_name)
        network = uncompiled(self._called)
        require_trained(network)
        rows = self.encoder.spread_rows(ROWS)
        formed = ClientForm.of(without_trainer(network), self._form, rows)
        alone, self._grown = with_two_logits(formed, self.encoder.width)
        spec = NetworkSpec(hand_over(alone), require_classifier(alone, rows), self.encoder.layout)
        if not isinstance(formed, ClientForm):
            return network, spec
        return nn.ModuleDict({PREFIX: network}), spec

    @property
    def _form(self) -> InputForm | None:
        return self.encoder.form if isinstance(self.encoder, DescribedInputs) else None

    def _read(self, batch: Any) -> tuple[Tensor, Tensor]:
        batch = batch if self.read_batch is None else self.read_batch(batch)
        inputs, labels = super()._read(batch) if self._form is None else self._form.read(batch)
        return inputs, labels if self._grown is None else class_indices(labels)

    def _sent(self, weights: NamedTensors, gradient: NamedTensors) -> tuple[NamedTensors, NamedTensors]:
        if self._grown is None:
            return weights, gradient
        return two_logit_weights(weights, self._grown), two_logit_gradient(gradient, self._grown)

    @property
    def is_over(self) -> bool:
        """Whether recording has stopped after too many failed steps in a row."""
        return self._in_a_row >= REFUSALS_IN_A_ROW

    def _begin(self, trainer: lightning.Trainer) -> None:
        if not self.is_over:
            super()._begin(trainer)

    def _accepts(self, capture: Capture) -> bool:
        require_replay(capture.update, capture.truth)
        self.tried += 1
        self._in_a_row = 0
        return True

    def _refuse(self, error: Exception) -> None:
        """Drop a step and count it; warn in full about the first, and about the one that stops the recording."""
        self._drop()
        self.tried += 1
        self.left_out += 1
        self._in_a_row += 1
        if self.left_out == 1:
            reason = str(error) if isinstance(error, LightLeakError) else f"{type(error).__name__}: {error}"
            warnings.warn(
                f"optimizer step {self._step} was not captured: {reason}. The training step must take the mean "
                "cross-entropy of the network's logits on its batch, a pair of inputs and labels or what batch=... "
                "makes one; where the LightningModule's forward changes inputs or logits of its network, give "
                "network='self'; further steps of this kind are counted",
                stacklevel=3,
            )
        if self.is_over:
            warnings.warn(
                f"{REFUSALS_IN_A_ROW} steps in a row were not captured: nothing more is recorded in this training",
                stacklevel=3,
            )


def left_out_words(left_out: int, tried: int) -> str:
    """Return the sentence about steps that were left out, for a warning and a report.

    >>> left_out_words(5, 6)
    '5 of 6 recorded steps were left out: not the gradient of the mean cross-entropy of rows that could be read'
    """
    return (
        f"{left_out} of {tried} recorded steps were left out: not the gradient of the mean cross-entropy of rows that "
        "could be read"
    )


def find_network(module: lightning.LightningModule, name: str | None = None) -> nn.Module:
    """The network within a LightningModule.

    Args:
        module: the LightningModule.
        name: its attribute; ``self``: the module itself; left out: the only child that holds all its parameters, or the
            module itself where there is none such.

    Raises:
        UsageError: no such attribute, or the module has no parameters.
    """
    with_parameters = [key for key, child in module.named_children() if any(True for _ in child.parameters())]
    if name == "self":
        return module
    if name is not None:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, nn.Module):
            known = ", ".join([*with_parameters, "self"])
            raise UsageError(f"network must name a module of {type(module).__name__} ({known}), got {name!r}")
        return found
    if not any(True for _ in module.parameters()):
        raise UsageError(f"{type(module).__name__} has no parameters before the training; build them in __init__")
    own = any(True for _ in module.parameters(recurse=False))
    if len(with_parameters) == 1 and not own:
        child: nn.Module = getattr(module, with_parameters[0])
        return module if isinstance(child, nn.ModuleList | nn.ModuleDict) else child  # these have no forward
    return module


def class_indices(labels: Tensor) -> Tensor:
    """Labels ``[n]`` as class indices, from those of binary cross-entropy: 0 and 1 of any type, ``[n]`` or ``[n, 1]``.

    Raises:
        UsageError: any other value, which is no label of one row.

    >>> import torch
    >>> class_indices(torch.tensor([[1.0], [0.0]]))
    tensor([1, 0])
    """
    found = labels.reshape(len(labels)).long() if labels.numel() == len(labels) else labels
    if found.dim() != 1 or not bool(((labels == 0) | (labels == 1)).all()):
        raise UsageError(
            f"labels of a network of one logit must be 0 or 1, [n] or [n, 1]; got {labels.dtype} {tuple(labels.shape)}"
        )
    return found


def without_trainer(network: nn.Module) -> nn.Module:
    """The module, or for a LightningModule a shell of it that shares all but the Trainer, which cannot be copied."""
    if not is_a(network, "LightningModule"):
        return network
    shell = copy.copy(network)
    vars(shell).update(_trainer=None, _fabric=None)
    return shell
