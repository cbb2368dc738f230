"""Records one optimizer step of one client from inside its backward, by hooks that only read.

The gradient is taken from the training's own backward, by a hook on each parameter. Such a hook sees what autograd is
about to add to ``.grad``: after all uses of the parameter have been summed, before DistributedDataParallel reduces it
over ranks and before anything clips it. Nothing is computed twice and no generator is touched, so dropout, mixed
precision and the weights that come out of training are what they are without it.
"""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.protocols.local_pass import Autocast, generator_state, named_statistics
from lightleak.protocols.records import RecordedBatch
from lightleak.targets.normalization import record_statistics


class StepRecorder:
    """Collects the micro-batches of one optimizer step.

    Call `arm` before a micro-batch's forward, `note_loss` with the loss that is differentiated, `disarm` after its
    backward. Then the record is complete up to that micro-batch.

    Args:
        network: the client's network.
        with_statistics: also record every BatchNorm layer's batch statistics (of the last micro-batch).
        called: the module whose forward is watched, where ``network`` only holds it; left out, ``network``.

    Attributes:
        armed: hooks are set.
        sizes: rows of each micro-batch recorded so far.
        parameters: named parameters before the first forward.
        buffers: named buffers before the first forward.
        training_mode: whether the network was in train mode.
        statistics: ``<layer>.mean`` and ``<layer>.var``.
    """

    def __init__(self, network: nn.Module, with_statistics: bool = False, called: nn.Module | None = None) -> None:
        self.network = network
        self.called = network if called is None else called
        self.with_statistics = with_statistics
        self.armed = False
        self.sizes: list[int] = []
        self.parameters: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        self.training_mode = self.called.training
        self.statistics: dict[str, Tensor] = {}
        self.device = next(network.parameters()).device
        self._inputs: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._ids: list[Tensor] = []
        self._states: list[Tensor] = []
        self._sums: dict[str, Tensor] = {}
        self._loss = torch.zeros((), dtype=torch.float64)
        self._hooks = ExitStack()

    def arm(self, inputs: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Set the hooks for one micro-batch.

        Args:
            inputs: ``[n, d]`` as the training step gets them.
            labels: ``[n]``, likewise.
            ids: ``[n]``, whose rows they are, where that is known.
        """
        self.armed = True
        self.sizes.append(len(inputs))
        self._inputs.append(_copy(inputs))
        self._labels.append(_copy(labels))
        if ids is not None and len(ids) == len(inputs):
            self._ids.append(_copy(ids))
        self._hooks.callback(self.called.register_forward_pre_hook(self._before_forward).remove)
        for name, parameter in self.network.named_parameters():
            self._hooks.callback(parameter.register_hook(self._adder(name)).remove)
        if self.with_statistics:
            recorded = self._hooks.enter_context(record_statistics(self.network))
            self._hooks.callback(lambda: self.statistics.update(named_statistics(recorded)))

    def note_loss(self, loss: Tensor) -> None:
        """Add the loss of the micro-batch, scaled and divided as its backward sees it."""
        self._loss += loss.detach().cpu().double().sum()  # one element, of any shape

    def disarm(self) -> None:
        """Remove the hooks; does nothing if there are none."""
        self._hooks.close()
        self.armed = False

    @property
    def complete(self) -> bool:
        """Every micro-batch went through one forward."""
        return len(self._states) == len(self.sizes)

    def gradient(self, loss_scale: float = 1.0) -> dict[str, Tensor]:
        """The client's own gradient, on the CPU: summed over micro-batches and divided by the loss scale.

        A parameter that the loss does not reach has a gradient of zero.
        """
        inverse = 1.0 / loss_scale
        return {
            name: (self._sums[name] * inverse).cpu() if name in self._sums else torch.zeros_like(value)
            for name, value in self.parameters.items()
        }

    def labels(self) -> Tensor:
        """Labels of all micro-batches, ``[n]``."""
        return torch.cat(self._labels)

    def truth(self, autocast: Autocast = "none", loss_scale: float = 1.0) -> RecordedBatch:
        """The private batch: the union of the micro-batches, in order."""
        return RecordedBatch(
            torch.cat(self._inputs),
            self.labels(),
            float(self._loss) / loss_scale,
            torch.cat(self._ids) if len(self._ids) == len(self.sizes) else None,
            generator_states=torch.stack(self._states),
            buffers=self.buffers,
            autocast=autocast,
            loss_scale=loss_scale,
            device=self.device.type,
        )

    def _before_forward(self, network: nn.Module, args: tuple[Any, ...]) -> None:
        if len(self._states) == len(self.sizes):
            return  # a second forward within one step: replay tells whether the record still holds
        self._states.append(generator_state(self.device))
        if len(self._states) == 1:
            self.training_mode = network.training
            self.parameters = {name: _copy(value) for name, value in self.network.named_parameters()}
            self.buffers = {name: _copy(value) for name, value in self.network.named_buffers()}

    def _adder(self, name: str) -> Any:
        def add(gradient: Tensor) -> None:
            # In the order and type of autograd's own sum in .grad, so that both are equal to the bit.
            self._sums[name] = self._sums[name] + gradient.detach() if name in self._sums else gradient.detach().clone()

        return add


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
