"""The convolutional networks that the FedAvg paper attacks (Dimitrov et al. 2022, Table 5)."""

from collections.abc import Sequence
from math import prod

from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.spec import NETWORKS

INITIALIZATIONS = ("torch", "flax")

_CUT_DEVIATION = 0.87962566
"""Deviation of a standard normal distribution that is cut at two deviations."""


@NETWORKS.register("image_cnn")
class ImageCNN(nn.Module):
    """Two convolutions with average pooling and two linear layers, on images that come as flat rows.

    The defaults are the FEMNIST network; CIFAR100's has ``channels=(64, 128), hidden=200``. Both convolutions pad by 1.
    With the second kernel of 1 x 1 that Table 5 prints, the padding makes the map larger: the first linear layer takes
    64 * 8 * 8 = 4,096 features of a FEMNIST image (28 x 28) and 128 * 9 * 9 = 10,368 of a CIFAR100 image (32 x 32).
    Table 5 prints 5,184 = 64 * 9 * 9 and three channels for FEMNIST, which is what a 3 x 32 x 32 image would give. The
    paper's code has ``second_kernel=3``: 3,136 and 8,192 features; its networks are flax's, and as it attacks them
    untrained, their initialization is part of what is attacked.

    Attributes:
        image_shape: channels, height and width.
        layers: the plain layers in order, from the image to the logits.

    >>> ImageCNN(EncodedLayout.of_numerical(784), n_classes=62, shape=(1, 28, 28)).layers[7]
    Linear(in_features=4096, out_features=100, bias=True)
    """

    def __init__(
        self,
        layout: EncodedLayout,
        n_classes: int,
        shape: Sequence[int] = (),
        channels: Sequence[int] = (32, 64),
        hidden: int = 100,
        second_kernel: int = 1,
        initialization: str = "torch",
    ) -> None:
        """Build the layers.

        Args:
            layout: flat image of width ``c * h * w``.
            n_classes: logits.
            shape: channels, height and width of the image; there is no default.
            channels: of the first and of the second convolution.
            hidden: width of the hidden linear layer.
            second_kernel: side of the second convolution's kernel: 1 as printed, 3 as in the paper's code.
            initialization: ``torch``: PyTorch's own, weights and biases even within ``1 / sqrt(fan-in)``; ``flax``, as
                in the paper's code: normal weights of variance ``1 / fan-in``, three times as much, cut at two
                deviations, and no biases.

        Raises:
            UsageError: an option outside its domain, a shape that is not that of the flat rows, or an image of which
                the poolings leave nothing.
        """
        super().__init__()
        size = options.widths("shape", shape)
        if len(size) != 3 or prod(size) != layout.width:
            raise UsageError(
                f"shape must be [channels, height, width] of {layout.width} pixels (encoded width), got {list(shape)}"
            )
        widths = options.widths("channels", channels)
        if len(widths) != 2:
            raise UsageError(f"channels must be two, one per convolution, got {list(channels)}")
        if second_kernel not in (1, 3):
            raise UsageError(f"second_kernel must be 1 or 3, got {second_kernel!r}")
        halves = [side // 2 for side in size[1:]]
        height, width = ((half + 3 - second_kernel) // 2 for half in halves)
        if min(*halves, height, width) < 1:
            raise UsageError(f"shape must have a height and a width that two poolings can halve, got {list(shape)}")
        self.image_shape = size
        self.layers = nn.Sequential(
            nn.Conv2d(size[0], widths[0], kernel_size=3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(widths[0], widths[1], kernel_size=second_kernel, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(widths[1] * height * width, options.count("hidden", hidden)),
            nn.ReLU(),
            nn.Linear(hidden, options.count("n_classes", n_classes, 2)),
        )
        if options.choice("initialization", initialization, INITIALIZATIONS) == "flax":
            for parameter in self.layers.parameters():
                _initialize_as_flax(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, c * h * w]`` to logits ``[n, n_classes]``."""
        logits: Tensor = self.layers(x.unflatten(-1, self.image_shape))
        return logits


def _initialize_as_flax(parameter: nn.Parameter) -> None:
    if parameter.ndim == 1:
        nn.init.zeros_(parameter)
    else:
        deviation = parameter[0].numel() ** -0.5 / _CUT_DEVIATION
        nn.init.trunc_normal_(parameter, std=deviation, a=-2 * deviation, b=2 * deviation)
