"""A convolutional critic of images and their class, with the gradient penalty of WGAN-GP."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.attacks.model_inversion.critic import LEAK, Critic
from lightleak.attacks.model_inversion.image_layers import smallest_side


class ImageCritic(Critic):
    """Convolutions that halve the image; the class enters by projection (Miyato and Koyama 2018), as in PLG-MI.

    The score is ``v . f(x) + e(class) . f(x)``, where ``f`` sums over all positions. Each image is judged by itself,
    and nothing is normalized: the penalty is about the gradient at one image.
    """

    pac = 1

    def __init__(self, shape: tuple[int, int, int], n_classes: int, widths: tuple[int, ...] = (32, 64)) -> None:
        """Build the layers.

        Args:
            shape: channels, height and width of an image.
            n_classes: classes of the condition.
            widths: channels after each halving of height and width.

        Raises:
            UsageError: the sides cannot be halved as often as ``widths`` asks.
        """
        super().__init__()
        smallest_side(shape, len(widths))
        self.n_classes = n_classes
        self.convolutions = nn.ModuleList(
            nn.Conv2d(n_in, n_out, 4, stride=2, padding=1) for n_in, n_out in pairwise((shape[0], *widths))
        )
        self.last = nn.Conv2d(widths[-1], widths[-1], 3, padding=1)
        self.linear = nn.Linear(widths[-1], 1)
        self.embedding = nn.Linear(n_classes, widths[-1], bias=False)  # of one-hot classes, or of points between

    def score(self, samples: Tensor, labels: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """See `Critic.score`; there is no dropout, and so no mask."""
        return self._score(samples, self._condition(labels, samples))

    def penalty(
        self, fake: Tensor, fake_labels: Tensor, real: Tensor, real_labels: Tensor, mix: Tensor, masks: Sequence[Tensor]
    ) -> Tensor:
        """See `Critic.penalty`; by differentiating twice. The class is interpolated as the image is."""
        between = torch.lerp(fake, real, mix.view(-1, 1, 1, 1)).detach().requires_grad_()
        start, end = self._condition(fake_labels, fake), self._condition(real_labels, real)
        condition = torch.lerp(start, end, mix.unsqueeze(1))
        (gradient,) = torch.autograd.grad(self._score(between, condition).sum(), between, create_graph=True)
        return (torch.linalg.vector_norm(gradient.flatten(1), dim=1) - 1.0).square().mean()

    def _score(self, samples: Tensor, condition: Tensor) -> Tensor:
        for convolution in (*self.convolutions, self.last):
            samples = F.leaky_relu(convolution(samples), LEAK)
        features = samples.sum((2, 3))
        scores: Tensor = self.linear(features).squeeze(1) + (self.embedding(condition) * features).sum(1)
        return scores

    def _condition(self, labels: Tensor, samples: Tensor) -> Tensor:
        return F.one_hot(labels, self.n_classes).to(samples.dtype)
