"""The optimizer of a target as data: named, bounded, stored in checkpoints and part of the protocol facts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lightleak.core.errors import UsageError

OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of a target's optimizer.

    Attributes:
        name: sgd, adam or adamw; PyTorch's defaults apart from what follows.
        learning_rate: above 0.
        momentum: in ``[0, 1)``; sgd only.
        weight_decay: at least 0; an L2 penalty for sgd and adam, decoupled for adamw.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Check the domains.

        Raises:
            UsageError: a value outside its domain, or momentum with an optimizer that has none.
        """
        if self.name not in OPTIMIZERS:
            raise UsageError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.name!r}")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"learning_rate must be above 0, got {self.learning_rate!r}")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be at least 0 and below 1, got {self.momentum!r}")
        if self.momentum and self.name != "sgd":
            raise UsageError(f"momentum is a setting of 'sgd', got momentum {self.momentum!r} with {self.name!r}")
        if not 0 <= self.weight_decay < float("inf"):
            raise UsageError(f"weight_decay must be at least 0, got {self.weight_decay!r}")

    def build(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The optimizer of those ``parameters`` that are trained.

        >>> OptimizerConfig("sgd", learning_rate=0.5).build([torch.nn.Parameter(torch.zeros(1))]).defaults["lr"]
        0.5
        """
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        if self.name == "sgd":
            return torch.optim.SGD(trained, self.learning_rate, self.momentum, weight_decay=self.weight_decay)
        make = torch.optim.Adam if self.name == "adam" else torch.optim.AdamW
        return make(trained, self.learning_rate, weight_decay=self.weight_decay)
