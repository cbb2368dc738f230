"""Random pruning of the gradient's entries (Dimitrov et al. 2022, App. C.1, Table 6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense, check_number, with_draws


@UPDATE_DEFENSES.register(
    "random_pruning",
    Facts(
        needs=("It gives no guarantee: entries that stay are exact.",),
    ),
)
@dataclass(frozen=True)
class RandomPruning(UpdateDefense):
    """Set each entry to zero with a probability, independently; the others are unchanged.

    As in the paper's code what is left is not scaled up, so the expectation shrinks by ``1 - probability``.

    Attributes:
        probability: of an entry to be set to zero; 0 changes nothing.

    Raises:
        UsageError: a probability outside ``[0, 1]``.
    """

    name: ClassVar[str] = "random_pruning"
    citation: ClassVar[str] = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, App. C.1"
    varies: ClassVar[str | None] = "probability"

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_number("random_pruning: probability", self.probability, high=1)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {
            name: g.masked_fill((torch.rand(g.shape, generator=own) < self.probability).to(g.device), 0)
            for name, g, own in with_draws(gradient, draws)
        }

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return f"random pruning with probability {self.probability:g}"
