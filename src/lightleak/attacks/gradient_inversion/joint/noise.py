"""How much noise was added to a gradient, measured by equations that every gradient of a table fulfills.

The rows of a softmax layer's gradient sum to zero over classes, and the columns of a one-hot block, in the raw basis,
to the bias's column. What is left of both is noise, and there is enough of it to know its deviation to a few per cent.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightleak.data.encoder import TableEncoder

ROUNDING = 1e-5
"""Part of the root mean square of a gradient's elements below which what is left counts as rounding: float32 leaves
about 1e-7, and noise that protects anything 1e-2 and more."""


def estimated_noise(gradient: Sequence[Tensor], encoder: TableEncoder) -> float:
    """Deviation of even independent noise on a gradient's elements; 0 where there is rounding alone.

    Args:
        gradient: ``[G_l gb_l]`` of every layer, float64 ``[out, in + 1]``.
        encoder: of the rows.

    >>> import torch
    >>> noise = torch.randn(2, 4001, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> even = torch.tensor([[1.0], [-1.0]]).double() * torch.linspace(-1, 1, 4001).double()
    >>> round(sums_to_noise(even + 0.1 * noise), 2), sums_to_noise(even)
    (0.1, 0.0)
    """
    first, bias = gradient[0][:, :-1], gradient[0][:, -1]
    squares, count = sums_to_noise(gradient[-1]) ** 2 * gradient[-1].shape[1], gradient[-1].shape[1]
    for block in encoder.layout.categorical:
        scale, rest = encoder.scale[block.slice], encoder.shift[block.slice].sum() - 1
        left = first[:, block.slice] @ scale + rest * bias
        squares += float((left.square() / (scale.square().sum() + rest.square())).sum())
        count += len(left)
    noise = (squares / count) ** 0.5
    typical = (sum(float(g.square().sum()) for g in gradient) / sum(g.numel() for g in gradient)) ** 0.5
    return noise if noise > ROUNDING * typical else 0.0


def noise_error(gradient: Sequence[Tensor], encoder: TableEncoder) -> float:
    """Relative standard error of `estimated_noise`, by the number of its equations."""
    count = gradient[-1].shape[1] + len(encoder.layout.categorical) * len(gradient[0])
    return (2 * count) ** -0.5


def error_variances(gradient: Sequence[Tensor], noise: float) -> tuple[Tensor, ...]:
    """Variance of the error of every element: even noise, or where a layer was sent in a shorter type, its rounding.

    Whether it was shows in its values: a float32 gradient has none that a shorter type would leave as they are.

    Args:
        gradient: ``[G_l gb_l]`` of every layer, float64 ``[out, in + 1]``.
        noise: deviation of even noise.
    """
    found = []
    for layer, rounding in zip(gradient, rounding_variances(gradient), strict=True):
        spacing = _spacing(layer)
        found.append(rounding + (torch.full_like(layer, noise**2) if spacing is None else spacing.square() / 12))
    return tuple(found)


def rounding_variances(gradient: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Variance of an element's rounding, a scalar for every layer of a float32 gradient."""
    return tuple((FLOAT32 * layer.norm()) ** 2 / layer.numel() for layer in gradient)


FLOAT32 = 1e-6
"""Rounding of a layer's float32 gradient relative to its norm, with room for sums whose terms cancel."""


def _spacing(layer: Tensor) -> Tensor | None:
    """Distance of the values between which every element was rounded; None where it has all digits of float32."""
    for kind in (torch.bfloat16, torch.float16):  # most values of the first are also of the second
        if bool((layer.to(kind).to(layer.dtype) == layer).all()):
            facts = torch.finfo(kind)
            exponent = layer.abs().clamp_min(facts.tiny).log2().floor()
            return facts.eps * torch.exp2(exponent)
    step = torch.stack([part.abs().amax() / 127 for part in (layer[:, :-1], layer[:, -1:])])
    steps = torch.cat([step[0].expand_as(layer[:, :-1]), step[1].expand_as(layer[:, -1:])], 1)
    levels = layer / torch.where(steps > 0, steps, 1.0)
    return steps if bool(((levels - levels.round()).abs() <= LEVEL).all()) else None


LEVEL = 1e-3
"""Part of an 8-bit level's width within which float32 values are at a level."""


def sums_to_noise(last: Tensor) -> float:
    """Deviation of the noise on a softmax layer's gradient ``[classes, in + 1]``, whose classes sum to zero."""
    return float((last.sum(0).square().mean() / last.shape[0]).sqrt())
