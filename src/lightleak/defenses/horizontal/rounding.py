"""The gradient in fewer bits, or with a smaller norm: clipping, stochastic quantization, signs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, KnownTo, UpdateDefense, with_draws

MAX_BITS = 16
"""More change less than float32 rounds in a sum of a few hundred rows."""


TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
"""Types that torch converts to."""


@UPDATE_DEFENSES.register("clipping")
@dataclass(frozen=True)
class Clipping(UpdateDefense):
    """Scale the gradient down to a norm where it is longer: ``g * min(1, max_norm / ||g||)``.

    One factor for all tensors, so the direction stays: a loss that compares directions sees no difference.

    Attributes:
        max_norm: largest Euclidean norm of all entries together.

    Raises:
        UsageError: a norm that is not above 0 or not finite.

    Needs:
        * It protects nothing from an attack that compares directions.

    Deviates:
        * Abadi et al. clip the gradient of every row (``dp_sgd``); here the gradient that is sent is clipped.
    """

    name: ClassVar[str] = "clipping"
    citation: ClassVar[str] = "Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Sec. 3.1"
    words: ClassVar[str] = "clipping to norm {max_norm:g}"
    varies: ClassVar[str | None] = "max_norm"
    known_to: ClassVar[KnownTo] = {"exact": {}, "exact_fedavg": {}}

    max_norm: float = bounded(1.0, gt=0)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        norms = [torch.linalg.vector_norm(g.to(torch.promote_types(g.dtype, torch.float32))) for g in gradient.values()]
        norm = torch.linalg.vector_norm(torch.stack([part.to(norms[0]) for part in norms]))
        factor = (self.max_norm / norm).clamp(max=1)
        return {name: g * factor.to(g) for name, g in gradient.items()}


@UPDATE_DEFENSES.register("quantization")
@dataclass(frozen=True)
class Quantization(UpdateDefense):
    """Round every entry at random to one of two neighboring levels, so that its expectation is the entry.

    Levels are ``k / s * max(|g|)`` with ``k`` from ``-s`` to ``s`` and ``s = 2 ** (bits - 1) - 1``, per tensor. QSGD is
    defined with the Euclidean norm in place of the largest entry, which needs more levels for the same variance.

    Attributes:
        bits: per entry, its sign among them; at least 2 (three levels) and at most `MAX_BITS`.

    Raises:
        UsageError: a number of bits out of range.

    Needs:
        * It gives no guarantee: the expectation of every entry is the entry.

    Deviates:
        * Levels are shares of a tensor's largest entry; QSGD is defined with its Euclidean norm.
    """

    name: ClassVar[str] = "quantization"
    citation: ClassVar[str] = "Alistarh et al., QSGD, NeurIPS 2017"
    words: ClassVar[str] = "stochastic quantization to {bits} bits"
    varies: ClassVar[str | None] = "bits"
    known_to: ClassVar[KnownTo] = {"exact_joint": {}, "exact_fedavg": {}}

    bits: int = bounded(2, ge=2, le=MAX_BITS)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {name: self._round(g, own) for name, g, own in with_draws(gradient, draws)}

    def _round(self, gradient: Tensor, draws: torch.Generator) -> Tensor:
        g = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        step = g.abs().max() / (2 ** (self.bits - 1) - 1)
        # A tensor of zeros has no levels and stays.
        levels = g / torch.where(step > 0, step, 1.0)
        low = levels.floor()
        up = torch.rand(g.shape, generator=draws).to(g) < levels - low
        return ((low + up) * step).to(gradient.dtype)


@UPDATE_DEFENSES.register("transport")
@dataclass(frozen=True)
class Transport(UpdateDefense):
    """Send every entry in a shorter type, rounded to the nearest value, and read it as what it was.

    ``int8`` has 255 levels between the largest magnitude of a tensor and its negative, as 8-bit transports do.

    Attributes:
        format: ``float16``, ``bfloat16`` or ``int8``.

    Raises:
        UsageError: an unknown type.

    Needs:
        * It gives no guarantee: it is how numbers travel, and is measured as one.
    """

    name: ClassVar[str] = "transport"
    citation: ClassVar[str] = "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019"
    words: ClassVar[str] = "sent as {format}"
    known_to: ClassVar[KnownTo] = {"exact_joint": {}, "exact_fedavg": {}}

    format: Literal["float16", "bfloat16", "int8"] = "float16"

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {name: self._sent(g) for name, g in gradient.items()}

    def _sent(self, gradient: Tensor) -> Tensor:
        if self.format in TYPES:
            return gradient.to(TYPES[self.format]).to(gradient.dtype)
        g = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        step = g.abs().max() / 127
        return ((g / torch.where(step > 0, step, 1.0)).round() * step).to(gradient.dtype)


@UPDATE_DEFENSES.register("sign")
@dataclass(frozen=True)
class Sign(UpdateDefense):
    """Every tensor becomes ``mean(|g|) * sign(g)``: one bit per entry and one number per tensor.

    The scaled sign ``||g||_1 / d * sign(g)`` of Karimireddy et al. (2019), without their memory of errors; the scale
    keeps the learning rate of the undefended training usable. An entry of exactly 0 stays 0.

    Needs:
        * It gives no guarantee.

    Deviates:
        * Without the memory of errors of Karimireddy et al. (2019), whose scale per tensor it takes.
    """

    name: ClassVar[str] = "sign"
    citation: ClassVar[str] = (
        "Bernstein et al., signSGD, ICML 2018; scale: Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019"
    )
    words: ClassVar[str] = "signs, scaled per tensor"
    known_to: ClassVar[KnownTo] = {"exact_signs": {}}

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {name: g.sign() * g.abs().mean() for name, g in gradient.items()}
