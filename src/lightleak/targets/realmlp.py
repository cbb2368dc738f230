"""The structure of RealMLP (Holzmüller et al. 2024, arXiv 2407.04491) without its embeddings of numbers."""

import torch
from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.spec import NETWORKS

MOST_ONE_HOT, EMBEDDED = 9, 8
"""Categories of a column up to which it stays one-hot, and the width of the embedding of others."""


class ScaledLinear(nn.Module):
    """A linear layer in NTK parametrization: weights of variance 1, divided in every forward."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(n_in, n_out)), nn.Parameter(torch.randn(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs ``[n, n_out]``."""
        return x @ self.weight / len(self.weight) ** 0.5 + self.bias


class ParametricSELU(nn.Module):
    """A trained mix of SELU and the identity for every unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return activations of the same shape."""
        return x + self.share * (nn.functional.selu(x) - x)


@NETWORKS.register("realmlp_like")
class RealMLPLike(nn.Module):
    """RealMLP-TD's structure for classification (arXiv 2407.04491), without its embeddings of numbers.

    One-hot columns and embeddings, a trained scale, three layers in NTK parametrization with parametric SELU and
    dropout. RealMLP clips and scales numbers before the network.
    """

    def __init__(self, layout: EncodedLayout, n_classes: int, width: int = 256, dropout: float = 0.15) -> None:
        """Build the layers; defaults are RealMLP-TD's.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            width: units of each of the three hidden layers.
            dropout: share of the units dropped in train mode.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        width, dropout = options.count("width", width), options.rate("dropout", dropout)
        n_classes, self.layout = options.count("n_classes", n_classes, 2), layout
        embedded = [block for block in layout.categorical if block.width > MOST_ONE_HOT]
        self.tables = nn.ParameterDict({str(b.start): torch.randn(b.width, EMBEDDED) for b in embedded})
        into = layout.width + sum(EMBEDDED - block.width for block in embedded)
        self.scale, self.layers = nn.Parameter(torch.ones(into)), nn.Sequential()
        for n_in in (into, width, width):
            self.layers.extend([ScaledLinear(n_in, width), ParametricSELU(width), nn.Dropout(dropout)])
        self.layers.append(ScaledLinear(width, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Encoded rows ``[n, d]`` to logits ``[n, n_classes]``."""
        columns = [x[:, block.slice] for block in self.layout.blocks]
        for i, block in enumerate(self.layout.blocks):
            if str(block.start) in self.tables:
                columns[i] = columns[i] @ self.tables[str(block.start)]
        logits: Tensor = self.layers(self.scale * torch.cat(columns, 1))
        return logits
