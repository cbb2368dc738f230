"""What a step of split training computes, and the reference that computes it party by party."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lightleak.targets.split.exchange import Transform
from lightleak.targets.split.loss import loss_sum
from lightleak.targets.split.network import SplitNetwork


@dataclass(frozen=True, slots=True)
class StepLabels:
    """Labels of one batch.

    Attributes:
        trained: LongTensor ``[batch]`` the loss that is minimized.
        queried: LongTensor ``[batch]`` the loss whose gradient is recorded; ``None`` where it is the same.
        n_rows: rows the loss is the mean over: those of all ranks.
    """

    trained: Tensor
    queried: Tensor | None
    n_rows: int


class StepResult(NamedTuple):
    """``sent``, ``computed`` and ``gradients`` ``[parties, batch, width]`` as in `Exchange`, and the logits."""

    sent: Tensor
    computed: Tensor
    gradients: Tensor
    logits: Tensor


class Step(Protocol):
    """A way to compute one step: leaves the gradient of every parameter in ``.grad``, updates nothing."""

    def __call__(self, inputs: Tensor, labels: StepLabels, transform: Transform) -> StepResult:
        """Set every parameter's ``.grad`` for the batch ``inputs`` ``[batch, d]``."""


class StepByParty:
    """Computes a step as Algorithm 2 writes it: every party differentiates its own network on its own, by autograd.

    Args:
        network: the split network.
    """

    def __init__(self, network: SplitNetwork) -> None:
        self.network = network
        self.parties = [Party(network, party) for party in range(network.spec.n_parties)]

    @torch.enable_grad()
    def __call__(self, inputs: Tensor, labels: StepLabels, transform: Transform) -> StepResult:
        """See `Step`."""
        held = self.network.party_inputs(inputs)
        outputs = [party.send(own).requires_grad_() for party, own in zip(self.parties, held, strict=True)]  # l. 4, 5
        computed = torch.stack(outputs)
        transformed = transform.outputs(computed, training=True)
        sent = transformed.detach()
        received = sent.clone().requires_grad_()  # line 6: the active party's copy
        logits = self.network.logits(received)
        loss = loss_sum(logits, labels.trained) / labels.n_rows  # line 7
        top = list(self.network.top.parameters())
        gradients, *top_gradients = torch.autograd.grad(loss, [received, *top], retain_graph=True)  # line 8
        returned = torch.autograd.grad(transformed, outputs, transform.gradients(gradients, sent))
        for party, gradient in zip(self.parties, returned, strict=True):
            party.receive(gradient)  # line 9
        for parameter, gradient in zip(top, top_gradients, strict=True):
            parameter.grad = gradient  # line 10
        if labels.queried is not None:
            queried = loss_sum(logits, labels.queried) / labels.n_rows
            (gradients,) = torch.autograd.grad(queried, received)
        return StepResult(sent, computed.detach(), gradients, logits.detach())  # line 11


class Party:
    """One party of `StepByParty`: it knows its network, its columns, its output and the gradient that comes back."""

    def __init__(self, network: SplitNetwork, party: int) -> None:
        self._network, self._party = network, party
        self._output: Tensor

    def send(self, inputs: Tensor) -> Tensor:
        """Output ``[batch, width]`` for its own columns ``[batch, d_k]``, cut off from its graph."""
        self._output = self._network.party_output(self._party, inputs)
        return self._output.detach()

    def receive(self, gradient: Tensor) -> None:
        """Set ``.grad`` of its own parameters from the gradient ``[batch, width]`` of its output."""
        parameters = list(self._network.bottoms[self._party].parameters())
        for parameter, value in zip(parameters, torch.autograd.grad(self._output, parameters, gradient), strict=True):
            parameter.grad = value
