"""Critics of the conditional GAN: Wasserstein scores, and the penalty that keeps their slope near one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAK = 0.2  # slope of CTGAN's LeakyReLU below zero


class Critic(nn.Module, ABC):
    """Scores samples with their class; higher means more like the real ones.

    Attributes:
        pac: samples that are judged together (PacGAN); a batch must be a multiple of it.
        n_classes: classes that samples are conditioned on.
    """

    pac: int
    n_classes: int

    def draw_masks(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Dropout masks for ``n`` packs, from ``generator`` alone; their first dimension is the pack."""
        return ()

    @abstractmethod
    def score(self, samples: Tensor, labels: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """Scores ``[n / pac]`` of ``samples [n, ...]`` with ``labels [n]``."""

    @abstractmethod
    def penalty(
        self, fake: Tensor, fake_labels: Tensor, real: Tensor, real_labels: Tensor, mix: Tensor, masks: Sequence[Tensor]
    ) -> Tensor:
        """Mean over packs of ``(|gradient| - 1)**2`` at points between real and fake packs (WGAN-GP).

        Args:
            fake: ``[n, ...]``.
            fake_labels: ``[n]``.
            real: ``[n, ...]``.
            real_labels: ``[n]``.
            mix: ``[n / pac]`` share of the real pack at each point.
            masks: see `draw_masks`.
        """


class DrawnDropout(nn.Module):
    """Dropout with a mask drawn beforehand; without a mask it drops nothing."""

    mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``x`` times the mask."""
        return x if self.mask is None else x * self.mask


class PackedCritic(Critic):
    """CTGAN's discriminator: fully connected, leaky ReLU, dropout, ``pac`` rows with their class at once.

    The network is piecewise linear, so its gradient at a point is a product of its weight matrices with the slopes
    there. The penalty uses that product: one backward pass instead of the two of CTGAN's ``calc_gradient_penalty``,
    and the same number.

    Attributes:
        network: ``ctgan.synthesizers.ctgan.Discriminator``; the masks of its dropout are drawn by `draw_masks`.
    """

    def __init__(
        self, width: int, n_classes: int, hidden: Sequence[int] = (256, 256), pac: int = 10, dropout: float = 0.5
    ) -> None:
        """Build the network.

        Args:
            width: columns of a sample in generator space.
            n_classes: classes of the condition.
            hidden: width of each hidden layer.
            pac: rows per pack.
            dropout: share of hidden units dropped.
        """
        from ctgan.synthesizers.ctgan import Discriminator  # imports scikit-learn

        super().__init__()
        self.pac, self.n_classes, self.dropout = pac, n_classes, dropout
        self.network = Discriminator(width + n_classes, tuple(hidden), pac)
        for index, layer in enumerate(self.network.seq):
            if isinstance(layer, nn.Dropout):
                self.network.seq[index] = DrawnDropout()

    def draw_masks(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One mask ``[n, hidden]`` per hidden layer; what is kept is scaled by ``1 / (1 - dropout)``."""
        keep = 1.0 - self.dropout
        widths = [linear.out_features for linear in self._linears[:-1]]
        drawn = torch.rand(n, sum(widths), generator=generator, device=generator.device)
        return tuple(((drawn < keep).float() / keep).split(widths, dim=1))

    def score(self, samples: Tensor, labels: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """See `Critic.score`."""
        dropouts = [layer for layer in self.network.seq if isinstance(layer, DrawnDropout)]
        drawn: Sequence[Tensor | None] = masks or [None] * len(dropouts)
        for dropout, mask in zip(dropouts, drawn, strict=True):
            dropout.mask = mask
        scores: Tensor = self.network(self._with_class(samples, labels))
        return scores.squeeze(1)

    def penalty(
        self, fake: Tensor, fake_labels: Tensor, real: Tensor, real_labels: Tensor, mix: Tensor, masks: Sequence[Tensor]
    ) -> Tensor:
        """See `Critic.penalty`; the class is interpolated as well, as CTGAN does."""
        between = torch.lerp(self._packs(fake, fake_labels), self._packs(real, real_labels), mix.unsqueeze(1))
        slopes = self._slopes(between, masks)
        weights = [linear.weight for linear in self._linears]
        gradient = weights[-1] * slopes[-1]
        for weight, slope in zip(weights[-2:0:-1], slopes[-2::-1], strict=True):
            gradient = (gradient @ weight) * slope
        gradient = gradient @ weights[0]
        return (torch.linalg.vector_norm(gradient, dim=1) - 1.0).square().mean()

    @property
    def _linears(self) -> list[nn.Linear]:
        return [layer for layer in self.network.seq if isinstance(layer, nn.Linear)]

    def _with_class(self, samples: Tensor, labels: Tensor) -> Tensor:
        return torch.cat([samples, F.one_hot(labels, self.n_classes).to(samples.dtype)], dim=1)

    def _packs(self, samples: Tensor, labels: Tensor) -> Tensor:
        return self._with_class(samples, labels).view(len(samples) // self.pac, -1)

    @torch.no_grad()
    def _slopes(self, packs: Tensor, masks: Sequence[Tensor]) -> list[Tensor]:
        """Slope of every hidden layer's units at ``packs``, dropout included; constant around a point."""
        slopes = []
        for index, linear in enumerate(self._linears[:-1]):
            packs = linear(packs)
            slope = (packs > 0).to(packs.dtype).mul_(1.0 - LEAK).add_(LEAK)
            slopes.append(slope * masks[index] if masks else slope)
            packs = packs * slopes[-1]
        return slopes
