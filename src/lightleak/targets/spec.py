"""A network as data: a name, its options and the layout of its input, so that an observation can describe itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from torch import nn

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.registry import Registry
from lightleak.core.seeds import fresh_generator
from lightleak.data.layout import EncodedLayout
from lightleak.targets.own import is_own, own_factory, reads_copies

MOST_CLASSES = 100_000
"""Upper bound for values read from files; no table has more classes."""

NETWORKS: Registry[type[nn.Module]] = Registry("network")


def is_differentiable(name: str) -> bool:
    """Whether gradients pass through the network of that name; through trees none do.

    Raises:
        UsageError: no such network.
    """
    return bool(getattr(_maker(name), "differentiable", True))


def _maker(name: str) -> Callable[..., nn.Module]:
    return own_factory(name) if is_own(name) else NETWORKS.get(name)


def _options(make: Callable[..., nn.Module]) -> str:
    return ", ".join(list(signature(make).parameters)[2:]) or "none"  # layout and n_classes come first


@dataclass(frozen=True)
class NetworkSpec:
    """Everything needed to build a network again.

    Attributes:
        name: registry name (``mlp``, ``resnet``, ...), or that of a user's network (`lightleak.targets.own`).
        n_classes: width of the output.
        layout: encoded input.
        options: keyword arguments of the network's class.
    """

    name: str
    n_classes: int
    layout: EncodedLayout
    options: Mapping[str, Any] = field(default_factory=dict)

    def require_layout(self, layout: EncodedLayout) -> None:
        """Raise `UsageError` for an encoder whose columns are not those of the network."""
        if layout != self.layout:
            raise UsageError(
                f"the network takes {self.layout.width} encoded features, the encoder makes other columns "
                f"({layout.width} features)"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "name": self.name,
            "n_classes": self.n_classes,
            "layout": self.layout.to_dict(),
            "options": dict(self.options),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "NetworkSpec":
        """Inverse of `to_dict`.

        Raises:
            ObservationError: a key is missing, or a value is not of its type or range.
        """
        if not isinstance(state, Mapping):
            raise ObservationError(f"network specification must be a dictionary, got {type(state).__name__}")
        try:
            name, n_classes, options = state["name"], state["n_classes"], state.get("options", {})
            layout = EncodedLayout.from_dict(state["layout"])
        except KeyError as error:
            raise ObservationError(f"network specification lacks {error}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise ObservationError(f"network specification: layout is none: {error}") from error
        if not isinstance(name, str):
            raise ObservationError(f"network specification: name must be text, got {name!r}")
        if not isinstance(n_classes, int) or isinstance(n_classes, bool) or not 2 <= n_classes <= MOST_CLASSES:
            raise ObservationError(
                f"network specification: n_classes must be a whole number from 2 to {MOST_CLASSES}, got {n_classes!r}"
            )
        if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
            raise ObservationError(f"network specification: options must be a mapping of names, got {options!r}")
        return cls(name, n_classes, layout, options)


def build_network(spec: NetworkSpec, seed: int | None = None) -> nn.Module:
    """Build the network; with ``seed`` its initial weights depend on nothing else (the global generator is restored).

    Raises:
        UsageError: unknown name, or options that the network does not take or that no memory holds.
    """
    make = _maker(spec.name)
    with fresh_generator(seed):
        try:
            network = make(spec.layout, spec.n_classes, **spec.options)
        except TypeError as error:
            raise UsageError(
                f"network {spec.name!r} does not take these options: {error}; options: {_options(make)}"
            ) from error
        except (RuntimeError, MemoryError, OverflowError) as error:  # sizes that no memory holds
            raise UsageError(f"network {spec.name!r} cannot be built: {' '.join(str(error).split())}") from error
    return reads_copies(network) if is_own(spec.name) else network
