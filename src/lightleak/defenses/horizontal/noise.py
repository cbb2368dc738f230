"""Noise on every entry of the gradient (TabLeak Table 6; Dimitrov et al. 2022, App. C.1, Table 6)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.core.facts import Facts
from lightleak.defenses.draws import laplace
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, KnownTo, UpdateDefense, with_draws


class AdditiveNoise(UpdateDefense):
    """Noise on every entry, without clipping: no guarantee of differential privacy follows."""

    varies: ClassVar[str | None] = "scale"
    known_to: ClassVar[KnownTo] = {"exact_joint": {}, "exact_fedavg": {}}

    scale: float = bounded(ge=0)

    @abstractmethod
    def noise(self, like: Tensor, draws: torch.Generator) -> Tensor:
        """Noise for the entries of a tensor, with its shape, type and device."""

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        if self.scale == 0:
            return dict(gradient)
        return {name: g + self.noise(g, own) for name, g, own in with_draws(gradient, draws)}


NO_GUARANTEE = Facts(
    needs=("It gives no guarantee of differential privacy: nothing bounds what one row adds to a gradient.",)
)


@UPDATE_DEFENSES.register("gaussian_noise", NO_GUARANTEE)
@dataclass(frozen=True)
class GaussianNoise(AdditiveNoise):
    """Add ``scale * N(0, 1)`` to every entry, without clipping: no guarantee of differential privacy follows.

    Attributes:
        scale: standard deviation of the noise; 0 changes nothing.

    Raises:
        UsageError: a scale that is negative or not finite.
    """

    name: ClassVar[str] = "gaussian_noise"
    citation: ClassVar[str] = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023, Table 6"
    words: ClassVar[str] = "Gaussian noise of scale {scale:g}"

    scale: float = bounded(0.01, ge=0)

    def noise(self, like: Tensor, draws: torch.Generator) -> Tensor:
        """See `AdditiveNoise.noise`."""
        return self.scale * torch.randn(like.shape, generator=draws).to(like)


@UPDATE_DEFENSES.register("laplacian_noise", NO_GUARANTEE)
@dataclass(frozen=True)
class LaplacianNoise(AdditiveNoise):
    """Add Laplace noise of mean 0 to every entry, without clipping: no guarantee of differential privacy follows.

    What the paper's Table 6 calls σ is this scale in its code; the standard deviation is ``scale * sqrt(2)``.

    Attributes:
        scale: mean absolute value of the noise; 0 changes nothing.

    Raises:
        UsageError: a scale that is negative or not finite.
    """

    name: ClassVar[str] = "laplacian_noise"
    citation: ClassVar[str] = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, App. C.1"
    words: ClassVar[str] = "Laplacian noise of scale {scale:g}"

    scale: float = bounded(0.01, ge=0)

    def noise(self, like: Tensor, draws: torch.Generator) -> Tensor:
        """See `AdditiveNoise.noise`."""
        return laplace(like.shape, self.scale, torch.empty(()), draws).to(like)
