"""The target as the attacker rebuilds it from a released model."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError
from lightleak.core.released_model import ReleasedModel
from lightleak.data.encoder import TableEncoder
from lightleak.targets.spec import NetworkSpec, build_network, is_differentiable

ROWS_PER_CALL = 4096  # rows through the target at once: 4096 x 2048 units take 32 MiB


@dataclass(frozen=True)
class Target:
    """Network and encoder of a released model.

    Attributes:
        network: in eval mode, its weights frozen.
        encoder: from table rows to its input.
        white_box: gradients pass through it.
    """

    network: nn.Module
    encoder: TableEncoder
    white_box: bool

    @property
    def n_classes(self) -> int:
        """Private classes."""
        return self.encoder.schema.n_classes

    def logits(self, inputs: Tensor) -> Tensor:
        """``[n, n_classes]`` of encoded rows ``[n, d]``, in parts, on the CPU."""
        return logits_of(self.network, inputs)

    def to(self, device: torch.device | str) -> "Target":
        """With the network on ``device``; the encoder stays where tables are."""
        return Target(self.network.to(device), self.encoder, self.white_box)


@torch.no_grad()
def logits_of(network: nn.Module, inputs: Tensor) -> Tensor:
    """``[n, C]`` of encoded rows, in parts, on the CPU; computed where the network is."""
    device = next(network.buffers(), next(network.parameters(), inputs)).device
    return torch.cat([network(part.to(device)).float().cpu() for part in inputs.split(ROWS_PER_CALL)])


class TargetOfSample(nn.Module):
    """From samples in generator space to the target's logits: the label block dropped, f_inv, the target."""

    def __init__(self, bridge: nn.Module, network: nn.Module, width: int) -> None:
        super().__init__()
        self.bridge, self.network, self.width = bridge, network, width

    def forward(self, sample: Tensor) -> Tensor:
        """``[n, w + C]`` to ``[n, C]``."""
        logits: Tensor = self.network(self.bridge(sample[:, : self.width]))
        return logits


def rebuild(observation: ReleasedModel) -> Target:
    """The target of an observation.

    Raises:
        ObservationError: weights do not fit the network, or the network does not fit the encoder.
        UsageError: a network that does not exist.
        DataError: an encoder that has no meaning.
    """
    encoder = TableEncoder.of(observation)
    spec = NetworkSpec.from_dict(observation.network)
    if spec.layout != encoder.layout or spec.n_classes != encoder.schema.n_classes:
        raise ObservationError(
            f"network and encoder of a released model must fit: the network takes {spec.layout.width} columns and "
            f"{spec.n_classes} classes, the encoder gives {encoder.width} and {encoder.schema.n_classes}"
        )
    network = build_network(spec, seed=0)
    try:
        network.load_state_dict({**observation.parameters, **observation.buffers})
    except RuntimeError as error:
        raise ObservationError(f"the weights do not fit network {spec.name!r}: {error}") from error
    white_box = observation.access == "white_box" and is_differentiable(spec.name)
    return Target(network.requires_grad_(False).eval(), encoder, white_box)
