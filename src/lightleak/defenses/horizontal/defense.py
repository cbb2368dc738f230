"""What every defence of horizontal federated learning looks like from outside: a transform of what leaves a client."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightleak.core.registry import Registry


class UpdateDefense(ABC):
    """A defence of a mean gradient, or of a weight delta in the scale of one: named tensors in, named tensors out.

    A concrete defence is a frozen dataclass whose fields are its settings, checked on construction.

    Attributes:
        name: registry name.
        citation: where it is defined.
    """

    name: ClassVar[str]
    citation: ClassVar[str]

    @abstractmethod
    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """What leaves the client in place of ``gradient``, which is left as it is.

        Args:
            gradient: mean gradient of a batch by parameter name, on any device; a weight delta is brought to its scale
                first (``-delta / (learning rate * local steps)``).
            draws: a CPU generator; the result depends on ``gradient`` and its state alone.

        Returns:
            Same names, shapes, types and devices.
        """

    @property
    @abstractmethod
    def strength(self) -> float | None:
        """The one number that a leakage-against-cost curve varies; ``None`` where there is none."""

    @abstractmethod
    def describe(self) -> str:
        """One line with the strength, such as ``Gaussian noise of scale 0.01``."""

    def options(self) -> dict[str, Any]:
        """The settings, JSON-ready."""
        return asdict(self)  # type: ignore[call-overload]


UPDATE_DEFENSES: Registry[type[UpdateDefense]] = Registry("defence")
"""Defences of horizontal federated learning by name; called with their settings."""
