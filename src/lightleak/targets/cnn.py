"""The convolutional network of TabLeak (Vero et al. 2023, App. C.3): a convolution along the encoded vector."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.mlp import FullyConnected
from lightleak.targets.normalization import BatchNorm1d
from lightleak.targets.spec import NETWORKS


@NETWORKS.register("cnn")
class CNN(nn.Module):
    """Conv1d without bias, BatchNorm, ReLU, flatten, then a ReLU `FullyConnected`.

    >>> CNN(EncodedLayout.of_numerical(105), n_classes=2).head.linears[0]
    Linear(in_features=1648, out_features=100, bias=True)
    """

    def __init__(
        self,
        layout: EncodedLayout,
        n_classes: int,
        channels: int = 16,
        kernel_size: int = 3,
        hidden: Sequence[int] = (100, 100),
    ) -> None:
        """Build the layers.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            channels: output channels of the convolution.
            kernel_size: encoded positions under one kernel.
            hidden: width of each fully connected hidden layer.

        Raises:
            UsageError: an option outside its domain, or a kernel wider than the encoded input.
        """
        super().__init__()
        length = layout.width - options.count("kernel_size", kernel_size) + 1
        if length < 1:
            raise UsageError(f"kernel_size must be at most {layout.width} (encoded width), got {kernel_size}")
        self.convolution = nn.Conv1d(1, options.count("channels", channels), kernel_size, bias=False)
        self.norm = BatchNorm1d(channels)
        self.head = FullyConnected(channels * length, hidden, options.count("n_classes", n_classes, 2))

    def forward(self, x: Tensor) -> Tensor:
        """``[n, d]`` to logits ``[n, n_classes]``."""
        features = F.relu(self.norm(self.convolution(x.unsqueeze(1))))
        logits: Tensor = self.head(features.flatten(start_dim=1))
        return logits
