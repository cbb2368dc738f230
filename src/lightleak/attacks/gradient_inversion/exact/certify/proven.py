"""What is proven of the rows that an attack found."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.by_row import ByRow


@dataclass(frozen=True)
class Proof(ByRow):
    """What is proven of rows.

    Attributes:
        cells: their categories, their label and how often they occur, bool ``[r]``.
        digits: their numbers as well, to `NUMBERS_WITHIN`, bool ``[r]``.
    """

    cells: Tensor
    digits: Tensor

    @classmethod
    def nothing(cls, rows: Tensor) -> "Proof":
        """No proof for any of ``rows`` ``[r, ...]``."""
        none = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        return cls(none, none)
