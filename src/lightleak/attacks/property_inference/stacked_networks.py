"""Small fully connected networks trained side by side: one batched product per layer for all of them.

The derivatives are written out, so that a step costs a dozen kernels whatever the number of networks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.seeds import generator

Initialization = Literal["kaiming_normal", "torch"]
"""``torch``: `nn.Linear`'s own. ``kaiming_normal``: He's normal weights and `nn.Linear`'s own biases."""

BLOCK_BYTES = 2**24  # inputs gathered at once: large enough to hide the call, small enough for any cache and any width


@dataclass(frozen=True)
class Schedule(AttackSettings):
    """How the networks are trained.

    Attributes:
        method: ``adam`` or ``sgd``.
        epochs: passes over the rows.
        batch_size: rows per step; the last batch of an epoch may be smaller.
        learning_rate: step size.
        weight_decay: factor of the weights that is added to their gradient.
        decay: factor on the learning rate after every epoch.

    Raises:
        UsageError: a value out of range.
    """

    owner: ClassVar[str] = "a schedule"

    method: Literal["adam", "sgd"] = "adam"
    epochs: int = bounded(50, ge=1)
    batch_size: int = bounded(32, ge=1)
    learning_rate: float = bounded(1e-3, gt=0)
    weight_decay: float = bounded(1e-4, ge=0)
    decay: float = bounded(1.0, gt=0)


