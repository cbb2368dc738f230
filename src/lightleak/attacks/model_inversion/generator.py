"""What the training loop and the latent search ask of any conditional generator, for tables and images alike."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class ConditionalGenerator(nn.Module, ABC):
    """Maps a latent vector and a class to a sample in generator space.

    Attributes:
        latent_dim: length of a latent vector.
        n_classes: classes it is conditioned on.
    """

    latent_dim: int
    n_classes: int

    @abstractmethod
    def raw(self, z: Tensor, labels: Tensor) -> Tensor:
        """Output before its activation, ``[n, ...]``, of ``z [n, latent_dim]`` and ``labels [n]``."""

    @abstractmethod
    def activate(self, raw: Tensor, noise: Tensor | None = None) -> Tensor:
        """A sample of the same shape; without ``noise`` a deterministic one."""

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor | None:
        """What `activate` adds for ``n`` samples; None where samples are deterministic."""
        return None

    def label_logits(self, raw: Tensor) -> Tensor | None:
        """Logits ``[n, n_classes]`` of the label that a sample carries itself; None where it carries none."""
        return None

    def forward(self, z: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        """Samples of ``z`` for ``labels``."""
        return self.activate(self.raw(z, labels), noise)
