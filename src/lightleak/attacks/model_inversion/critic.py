"""Critics of the conditional GAN: Wasserstein scores, and the penalty that keeps their slope near one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

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


class PackedCritic(Critic):
    """CTGAN's discriminator: fully connected, leaky ReLU, dropout, ``pac`` rows with their class at once.

    The network is piecewise linear, so its gradient at a point is a product of its weight matrices with the slopes
    there. The penalty uses that product: one backward pass instead of two, and the same number.
    """

    def __init__(
        self, width: int, n_classes: int, hidden: Sequence[int] = (256, 256), pac: int = 10, dropout: float = 0.5
    ) -> None:
        """Build the layers.

        Args:
            width: columns of a sample in generator space.
            n_classes: classes of the condition.
            hidden: width of each hidden layer.
            pac: rows per pack.
            dropout: share of hidden units dropped.
        """
        super().__init__()
        self.pac, self.n_classes, self.dropout = pac, n_classes, dropout
        widths = ((width + n_classes) * pac, *hidden, 1)
        self.linears = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))

    def draw_masks(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """One mask ``[n, hidden]`` per hidden layer; what is kept is scaled by ``1 / (1 - dropout)``."""
        keep = 1.0 - self.dropout
        widths = [len(linear.get_parameter("bias")) for linear in self.linears][:-1]
        drawn = torch.rand(n, sum(widths), generator=generator, device=generator.device)
        return tuple(((drawn < keep).float() / keep).split(widths, dim=1))

    def score(self, samples: Tensor, labels: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """See `Critic.score`."""
        return self._forward(self._packs(samples, labels), masks)[0].squeeze(1)

    def penalty(
        self, fake: Tensor, fake_labels: Tensor, real: Tensor, real_labels: Tensor, mix: Tensor, masks: Sequence[Tensor]
    ) -> Tensor:
        """See `Critic.penalty`; the class is interpolated as well, as CTGAN does."""
        with torch.no_grad():  # slopes are constant around the point
            between = torch.lerp(self._packs(fake, fake_labels), self._packs(real, real_labels), mix.unsqueeze(1))
            slopes = self._forward(between, masks)[1]
        weights = [linear.get_parameter("weight") for linear in self.linears]
        gradient = weights[-1] * slopes[-1]
        for weight, slope in zip(weights[-2:0:-1], slopes[-2::-1], strict=True):
            gradient = (gradient @ weight) * slope
        gradient = gradient @ weights[0]
        return (torch.linalg.vector_norm(gradient, dim=1) - 1.0).square().mean()

    def _packs(self, samples: Tensor, labels: Tensor) -> Tensor:
        condition = F.one_hot(labels, self.n_classes).to(samples.dtype)
        return torch.cat([samples, condition], dim=1).view(len(samples) // self.pac, -1)

    def _forward(self, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Scores ``[n / pac, 1]``, and the slope of every hidden layer's units, dropout included."""
        slopes = []
        *hidden, last = self.linears
        for index, linear in enumerate(hidden):
            x = linear(x)
            with torch.no_grad():
                slope = (x > 0).to(x.dtype).mul_(1.0 - LEAK).add_(LEAK)
                if masks:
                    slope = slope * masks[index]
            x = x * slope
            slopes.append(slope)
        return last(x), slopes
