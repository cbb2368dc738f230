"""The optimizer of a target as data: named, bounded, stored in checkpoints and part of the protocol facts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from lightleak.core.arguments import require_kind
from lightleak.core.bounds import bounded, check_settings, require_one_of
from lightleak.core.errors import UsageError

OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of a target's optimizer.

    Attributes:
        name: sgd, adam or adamw; PyTorch's defaults apart from what follows.
        learning_rate: size of a step.
        momentum: sgd only.
        weight_decay: an L2 penalty for sgd and adam, decoupled for adamw.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = bounded(0.01, gt=0)
    momentum: float = bounded(0.0, ge=0, lt=1)
    weight_decay: float = bounded(0.0, ge=0)

    def __post_init__(self) -> None:
        """Check the domains.

        Raises:
            UsageError: a value of another type or outside its domain, or momentum with an optimizer that has none.
        """
        require_one_of("optimizer", self.name, OPTIMIZERS)
        check_settings(self)
        if self.momentum and self.name != "sgd":
            raise UsageError(f"momentum is a setting of 'sgd', got momentum {self.momentum!r} with {self.name!r}")

    @classmethod
    def of(cls, given: "OptimizerConfig | Mapping[str, Any] | None") -> "OptimizerConfig":
        """Return settings from their dictionary, or as they are; None is plain SGD.

        Raises:
            UsageError: of another type, a setting that no optimizer has, or a value outside its domain.
        """
        if given is None or isinstance(given, OptimizerConfig):
            return given or cls()
        require_kind("optimizer", given, Mapping, "an OptimizerConfig or its dictionary")
        known = [one.name for one in fields(cls)]
        if unknown := [key for key in given if key not in known]:
            raise UsageError(f"optimizer has no setting {unknown[0]!r}; settings: {', '.join(known)}")
        return cls(**given)

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
