"""A convolutional generator of images of a class: PLG-MI's player for pictures (thesis Sec. 4.2)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.image_layers import ClassNorm, UpBlock, smallest_side


class ImageGenerator(ConditionalGenerator):
    """Residual blocks that double the image, normalised by class, with a tanh at the end: images in [-1, 1].

    The architecture is that of projection GANs (Miyato and Koyama 2018), which PLG-MI's published code uses, with group
    in place of batch normalisation (see `ClassNorm`). Samples are deterministic: ``activate`` takes no noise.

    >>> generator = ImageGenerator((1, 8, 8), n_classes=5, latent_dim=16, widths=(16, 16))
    >>> generator(torch.zeros(3, 16), torch.tensor([0, 1, 4])).shape
    torch.Size([3, 1, 8, 8])
    """

    def __init__(
        self, shape: tuple[int, int, int], n_classes: int, latent_dim: int = 128, widths: tuple[int, ...] = (64, 64, 32)
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
        self._start = (widths[0], *smallest_side(shape, widths))
        self.expand = nn.Linear(latent_dim, widths[0] * self._start[1] * self._start[2])
        steps = [(widths[0], widths[0], 1), *((n_in, n_out, 2) for n_in, n_out in pairwise(widths))]
        self.blocks = nn.ModuleList(UpBlock(n_in, n_out, n_classes, factor) for n_in, n_out, factor in steps)
        self.norm = ClassNorm(widths[-1], n_classes)
        self.output = nn.Conv2d(widths[-1], shape[0], 3, padding=1)

    def raw(self, z: Tensor, labels: Tensor) -> Tensor:
        """See `ConditionalGenerator.raw`."""
        x = self.expand(z).view(len(z), *self._start)
        for block in self.blocks:
            x = block(x, labels)
        found: Tensor = self.output(F.relu(self.norm(x, labels)))
        return found

    def activate(self, raw: Tensor, noise: Tensor | None = None) -> Tensor:
        """Images in [-1, 1]."""
        return torch.tanh(raw)