@dataclass(frozen=True)
class FeatureRows:
    """Stored rows, converted to float32 and standardized only where they are read.

    Attributes:
        values: ``[n, d]`` of any type; a table of zeros and ones may be uint8.
        mean: float ``[d]`` taken off, or ``None``.
        scale: float ``[d]`` divided by, or ``None``.
    """

    values: Tensor
    mean: Tensor | None = None
    scale: Tensor | None = None

    def take(self, at: Tensor) -> Tensor:
        """Rows ``at`` (any shape), float ``[*at.shape, d]``."""
        rows = self.values[at].float()
        return rows if self.mean is None or self.scale is None else rows.sub_(self.mean).div_(self.scale)

    def standardized(self, at: Tensor) -> "FeatureRows":
        """The same rows, standardized by mean and deviation over rows ``at`` ``[m]``; a constant column becomes 0."""
        total = self.values.new_zeros(self.values.shape[1], dtype=torch.float64)
        squares = total.clone()
        for block in at.split(self._rows_per_block()):
            rows = self.values[block].double()
            total += rows.sum(0)
            squares += rows.square().sum(0)
        mean = total / len(at)
        deviation = (squares / len(at) - mean.square()).clamp(min=0).sqrt()
        # Below this the deviation is rounding noise of the two sums.
        constant = deviation <= 1e-6 * (squares / len(at)).sqrt()
        return FeatureRows(self.values, mean.float(), torch.where(constant, 1.0, deviation).float())

    def _rows_per_block(self) -> int:
        return max(1, BLOCK_BYTES // (8 * self.values.shape[1]))


class StackedNetworks:
    """k networks of the same widths with ReLU between their layers, all parameters in one flat tensor.

    Attributes:
        parameters: float32 ``[p]``.
        weights: per layer, a view ``[k, inputs, outputs]`` of `parameters`.
        biases: per layer, a view ``[k, 1, outputs]`` of `parameters`.
    """

    def __init__(self, n_networks: int, widths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.shapes = [shape for i, o in pairwise(widths) for shape in ((n_networks, i, o), (n_networks, 1, o))]
        self.parameters = torch.zeros(sum(map(math.prod, self.shapes)), device=device)
        self.weights, self.biases = self.views(self.parameters)

    def views(self, flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Weights and biases inside a flat tensor of the size of `parameters`."""
        parts = flat.split([math.prod(shape) for shape in self.shapes])
        shaped = [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return shaped[0::2], shaped[1::2]

    def activations(self, inputs: Tensor) -> list[Tensor]:
        """What goes into each layer, and the last layer's output ``[k, n, outputs]``; ``inputs`` ``[k, n, d]``."""
        seen = [inputs]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            seen.append(torch.baddbmm(bias, seen[-1], weight).relu_())
        return [*seen, torch.baddbmm(self.biases[-1], seen[-1], self.weights[-1])]

    def outputs(self, rows: FeatureRows, at: Tensor, layer: int = -1) -> Tensor:
        """Output ``[k, n, width]`` of one layer (after its ReLU; the last by default) on rows ``at`` ``[n]``."""
        k, widest = self.weights[0].shape[0], max(weight.shape[1] for weight in self.weights)
        blocks = at.split(max(1, BLOCK_BYTES // (4 * k * widest)))
        return torch.cat([self.activations(rows.take(block).expand(k, -1, -1))[layer] for block in blocks], 1)


def initial_networks(
    n_networks: int,
    widths: Sequence[int],
    initialization: Initialization,
    seed: int,
    device: torch.device | str = "cpu",
) -> StackedNetworks:
    """Networks with random weights; those of network i depend on ``seed`` and i alone.

    >>> initial_networks(3, (8, 4, 1), "torch", seed=0).weights[0].shape
    torch.Size([3, 8, 4])
    """
    networks = StackedNetworks(n_networks, widths, device)
    for index in range(n_networks):
        draw = generator(seed, "weights", index)
        for weight, bias in zip(networks.weights, networks.biases, strict=True):
            inputs, outputs = weight.shape[1:]
            bound = 1 / math.sqrt(inputs)
            if initialization == "kaiming_normal":
                start = torch.randn(inputs, outputs, generator=draw) * (math.sqrt(2) * bound)
            else:
                start = (torch.rand(inputs, outputs, generator=draw) * 2 - 1) * bound
            weight[index] = start.to(weight.device)
            bias[index, 0] = ((torch.rand(outputs, generator=draw) * 2 - 1) * bound).to(bias.device)
    return networks


def train(
    networks: StackedNetworks, rows: FeatureRows, members: Tensor, labels: Tensor, schedule: Schedule, seed: int
) -> None:
    """Train each network on its own rows in its own order; cross-entropy, mean over a batch.

    Args:
        networks: changed in place.
        rows: where the inputs are.
        members: LongTensor ``[k, r]`` rows network i trains on; a row may occur more than once.
        labels: LongTensor ``[k, r]`` their classes: 0 or 1 for networks of one output, else the index of an output.
        schedule: how.
        seed: the order of network i depends on it and i alone.
    """
    gradient = torch.zeros_like(networks.parameters)
    views = networks.views(gradient)
    networks.parameters.grad = gradient
    optimizer = _optimizer(networks.parameters, schedule)
    draws = [generator(seed, "order", index) for index in range(len(members))]
    block = max(1, BLOCK_BYTES // (4 * len(members) * networks.weights[0].shape[1] * schedule.batch_size))
    for epoch in range(schedule.epochs):
        optimizer.param_groups[0]["lr"] = schedule.learning_rate * schedule.decay**epoch
        order = torch.stack([torch.randperm(members.shape[1], generator=draw) for draw in draws]).to(members.device)
        shuffled, classes = members.gather(1, order), labels.gather(1, order)
        span = block * schedule.batch_size
        for some, some_classes in zip(shuffled.split(span, 1), classes.split(span, 1), strict=True):
            inputs = rows.take(some)
            batches = inputs.split(schedule.batch_size, 1), some_classes.split(schedule.batch_size, 1)
            for x, y in zip(*batches, strict=True):
                _differentiate(networks, x, y, views)
                optimizer.step()
    networks.parameters.grad = None


def _differentiate(networks: StackedNetworks, x: Tensor, y: Tensor, views: tuple[list[Tensor], list[Tensor]]) -> None:
    """Write the gradient of every network's mean cross-entropy on ``x [k, b, d]``, ``y [k, b]`` into ``views``."""
    *seen, logits = networks.activations(x)
    if logits.shape[2] == 1:
        delta = logits.sigmoid_().sub_(y.unsqueeze(2))
    else:
        delta = logits.softmax(2)
        delta.scatter_add_(2, y.unsqueeze(2), delta.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
    delta.div_(y.shape[1])
    weights, biases = views
    for layer in reversed(range(len(seen))):
        torch.bmm(seen[layer].mT, delta, out=weights[layer])
        torch.sum(delta, 1, keepdim=True, out=biases[layer])
        if layer:
            delta = torch.bmm(delta, networks.weights[layer].mT).mul_(seen[layer] > 0)


def _optimizer(parameters: Tensor, schedule: Schedule) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if schedule.method == "adam" else torch.optim.SGD
    return kind([parameters], lr=schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True)
