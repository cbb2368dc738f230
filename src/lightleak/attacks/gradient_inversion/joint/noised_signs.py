"""The cost of rows given elements of a gradient that were cut off at one size and sent with Laplace noise.

NVFlare's SVTPrivacy sends such elements. It draws them, with the epsilon of its defaults nearly at random, so that
nothing is taken from which elements were left out. Most elements exceed the size, so that where the noise is smaller a
value gives away little more than a sign. The optimization therefore fits signs, each weighted by its log odds: the
likelihood of the values is flat where a sign is wrong, and does not lead to rows. Candidate rows near a solution are
compared by that likelihood.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.intervals import Intervals
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient

SURE = 3.0
"""Logarithm of the odds of a sign from which it is fully trusted: 95%."""

LEAST_TRUST = 1e-3
"""Least weight of a sign, as weights divide."""

NATS = 1.0
"""Weight of the prior per nat of likelihood. With a quarter of it, as for signs, single rows of Adult have 90 and 61%
of the cells in place of 93 and 64 (noise_var 10 and 1, 3 and 4 batches), which so few do not tell apart."""

LEAST_GAIN = 0.06
"""Share of the cells that `NoisedSigns.nats` must allow in addition to a guess for a search to be worth its work. The
bound is one for cells that are fair coins and share what is sent equally; of other cells less can be gained. 32
rows behind the defaults of SVTPrivacy have a bound of 0.04 (German Credit) to 0.054 (Adult); one row has 0.3."""


@dataclass(frozen=True)
class NoisedSigns(Intervals):
    """Elements that were cut off at one size and sent with Laplace noise.

    The optimization sees their signs, trusted by the odds of either; rows are compared by the likelihood of the values.

    Attributes:
        sent: the values ``[out, in + 1]`` per layer, zero where an element was left out.
        cut: largest size before the noise.
        noise: scale of the noise.
    """

    sent: Gradient = ()
    cut: float = 0.0
    noise: float = 1.0

    @classmethod
    def of_signs(cls, signs: Intervals, sent: Gradient, cut: float, noise: float) -> "NoisedSigns":
        """Intervals of signs with the values behind them."""
        trust = ((2 * layer.abs().clamp_max(cut) / noise / SURE).clamp(LEAST_TRUST, 1.0) for layer in sent)
        sizes = tuple(size / share for size, share in zip(signs.sizes, trust, strict=True))
        return cls(signs.lowest, signs.highest, sizes, signs.factor, signs.share, sent, cut, noise)

    def to(self, dtype: torch.dtype) -> Self:
        """See `Intervals.to`."""
        return replace(super().to(dtype), sent=tuple(layer.to(dtype) for layer in self.sent))

    def missed(self, gradient: Gradient) -> float:
        """Mean distance of the values from a gradient's, cut off, in scales of the noise: 1 where that explains it."""
        return float(self.beyond(gradient)) / sum(int((layer != 0).sum()) for layer in self.sent)

    @property
    def nats(self) -> float:
        """Most that the values can tell about rows, in nats.

        An element tells no more than the divergence between Laplace noise around the cut and around 0. Which elements
        were sent is not counted, as nothing is taken from it.
        """
        shift = self.cut / self.noise
        return sum(int((layer != 0).sum()) for layer in self.sent) * (shift + math.exp(-shift) - 1)

    @cached_property
    def _values(self) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """In the elements' units: the values, the cut, and what a unit costs in nats."""
        each = zip(self.sent, self._weights, strict=True)
        return tuple((own * w, self.cut * w, (own != 0) / (self.noise * w)) for own, w in each)

    def _beyond(self, layer: int, scaled: Tensor) -> Tensor:
        value, cut, nats = self._values[layer]
        return ((value - scaled.clamp(-cut, cut)).abs_() * nats).flatten(-2).sum(-1)
