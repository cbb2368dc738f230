"""What keeps reconstructed images like images (FedAvg paper, App. B.2 and Sec. 5.4, as its code defines them)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from lightleak.core.seeds import generator
from lightleak.data.image_scale import ImageScale

RANDOM_CHANNELS = 96
"""Output channels of the random convolution (Sec. 5.4)."""


def total_variation(x: Tensor, scale: ImageScale) -> Tensor:
    """Squared differences of neighboring pixels, summed over an image and averaged over images.

    The last row and column are compared with the first, as the paper's code does.

    Args:
        x: standardized images ``[..., n, d]``.
        scale: their shape.

    Returns:
        ``[...]``.
    """
    images = x.unflatten(-1, scale.shape)
    right, below = images - images.roll(-1, -1), images - images.roll(-1, -2)
    return (right.square() + below.square()).sum((-1, -2, -3)).mean(-1)


def out_of_range(x: Tensor, scale: ImageScale) -> Tensor:
    """Squared distance of pixels to [0, 1], summed over an image and averaged over images (Geng et al. 2021, Eq. 17).

    Args:
        x: standardized images ``[..., n, d]``.
        scale: their mean and deviation.

    Returns:
        ``[...]``.
    """
    lower, upper = (bound.to(x) for bound in scale.encoded_bounds())
    return ((x - x.clamp(lower, upper)) / (upper - lower)).square().sum(-1).mean(-1)


def random_features(scale: ImageScale, seed: int) -> Callable[[Tensor], Tensor]:
    """A random convolution of 3 x 3 to 96 channels, initialized as flax does: ``[..., d]`` to ``[..., f]``.

    Args:
        scale: shape of the images.
        seed: its kernel depends on nothing else.
    """
    channels = scale.shape[0]
    kernel = torch.randn(RANDOM_CHANNELS, channels, 3, 3, generator=generator(seed, "random convolution"))
    kernel = kernel / (9 * channels) ** 0.5

    def features(x: Tensor) -> Tensor:
        images = x.unflatten(-1, scale.shape)
        out = conv2d(images.flatten(0, -4), kernel.to(x), padding=1)
        return out.flatten(1).unflatten(0, images.shape[:-3])

    return features
