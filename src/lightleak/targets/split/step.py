"""A step of split training for all parties in one go, its derivatives written out.

Autograd's bookkeeping costs more than the arithmetic of these small ReLU networks. The tests
compare it with a reference that differentiates party by party, as Algorithm 2 of ProVFL writes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.targets.mlp import FullyConnected
from lightleak.targets.split.exchange import Transform
from lightleak.targets.split.loss import loss_gradient
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


class Layer(NamedTuple):
    """Parameters of a linear layer."""

    weight: Tensor
    bias: Tensor


def layers_of(network: FullyConnected) -> tuple[Layer, ...]:
    """Linear layers of a network in order, looked up once: module attributes are slow to read."""
    linears = cast(Iterable[nn.Linear], network.linears)
    return tuple(Layer(linear.weight, linear.bias) for linear in linears)


class Step:
    """Computes a step of all parties in one go, without autograd; sets every gradient and updates nothing.

    Args:
        network: the split network; its parameters are looked up here, as an optimizer does.
    """

    def __init__(self, network: SplitNetwork) -> None:
        self.widths = network.spec.widths
        self.output_width = network.spec.output_width
        self.one_logit = network.spec.n_classes == 2
        self.bottoms = [layers_of(cast(FullyConnected, bottom)) for bottom in network.bottoms]
        self.top = layers_of(network.top)

    @torch.no_grad()
    def __call__(self, inputs: Tensor, labels: StepLabels, transform: Transform) -> StepResult:
        """Set every parameter's ``.grad`` for the batch ``inputs`` ``[batch, d]``."""
        held = inputs.split_with_sizes(self.widths, 1)
        hidden = bottom_activations(self.bottoms, held)
        outputs = sent = hidden[-1]
        # Autograd serves a defense that changes outputs, whose derivative only the defense knows.
        differentiate = type(transform).outputs is not Transform.outputs
        if differentiate:
            with torch.enable_grad():
                outputs = outputs.detach().requires_grad_()
                transformed = transform.outputs(outputs, training=True)
            sent = transformed.detach()
        received = torch.cat(sent.unbind(0), 1)
        activations, logits = self._top_forward(received)
        gradients = self._top_backward(received, activations, logits, labels.trained, labels.n_rows, keep=True)
        returned = transform.gradients(gradients, sent)
        if labels.queried is not None:
            gradients = self._top_backward(received, activations, logits, labels.queried, labels.n_rows, keep=False)
        if differentiate:
            (returned,) = torch.autograd.grad(transformed, outputs, returned)
        bottom_gradients(self.bottoms, held, hidden, returned)
        return StepResult(sent, hidden[-1], gradients, logits)

    def _top_forward(self, received: Tensor) -> tuple[list[Tensor], Tensor]:
        """Hidden activations of the top network and its logits."""
        activations, x = [], received
        for weight, bias in self.top[:-1]:
            x = F.linear(x, weight, bias).relu_()
            activations.append(x)
        logits = F.linear(x, *self.top[-1])
        return activations, logits.squeeze(1) if self.one_logit else logits

    def _top_backward(
        self, received: Tensor, hidden: list[Tensor], logits: Tensor, labels: Tensor, n_rows: int, keep: bool
    ) -> Tensor:
        """Gradient with respect to what the parties sent ``[parties, batch, width]``; ``keep`` sets ``.grad`` too."""
        gradient = loss_gradient(logits, labels, n_rows)
        gradient = gradient.unsqueeze(1) if self.one_logit else gradient
        for index in range(len(self.top) - 1, -1, -1):
            weight, bias = self.top[index]
            if keep:
                weight.grad = gradient.t() @ (hidden[index - 1] if index else received)
                bias.grad = gradient.sum(0)
            gradient = gradient @ weight
            if index:
                gradient = torch.ops.aten.threshold_backward(gradient, hidden[index - 1], 0)
        return gradient.view(len(gradient), len(self.widths), self.output_width).transpose(0, 1)


def bottom_activations(bottoms: Sequence[Sequence[Layer]], held: Sequence[Tensor]) -> list[Tensor]:
    """Activations of every layer of all bottom networks, ``[parties, batch, width]`` each; the last are the outputs."""
    first = [F.linear(x, *layers[0]) for layers, x in zip(bottoms, held, strict=True)]
    hidden = [torch.stack(first).relu_()]
    for layers in zip(*(bottom[1:] for bottom in bottoms), strict=True):
        weight, bias = (torch.stack(parts) for parts in zip(*layers, strict=True))
        hidden.append(torch.baddbmm(bias.unsqueeze(1), hidden[-1], weight.mT).relu_())
    return hidden


def bottom_gradients(
    bottoms: Sequence[Sequence[Layer]], held: Sequence[Tensor], hidden: Sequence[Tensor], gradient: Tensor
) -> None:
    """Set ``.grad`` of all bottom networks from the gradient of their outputs ``[parties, batch, width]``."""
    for index in range(len(hidden) - 1, -1, -1):
        layers = [bottom[index] for bottom in bottoms]
        gradient = torch.ops.aten.threshold_backward(gradient, hidden[index], 0)
        for layer, bias in zip(layers, gradient.sum(1).unbind(0), strict=True):
            layer.bias.grad = bias
        if index:
            weights = torch.bmm(gradient.mT, hidden[index - 1]).unbind(0)
            gradient = torch.bmm(gradient, torch.stack([layer.weight for layer in layers]))
        else:
            weights = tuple(g.t() @ x for g, x in zip(gradient.unbind(0), held, strict=True))
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight.grad = weight
