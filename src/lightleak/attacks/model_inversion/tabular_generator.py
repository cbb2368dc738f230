"""CTGAN's generator, conditioned on the pseudo-label alone (thesis Sec. 4.3.1)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lightleak.attacks.model_inversion.batch_norm import GlobalBatchNorm1d
from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.segments import Segment, Segments

LABEL = "pseudo-label"
"""Name of the block in which a sample carries its own class, as any discrete column of CTGAN."""


class TabularGenerator(ConditionalGenerator):
    """Samples ``[n, w + C]``: a row in generator space, then the class it carries.

    CTGAN's condition vector spans every discrete column; here all but the pseudo-label would always be 0, so they are
    left out.

    Attributes:
        network: ``ctgan.synthesizers.ctgan.Generator``; its batch statistics are those of all ranks.
        segments: layout of a sample, the class included.
    """

    def __init__(
        self,
        segments: Segments,
        n_classes: int,
        latent_dim: int = 256,
        hidden: Sequence[int] = (256, 256),
        temperature: float = 0.2,
    ) -> None:
        """Build the network.

        Args:
            segments: layout of a row in generator space, of width w.
            n_classes: C.
            latent_dim: length of z.
            hidden: widths of the residual layers.
            temperature: of the softmax, with and without Gumbel noise.
        """
        from ctgan.synthesizers.ctgan import Generator, Residual  # imports scikit-learn

        super().__init__()
        self.n_classes, self.latent_dim, self.temperature = n_classes, latent_dim, temperature
        self.segments = with_label(segments, n_classes)
        self.network = Generator(latent_dim + n_classes, tuple(hidden), self.segments.width)
        for layer in self.network.modules():
            if isinstance(layer, Residual):
                layer.bn = GlobalBatchNorm1d(layer.bn.num_features)

    def raw(self, z: Tensor, labels: Tensor) -> Tensor:
        """See `ConditionalGenerator.raw`."""
        condition = F.one_hot(labels, self.n_classes).to(z.dtype)
        output: Tensor = self.network(torch.cat([z, condition], dim=1))
        return output

    def activate(self, raw: Tensor, noise: Tensor | None = None) -> Tensor:
        """See `ConditionalGenerator.activate`."""
        return self.segments.activate(raw, noise, self.temperature)

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Gumbel noise for every softmax block at once."""
        return self.segments.draw_gumbel(n, generator)

    def label_logits(self, raw: Tensor) -> Tensor:
        """The last block."""
        return raw[:, -self.n_classes :]


def with_label(segments: Segments, n_classes: int) -> Segments:
    """Append the class that a row carries to its layout.

    >>> with_label(Segments.of([("age", "tanh", 0, 1)]), 3).width
    4
    """
    label = Segment(LABEL, "softmax", segments.width, segments.width + n_classes)
    low = None if segments.low is None else (*segments.low, *[0.0] * n_classes)
    high = None if segments.high is None else (*segments.high, *[1.0] * n_classes)
    return Segments((*segments.blocks, label), low, high)
