"""Networks with BatchNorm whose batch statistics the server knows: they then work row by row, backwards as well.

With mean and variance known, ``y = gamma zhat + beta`` is a function of the row. Backwards, every row receives

    dL/dz_i = gamma / sigma (g_i - g_beta / B - zhat_i g_gamma / B),   g_i = dL/dy_i

where ``g_beta = sum_i g_i`` and ``g_gamma = sum_i g_i zhat_i`` are the observed gradients of shift and scale. So the
error of a row is linear in its derivative by the logits but for a part that its statistics add. The errors of a layer
that BatchNorm follows sum to zero over the batch: its gradient lacks one dimension, and the batch's mean input, which
follows from the known mean of its outputs, is appended to it as one more unit whose error is the same in every row.
"""

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.client import batch_norms
from lightleak.attacks.gradient_inversion.network.traced import (
    PROBES,
    TracedActivations,
    TracedNetwork,
    TracedView,
    linear_layer,
    over_batch,
    same,
    searched_layer,
    trace,
    watched,
)
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

SUMS_TO_ZERO = 1e-4
"""Part of a layer's gradient below which its bias's gradient is the rounding of a sum of zero."""

PRESENT = 1e-5
"""Part of the largest category's column of the first layer's gradient above which a category is in the batch."""

WHOLE_WITHIN = 0.05
"""Counts of categories and sums of whole numbers, as the mean row gives them, lie this near to whole numbers."""

MEAN_PART = 1 / 3
"""Norm of the appended unit, relative to the gradient's."""


class _Normalize(torch.autograd.Function):
    """Normalization by known statistics; backwards with what the statistics of the batch return to every row."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, layer: "KnownBatchNorm") -> Tensor:
        """Normalize ``z`` ``[n, c]``."""
        ctx.layer, ctx.zhat = layer, (z - layer.mean) * layer.inverse
        return ctx.zhat * layer.weight + layer.bias

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """See the module's docstring."""
        layer = ctx.layer
        if layer.returns_statistics:
            g = g - layer.bias_share - ctx.zhat * layer.weight_share
        return g * layer.weight * layer.inverse, None


class KnownBatchNorm(nn.Module):
    """BatchNorm by the statistics of one batch.

    Args:
        layer: whose scale and shift it takes.
        mean, variance: of the batch's inputs, the variance unbiased.
        gradients: observed, of scale and shift.
        n_rows: of the batch.

    Attributes:
        returns_statistics: gradients are what the batch's rows receive, rather than linear in those by the outputs.
    """

    mean: Tensor
    inverse: Tensor
    weight: Tensor
    bias: Tensor
    weight_share: Tensor
    bias_share: Tensor

    def __init__(
        self, layer: nn.BatchNorm1d, mean: Tensor, variance: Tensor, gradients: tuple[Tensor, Tensor], n_rows: int
    ) -> None:
        super().__init__()
        self.returns_statistics = False
        biased = variance.double() * (n_rows - 1) / n_rows
        self.register_buffer("mean", mean.double())
        self.register_buffer("inverse", (biased + layer.eps).rsqrt())
        self.register_buffer("weight", layer.weight.detach().double())
        self.register_buffer("bias", layer.bias.detach().double())
        self.register_buffer("weight_share", gradients[0].double() / n_rows)
        self.register_buffer("bias_share", gradients[1].double() / n_rows)

    def forward(self, z: Tensor) -> Tensor:
        """Normalize ``z`` ``[n, c]``; raises `UnsupportedError` for ``[n, c, l]``."""
        if z.dim() != 2:
            raise UnsupportedError("BatchNorm of several vectors per row (BatchNorm1d of [n, c, l]) is not supported")
        normalized: Tensor = _Normalize.apply(z, self)
        return normalized


@dataclass(frozen=True)
class _Appended:
    """What makes up for the dimension that a layer's gradient lacks.

    Attributes:
        mean: of the batch's inputs of the layer, as rows are tested, ``[in]``.
        size: by which it is multiplied.
        weight: by which inputs are multiplied before they are tested, ``[out, in]``; None: they are tested themselves.
    """

    mean: Tensor
    size: float
    weight: Tensor | None


