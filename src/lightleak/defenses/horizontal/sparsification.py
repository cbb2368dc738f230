"""Only some entries of the gradient are sent.

The largest (Zhu et al. 2019; Lin et al. 2018), or random ones (Dimitrov et al. 2022, App. C.1, Table 6).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, KnownTo, UpdateDefense, with_draws


@UPDATE_DEFENSES.register("gradient_compression")
@dataclass(frozen=True)
class GradientCompression(UpdateDefense):
    """Of every tensor keep the share of entries with the largest magnitude, and set the others to zero.

    Without Deep Gradient Compression's memory of what was left out. Of equal magnitudes (the two rows of a binary
    output layer have the same) the first are kept.

    Attributes:
        keep: share of each tensor's entries that stay, rounded to whole entries, at least one; 1 leaves the gradient
            unchanged.

    Raises:
        UsageError: a share that is not above 0 and at most 1.

    Needs:
        * It gives no guarantee: entries that stay are exact.

    Deviates:
        * Entries left out are forgotten; Deep Gradient Compression (Lin et al. 2018) keeps and sends them later.
    """

    name: ClassVar[str] = "gradient_compression"
    citation: ClassVar[str] = "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019"
    words: ClassVar[str] = "the largest {keep:.3g} of the entries"
    varies: ClassVar[str | None] = "keep"
    known_to: ClassVar[KnownTo] = {"exact_pruned": {}}

    keep: float = bounded(0.2, gt=0, le=1)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {name: self._largest(g) for name, g in gradient.items()}

    def _largest(self, gradient: Tensor) -> Tensor:
        magnitude = gradient.abs().reshape(-1)
        n_kept = max(1, round(self.keep * len(magnitude)))
        # A stable sort gives the same and takes about three times as long.
        smallest = magnitude.kthvalue(len(magnitude) - n_kept + 1).values
        kept, equal = magnitude > smallest, magnitude == smallest
        kept |= equal & (equal.cumsum(0) <= n_kept - kept.sum())
        return gradient.masked_fill(~kept.view(gradient.shape), 0)


@UPDATE_DEFENSES.register("random_pruning")
@dataclass(frozen=True)
class RandomPruning(UpdateDefense):
    """Set each entry to zero with a probability, independently; the others are unchanged.

    As in the paper's code what is left is not scaled up, so the expectation shrinks by ``1 - probability``.

    Attributes:
        probability: of an entry to be set to zero; 0 changes nothing.

    Raises:
        UsageError: a probability outside ``[0, 1]``.

    Needs:
        * It gives no guarantee: entries that stay are exact.
    """

    name: ClassVar[str] = "random_pruning"
    citation: ClassVar[str] = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, App. C.1"
    words: ClassVar[str] = "random pruning with probability {probability:g}"
    varies: ClassVar[str | None] = "probability"
    known_to: ClassVar[KnownTo] = {"exact_pruned": {"left_out": "any"}}

    probability: float = bounded(0.5, ge=0, le=1)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {
            name: g.masked_fill((torch.rand(g.shape, generator=own) < self.probability).to(g.device), 0)
            for name, g, own in with_draws(gradient, draws)
        }
