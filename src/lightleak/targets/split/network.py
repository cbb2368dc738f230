"""A bottom network per party and a top network at the active party (ProVFL Sec. III-A)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.targets.mlp import FullyConnected


@dataclass(frozen=True)
class SplitSpec:
    """Everything needed to build a split network again.

    Attributes:
        widths: encoded columns of each party.
        n_classes: classes of the task.
        bottom_hidden: hidden widths of every bottom network.
        output_width: width of what each party sends.
        top_hidden: hidden widths of the top network.
    """

    widths: tuple[int, ...]
    n_classes: int = 2
    bottom_hidden: tuple[int, ...] = (32,)
    output_width: int = 16
    top_hidden: tuple[int, ...] = (16,)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "SplitSpec":
        """Inverse of `to_dict`."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in state.items()})


class SplitNetwork(nn.Module):
    """Bottom networks ``f_k`` and top network ``h`` with ReLU; two classes have one logit, more have one each.

    Attributes:
        spec: the widths.
        bottoms: one network per party, ``[n, d_k] -> [n, output_width]``, its last layer followed by ReLU.
        top: ``[n, parties * output_width] -> [n, logits]``.
    """

    def __init__(self, spec: SplitSpec, seed: int | None = None) -> None:
        super().__init__()
        self.spec = spec
        n_logits = 1 if spec.n_classes == 2 else spec.n_classes
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            self.bottoms = nn.ModuleList(
                FullyConnected(width, spec.bottom_hidden, spec.output_width) for width in spec.widths
            )
            self.top = FullyConnected(len(spec.widths) * spec.output_width, spec.top_hidden, n_logits)

    def party_inputs(self, inputs: Tensor) -> Sequence[Tensor]:
        """Columns of each party, ``[n, d_k]``."""
        return inputs.split(self.spec.widths, dim=1)

    def outputs(self, inputs: Tensor) -> Tensor:
        """What the parties send, ``[parties, n, output_width]``."""
        held = self.party_inputs(inputs)
        return torch.stack([torch.relu(bottom(x)) for bottom, x in zip(self.bottoms, held, strict=True)])

    def logits(self, outputs: Tensor) -> Tensor:
        """Top network on what the parties sent: ``[n]`` for two classes, ``[n, n_classes]`` for more."""
        logits: Tensor = self.top(outputs.transpose(0, 1).flatten(1))
        return logits.squeeze(1) if self.spec.n_classes == 2 else logits

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of rows ``[n, d]``."""
        return self.logits(self.outputs(inputs))
