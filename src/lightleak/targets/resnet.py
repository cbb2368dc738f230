"""Residual networks: TabLeak's, which concatenates, and the tabular literature's pre-activation one, which adds."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.mlp import norm_layer
from lightleak.targets.normalization import BatchNorm1d
from lightleak.targets.spec import NETWORKS


class ConcatenatingBlock(nn.Module):
    """``[n, i] -> [n, o + i]``: ReLU(BatchNorm(Linear(x))) before ``x`` (CTGAN's residual, Xu et al. 2019)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.norm = BatchNorm1d(n_out)

    def forward(self, x: Tensor) -> Tensor:
        """Append the block's features in front of its input."""
        return torch.cat([F.relu(self.norm(self.linear(x))), x], dim=1)


@NETWORKS.register("resnet")
class ConcatenatingResNet(nn.Module):
    """TabLeak's "ResNet (BN)" (Vero et al. 2023, App. C.3): two `ConcatenatingBlock` and a linear layer.

    >>> ConcatenatingResNet(EncodedLayout.of_numerical(105), n_classes=2).output
    Linear(in_features=305, out_features=2, bias=True)
    """

    def __init__(self, layout: EncodedLayout, n_classes: int, hidden: Sequence[int] = (100, 100)) -> None:
        """Build the layers.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            hidden: features that each block adds.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        self.blocks = nn.ModuleList()
        width = layout.width
        for n_out in options.widths("hidden", hidden):
            self.blocks.append(ConcatenatingBlock(width, n_out))
            width += n_out
        self.output = nn.Linear(width, options.count("n_classes", n_classes, 2))

    def forward(self, x: Tensor) -> Tensor:
        """``[n, d]`` to logits ``[n, n_classes]``."""
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.output(x)
        return logits


class PreActivationBlock(nn.Module):
    """``x + Dropout(Linear(Dropout(ReLU(Linear(Norm(x))))))``, ``[n, width]`` to the same."""

    def __init__(self, width: int, inner: int, norm: str, hidden_dropout: float, residual_dropout: float) -> None:
        super().__init__()
        self.norm = norm_layer(norm, width)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.hidden_dropout = nn.Dropout(hidden_dropout)
        self.residual_dropout = nn.Dropout(residual_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add the block's correction to ``x``."""
        inner = self.hidden_dropout(F.relu(self.expand(self.norm(x))))
        correction: Tensor = self.residual_dropout(self.contract(inner))
        return x + correction


@NETWORKS.register("resnet_preact")
class PreActivationResNet(nn.Module):
    """The tabular ResNet of Gorishniy et al. 2021 (arXiv 2106.11959, Sec. 3.2).

    Linear, ``n_blocks`` times `PreActivationBlock`, then ``Linear(ReLU(Norm(x)))``. The default width is that of
    TabLeak's networks, so that leakage compares at a like size; both dropouts are off by default.
    """

    def __init__(
        self,
        layout: EncodedLayout,
        n_classes: int,
        width: int = 100,
        n_blocks: int = 2,
        hidden_factor: float = 2.0,
        norm: str = "batch",
        hidden_dropout: float = 0.0,
        residual_dropout: float = 0.0,
    ) -> None:
        """Build the layers.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            width: units of the residual stream.
            n_blocks: residual blocks.
            hidden_factor: inner units of a block per unit of ``width``.
            norm: batch or layer.
            hidden_dropout: share of inner units dropped in train mode.
            residual_dropout: share of a block's correction dropped in train mode.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        factor = options.factor("hidden_factor", hidden_factor)
        inner = options.count("width * hidden_factor", int(options.count("width", width) * factor))
        rates = options.rate("hidden_dropout", hidden_dropout), options.rate("residual_dropout", residual_dropout)
        self.input = nn.Linear(layout.width, width)
        self.blocks = nn.ModuleList(
            PreActivationBlock(width, inner, norm, *rates) for _ in range(options.count("n_blocks", n_blocks))
        )
        self.norm = norm_layer(norm, width)
        self.output = nn.Linear(width, options.count("n_classes", n_classes, 2))

    def forward(self, x: Tensor) -> Tensor:
        """``[n, d]`` to logits ``[n, n_classes]``."""
        x = self.input(x)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.output(F.relu(self.norm(x)))
        return logits