class BatchNormalizedNetwork(TracedNetwork):
    """See the module's docstring.

    Args:
        network: traced, with `KnownBatchNorm` in the place of BatchNorm.
        names: its layers that test rows.
        appended: by name of a layer whose errors sum to zero.
        n_rows: rows of the batch.
    """

    peels = False

    def __init__(
        self, network: TracedNetwork, names: list[str], appended: Mapping[str, _Appended], n_rows: int
    ) -> None:
        super().__init__(network.module, names, 0, network.cells)
        self.appended, self.n_rows = appended, n_rows
        self._searched = searched_layer(self.shapes, n_rows)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """See `TracedNetwork.shapes`."""
        found = []
        for name, (out, into) in zip(self.names, super().shapes, strict=True):
            more = self.appended.get(name)
            found.append((out, into) if more is None else (out + 1, len(more.mean) + 1))
        return found

    def augmented(self, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Observed ``[G_l gb_l]`` of every layer, as rows are tested against them."""
        found = []
        for name, gradient in zip(self.names, gradients, strict=True):
            more = self.appended.get(name)
            if more is not None:
                if more.weight is not None:
                    gradient = torch.cat([gradient[:, :-1] @ more.weight.T, gradient[:, -1:]], 1)
                unit = more.size * torch.cat([more.mean, torch.ones_like(more.mean[:1])])
                gradient = torch.cat([gradient, unit.unsqueeze(0)])
            found.append(gradient)
        return tuple(found)

    def forward(self, x: Tensor) -> TracedActivations:
        """See `RowNetwork.forward`."""
        found = super().forward(x)
        weights = [self.appended[name].weight if name in self.appended else None for name in self.names]
        pairs = zip(found.hidden, weights, strict=True)
        return replace(found, hidden=tuple(h if w is None else h @ w.T for h, w in pairs))

    def errors_of_rows(self, activations: TracedActivations, counts: Tensor, n_rows: int = 1) -> tuple[Tensor, ...]:
        """See `RowNetwork.errors_of_rows`."""
        found = super().errors_of_rows(activations, counts, n_rows)
        returned = self._returned(activations.rows, self.names)
        parts = zip(self.names, found, returned, strict=True)
        return tuple(self._completed(name, error, more, counts, n_rows) for name, error, more in parts)

    def error_of_rows(self, layer: int, activations: TracedActivations, counts: Tensor, n_rows: int = 1) -> Tensor:
        """See `RowNetwork.error_of_rows`."""
        name = self.names[layer]
        found = super().error_of_rows(layer, activations, counts, n_rows)
        (returned,) = self._returned(activations.rows, [name])
        return self._completed(name, found, returned, counts, n_rows)

    def error_parts(self, layer: int, activations: TracedActivations, directions: Tensor) -> Tensor:
        """See `RowNetwork.error_parts`: what the statistics return, and the appended unit, are counted once per row."""
        name = self.names[layer]
        by_logits = super().error_parts(layer, activations, directions)
        (returned,) = self._returned(activations.rows, [name])
        parts = torch.cat([by_logits, self.n_rows * returned.unsqueeze(-2)], -2)
        if name not in self.appended:
            return parts
        unit = torch.zeros_like(parts[..., :1])
        unit[..., -1, :] = self.appended[name].size
        return torch.cat([parts, unit], -1)

    def view(self) -> TracedView:
        """See `RowNetwork.view`."""
        name = self.names[self.searched]
        weight = self.appended[name].weight if name in self.appended else None
        return _NormalizedView(self._cut, self.n_classes, weight)

    def _completed(self, name: str, error: Tensor, returned: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """Errors with what statistics return to each of the rows, and with the appended unit's."""
        times = counts.sum(-1, keepdim=True) / n_rows
        returned = returned.unsqueeze(-2) if error.dim() > returned.dim() else returned
        error = error + times * self.n_rows * returned
        more = self.appended.get(name)
        if more is None:
            return error
        return torch.cat([error, (times * more.size).expand(*error.shape[:-1], 1)], -1)

    def _returned(self, x: Tensor, names: list[str] | tuple[str, ...]) -> tuple[Tensor, ...]:
        """What the statistics return to one row by the layers' outputs ``[..., out]``, of the batch's mean loss."""
        normalizations = [layer for layer in self.module.modules() if isinstance(layer, KnownBatchNorm)]
        rows = x.flatten(0, -2).detach().requires_grad_()
        try:
            for layer in normalizations:
                layer.returns_statistics = True
            with torch.enable_grad(), watched(self.module, names) as calls:
                logits = self.module(rows)
                outputs = [calls[name].output for name in names]
                found = torch.autograd.grad(logits, outputs, torch.zeros_like(logits), materialize_grads=True)
        finally:
            for layer in normalizations:
                layer.returns_statistics = False
        return tuple(part.unflatten(0, x.shape[:-1]) for part in found)


class _NormalizedView(TracedView):
    """As `TracedView`; labels change the direction of errors."""

    def __init__(self, cut: Any, n_classes: int, weight: Tensor | None) -> None:
        super().__init__(cut, n_classes)
        self.weight = weight

    def to(self, dtype: torch.dtype) -> "_NormalizedView":
        """See `SearchView.to`."""
        return _NormalizedView(
            self.cut.to(dtype), self.n_classes, None if self.weight is None else self.weight.to(dtype)
        )

    def hidden(self, state: Tensor) -> Tensor:
        """See `SearchView.hidden`."""
        found = super().hidden(state)
        return found if self.weight is None else found @ self.weight.T

    @property
    def has_directions(self) -> bool:
        """See `SearchView.has_directions`."""
        return False


def normalized_data(module: nn.Module, width: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Random rows ``[n, width]``, and what BatchNorm layers see of them, of those whose inputs are data, by name.

    Args:
        module: in train mode, with its weights; it is not changed.
        width: of encoded rows.
    """
    tried = copy.deepcopy(module).requires_grad_(True)
    probes = torch.randn(PROBES, width, generator=generator(0, "probes")).to(next(module.parameters()))
    seen: dict[str, Tensor] = {}
    with suppress(RuntimeError):  # `trace` says why
        with torch.enable_grad(), watched(tried, list(batch_norms(tried))) as calls:
            tried(probes)
        seen = {name: call.inputs for name, call in calls.items() if not call.inputs.requires_grad}
    return probes, seen


def fix_normalized_data(module: nn.Module, width: int, statistics: Mapping[str, Tensor], n_rows: int) -> None:
    """Switch the BatchNorm layers whose inputs are data, which no parameter has changed, to the batch's statistics.

    Nothing is propagated back through them, so that rows depend on each other only by the known statistics. Scale and
    shift remain parameters: their gradients are sums over rows as well.

    Args:
        module: in train mode, with its weights; it is changed.
        width: of encoded rows.
        statistics: mean and unbiased variance of every BatchNorm layer on the batch, by name.
        n_rows: of the batch.
    """
    device, norms = next(module.parameters()).device, batch_norms(module)
    for name in normalized_data(module, width)[1]:
        mean, variance = statistics[f"{name}.mean"].to(device), statistics[f"{name}.var"].to(device)
        layer = norms[name].eval()
        layer.running_mean, layer.running_var = mean.double(), variance.double() * (n_rows - 1) / n_rows


def trace_normalized(
    module: nn.Module,
    encoder: TableEncoder,
    statistics: Mapping[str, Tensor],
    update: Mapping[str, Tensor],
    n_rows: int,
) -> BatchNormalizedNetwork:
    """Find the layers of a module with BatchNorm in train mode that test rows.

    Args:
        module: in train mode, with its weights; it is changed.
        encoder: of the rows, on the module's device.
        statistics: mean and unbiased variance of every BatchNorm layer on the batch, by name.
        update: the observed gradient.
        n_rows: of the batch.

    Raises:
        UnsupportedError: the message names the layer that prevents it.
    """
    device = encoder.shift.device
    for name, norm in batch_norms(module).items():
        if not over_batch(norm):
            continue
        if not norm.affine:
            raise UnsupportedError(f"BatchNorm {name!r} has no scale and shift, whose gradients tests of a row need")
        gradients = update[f"{name}.weight"].to(device), update[f"{name}.bias"].to(device)
        mean, variance = statistics[f"{name}.mean"].to(device), statistics[f"{name}.var"].to(device)
        module.set_submodule(name, KnownBatchNorm(norm, mean, variance, gradients, n_rows))
    network = trace(module, encoder.width, n_rows, encoder, update)
    means = _means_of_outputs(network, encoder.width)
    names, appended = [], {}
    for index, name in enumerate(network.names):
        layer = linear_layer(network.module, name)
        gradient = torch.cat([update[f"{name}.weight"], update[f"{name}.bias"].unsqueeze(-1)], 1).to(device).double()
        if not bool(gradient[:, -1].norm() < SUMS_TO_ZERO * gradient.norm()):
            names.append(name)
        elif name in means:
            if index == 0 and network.first_input is not None:
                raise UnsupportedError(
                    f"BatchNorm follows {name!r}, whose inputs are embedded cells: its mean does not give the mean row"
                )
            names.append(name)
            moved = means[name] - layer.bias
            size = MEAN_PART * float(gradient.norm())
            mean = _mean_row(layer.weight, moved, gradient, encoder, n_rows) if index == 0 else moved
            appended[name] = _Appended(mean, size / float(1 + mean.norm()), None if index == 0 else layer.weight)
    if names[:1] != list(network.names[:1]):
        raise UnsupportedError("the first layer's errors sum to zero, and BatchNorm does not follow it directly")
    return BatchNormalizedNetwork(network, names, appended, n_rows)


def _means_of_outputs(network: TracedNetwork, width: int) -> dict[str, Tensor]:
    """Batch means of layers' outputs, by name: of those that a BatchNorm sees, or two of them as a difference."""
    layers = {name: one for name, one in network.module.named_modules() if isinstance(one, KnownBatchNorm)}
    probes = torch.randn(PROBES, width, generator=generator(0, "probes"), dtype=torch.float64)
    probes = probes.to(network.state_map[0].device)
    with torch.no_grad(), watched(network.module, [*network.names, *layers]) as calls:
        network.module(probes)
    seen = [(calls[name].inputs, one.mean) for name, one in layers.items() if name in calls]
    pairs = ((one, other) for one, other in permutations(seen, 2) if one[0].shape == other[0].shape)
    seen += [(x - other_x, mean - other_mean) for (x, mean), (other_x, other_mean) in pairs]
    return {name: mean for name in network.names for x, mean in seen if same(calls[name].output, x)}


def _mean_row(weight: Tensor, moved: Tensor, gradient: Tensor, encoder: TableEncoder, n_rows: int) -> Tensor:
    """The batch's mean encoded row from ``W xbar = moved``: shares of categories are whole numbers over the rows.

    Raises:
        UnsupportedError: the equations leave no whole numbers.
    """
    blocks, at = encoder.layout.categorical, list(encoder.numerical_positions)
    columns = (gradient[:, :-1] * encoder.scale).norm(dim=0)
    largest = columns[[i for b in blocks for i in range(b.start, b.start + b.width)]].max() if blocks else 0.0
    present = [[i for i in range(b.start, b.start + b.width) if columns[i] > PRESENT * largest] for b in blocks]
    present = [found or list(range(b.start, b.start + b.width)) for found, b in zip(present, blocks, strict=True)]
    raw = weight / encoder.scale
    categories = [i for found in present for i in found]
    # Numbers count in deviations; every block of categories sums to 1.
    equations = torch.cat([raw[:, at] * encoder.deviation, raw[:, categories]], 1)
    sums = equations.new_zeros(len(blocks), equations.shape[1])
    start = len(at)
    for k, found in enumerate(present):
        sums[k, start : start + len(found)] = 1
        start += len(found)
    size = float(equations.norm())
    target = moved + raw @ encoder.shift
    stacked, wanted = torch.cat([equations, size * sums]), torch.cat([target, target.new_full((len(blocks),), size)])
    counts = n_rows * (torch.linalg.pinv(stacked) @ wanted)[len(at) :]
    if bool(((counts - counts.round()).abs() > WHOLE_WITHIN).any()) or bool((counts.round() < 0).any()):
        raise UnsupportedError(
            "the mean row of the batch does not follow from the first BatchNorm's mean: the first layer has fewer "
            "units than the batch has categories and numbers"
        )
    mean = torch.zeros_like(encoder.shift)
    mean[categories] = counts.round() / n_rows
    rest = target - raw[:, categories] @ mean[categories]
    numbers = torch.linalg.pinv(equations[:, : len(at)]) @ rest * encoder.deviation
    whole = [column.kind is ColumnKind.INTEGER for column in encoder.schema.numerical]
    totals = (n_rows * numbers).round() / n_rows
    mean[at] = torch.where(torch.tensor(whole, dtype=torch.bool, device=numbers.device), totals, numbers)
    return (mean - encoder.shift) / encoder.scale
