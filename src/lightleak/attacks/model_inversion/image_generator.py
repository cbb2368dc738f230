"""A convolutional generator of images of a class: PLG-MI's player for pictures (thesis Sec. 4.2)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.image_layers import ClassNorm, smallest_side


class ImageGenerator(ConditionalGenerator):
    """Convolutions that double the image again and again, normalized by class, and a tanh: images in [-1, 1].

    PLG-MI's published generator has residual blocks and batch normalization by class; at 8 x 8 pixels on one core a
    step of it takes ten times as long. Samples are deterministic: ``activate`` takes no noise.

    >>> generator = ImageGenerator((1, 8, 8), n_classes=5, latent_dim=16, widths=(16, 8))
    >>> generator(torch.zeros(3, 16), torch.tensor([0, 1, 4])).shape
    torch.Size([3, 1, 8, 8])
    """

    def __init__(
        self, shape: tuple[int, int, int], n_classes: int, latent_dim: int = 128, widths: tuple[int, ...] = (64, 32, 16)
    ) -> None:
        """Build the layers.

        Args:
            shape: channels, height and width of an image.
            n_classes: classes of the condition.
            latent_dim: length of z.
            widths: channels at each size, the smallest first; every further one doubles height and width.

        Raises:
            UsageError: the sides cannot be halved as often as ``widths`` asks.
        """
        super().__init__()
        self.latent_dim, self.n_classes = latent_dim, n_classes
        self._start = (widths[0], *smallest_side(shape, len(widths) - 1))
        self.expand = nn.Linear(latent_dim, widths[0] * self._start[1] * self._start[2], bias=False)
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in pairwise(widths))
        self.norms = nn.ModuleList(ClassNorm(width, n_classes) for width in widths)
        self.output = nn.Conv2d(widths[-1], shape[0], 3, padding=1)

    def raw(self, z: Tensor, labels: Tensor) -> Tensor:
        """See `ConditionalGenerator.raw`."""
        x = F.relu(self.norms[0](self.expand(z).view(len(z), *self._start), labels))
        for convolution, norm in zip(self.convolutions, list(self.norms)[1:], strict=True):
            x = F.relu(norm(convolution(F.interpolate(x, scale_factor=2.0, mode="nearest")), labels))
        found: Tensor = self.output(x)
        return found

    def activate(self, raw: Tensor, noise: Tensor | None = None) -> Tensor:
        """Images in [-1, 1]."""
        return torch.tanh(raw)
