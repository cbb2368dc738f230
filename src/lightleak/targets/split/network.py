"""A bottom network per party and a top network at the active party (ProVFL Sec. III-A)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.seeds import fresh_generator
from lightleak.targets import options
from lightleak.targets.mlp import FullyConnected


@dataclass(frozen=True)
class SplitSpec:
    """Everything needed to build a split network again. The defaults are those of ProVFL's code on Adult.

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

    def __post_init__(self) -> None:
        """Check the domains; a list, as YAML gives it, becomes a tuple.

        Raises:
            UsageError: no party, a width below 1, or fewer than two classes.
        """
        for name in ("widths", "bottom_hidden", "top_hidden"):
            object.__setattr__(self, name, options.widths(name, getattr(self, name)))
        if not self.widths:
            raise UsageError("widths must hold the number of encoded columns of each party, got none")
        options.count("output_width", self.output_width)
        options.count("n_classes", self.n_classes, 2)

    @property
    def n_parties(self) -> int:
        """Parties that hold columns."""
        return len(self.widths)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "SplitSpec":
        """Inverse of `to_dict`."""
        return cls(**state)


class SplitNetwork(nn.Module):
    """Bottom networks ``f_k`` and top network ``h`` with ReLU; two classes have one logit, more have one each.

    Attributes:
        spec: the widths.
        bottoms: one network per party, ``[n, d_k] -> [n, output_width]`` before the final ReLU; ``bottoms[k]`` holds
            the parameters of party k and nothing else does.
        top: ``[n, parties * output_width] -> [n, logits]``.
    """

    def __init__(self, spec: SplitSpec, seed: int | None = None) -> None:
        super().__init__()
        self.spec = spec
        n_logits = 1 if spec.n_classes == 2 else spec.n_classes
        with fresh_generator(seed):
            self.bottoms = nn.ModuleList(
                FullyConnected(width, spec.bottom_hidden, spec.output_width) for width in spec.widths
            )
            self.top = FullyConnected(spec.n_parties * spec.output_width, spec.top_hidden, n_logits)

    def party_inputs(self, inputs: Tensor) -> Sequence[Tensor]:
        """Columns of each party, ``[n, d_k]``, of rows ``[n, d]``."""
        return inputs.split(self.spec.widths, dim=1)

    def party_output(self, party: int, inputs: Tensor) -> Tensor:
        """What one party sends for its own columns ``[n, d_k]``: ``[n, output_width]``, differentiable.

        >>> SplitNetwork(SplitSpec((3, 2)), seed=0).party_output(1, torch.zeros(5, 2)).shape
        torch.Size([5, 16])

        Raises:
            UsageError: no such party, or not its columns.
        """
        self.check_party(party, inputs)
        return torch.relu(self.bottoms[party](inputs))

    def check_party(self, party: int, inputs: Tensor) -> None:
        """Raise `UsageError` unless ``inputs`` are encoded columns of that party."""
        if not 0 <= party < self.spec.n_parties:
            raise UsageError(f"party must be from 0 to {self.spec.n_parties - 1}, got {party}")
        if inputs.ndim != 2 or inputs.shape[1] != self.spec.widths[party]:
            wanted = f"[n, {self.spec.widths[party]}]"
            raise UsageError(f"inputs of party {party} must have shape {wanted}, got {tuple(inputs.shape)}")

    def outputs(self, inputs: Tensor) -> Tensor:
        """What the parties send for rows ``[n, d]``: ``[parties, n, output_width]``."""
        held = self.party_inputs(inputs)
        return torch.relu(torch.stack([bottom(x) for bottom, x in zip(self.bottoms, held, strict=True)]))

    def logits(self, outputs: Tensor) -> Tensor:
        """Top network on what the parties sent: ``[n]`` for two classes, ``[n, n_classes]`` for more."""
        logits: Tensor = self.top(outputs.transpose(0, 1).flatten(1))
        return logits.squeeze(1) if self.spec.n_classes == 2 else logits

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of rows ``[n, d]``."""
        return self.logits(self.outputs(inputs))
