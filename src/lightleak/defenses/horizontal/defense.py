"""What every defense of horizontal federated learning looks like from outside: a transform of what leaves a client."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightleak.core.registry import Registry
from lightleak.core.seeds import generator
from lightleak.defenses.defense import REFERENCE, Defense

KnownTo = Mapping[str, Mapping[str, Any]]
"""Attacks by name, with settings."""


class HorizontalDefense(Defense):
    """A defense of what a client of horizontal federated learning sends.

    Attributes:
        known_to: attacks that know how it works, and the settings in which they know it.
    """

    known_to: ClassVar[KnownTo] = {}

    @property
    def knowledge(self) -> KnownTo:
        """`known_to`, completed with values that depend on this defense's settings."""
        return self.known_to


class UpdateDefense(HorizontalDefense):
    """A defense of a mean gradient, or of a weight delta in the scale of one: named tensors in, named tensors out.

    `lightleak.defenses.horizontal.defend_training` has it act on the gradient of every step of a training.
    """

    @abstractmethod
    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """What leaves the client in place of ``gradient``, which is not modified.

        Args:
            gradient: mean gradient of a batch by parameter name, on any device; a weight delta is brought to its scale
                first (``-delta / (learning rate * local steps)``).
            draws: a CPU generator; the result depends on ``gradient`` and its state alone. What is random in a tensor
                depends on the state and the tensor's name, not on the order of the tensors or on the other tensors
                (`with_draws`).

        Returns:
            Same names, shapes, types and devices.
        """

    def acting_at(self, learning_rate: float, steps: int) -> "UpdateDefense":
        """The defense of a FedAvg client whose change of weights is ``-learning_rate * steps`` times what `apply` gets.

        Args:
            learning_rate: of the local steps.
            steps: local steps of what is defended.
        """
        return self


UPDATE_DEFENSES: Registry[type[UpdateDefense]] = Registry("defense")
"""Transforms of an update by name; called with their settings."""


def with_draws(gradient: Mapping[str, Tensor], draws: torch.Generator) -> Iterator[tuple[str, Tensor, torch.Generator]]:
    """Each tensor of ``gradient`` with its name and a CPU generator of its own.

    The generator depends on the state of ``draws``, from which one number is taken, and on the name.

    >>> layer = {"bias": torch.zeros(2), "weight": torch.zeros(2)}
    >>> first = {name: float(torch.rand(1, generator=own)) for name, _, own in with_draws(layer, generator(0))}
    >>> del layer["bias"]
    >>> [first[name] == float(torch.rand(1, generator=own)) for name, _, own in with_draws(layer, generator(0))]
    [True]
    """
    root = int(torch.randint(2**63 - 1, (), generator=draws))
    for name, tensor in gradient.items():
        yield name, tensor, generator(root, name)


@UPDATE_DEFENSES.register("none", REFERENCE)
@dataclass(frozen=True)
class NoDefense(UpdateDefense):
    """Nothing is changed."""

    name: ClassVar[str] = "none"
    citation: ClassVar[str] = ""
    words: ClassVar[str] = "no defense"

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return dict(gradient)
