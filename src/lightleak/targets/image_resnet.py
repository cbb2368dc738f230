"""Residual networks for images (He et al. 2016), as deep and wide as one likes: thesis Sec. 4.5.1."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.registry import Registry
from lightleak.core.seeds import fresh_generator
from lightleak.targets import options

EXPANSION = 4  # channels that a bottleneck gives for each it works with


@dataclass(frozen=True)
class Depth:
    """Blocks of each stage; every stage after the first halves height and width.

    Attributes:
        blocks: per stage.
        channels: of the first stage; every later one doubles them.
        bottleneck: blocks of three convolutions, 1x1, 3x3 and 1x1, in place of two of 3x3.
    """

    blocks: tuple[int, ...]
    channels: int
    bottleneck: bool = False


DEPTHS: Registry[Depth] = Registry("residual network")
"""Networks by the number of their layers. The small ones suit images of 8 x 8; the others are the thesis's."""

for _name, _depth in {
    "resnet-6": Depth((1, 1), 16),
    "resnet-10": Depth((2, 2), 16),
    "resnet-14": Depth((3, 3), 16),
    "resnet-18": Depth((2, 2, 2, 2), 64),
    "resnet-50": Depth((3, 4, 6, 3), 64, bottleneck=True),
    "resnet-152": Depth((3, 8, 36, 3), 64, bottleneck=True),
}.items():
    DEPTHS.register(_name)(_depth)


class Block(nn.Module):
    """``ReLU(convolutions(x) + x)``; where the shape changes, ``x`` passes through a 1x1 convolution."""

    def __init__(self, n_in: int, n_out: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        inner = n_out // EXPANSION if bottleneck else n_out
        # Kernel, channels and stride of each convolution; a bottleneck halves the image in the middle one.
        steps = (
            [(1, inner, 1), (3, inner, stride), (1, n_out, 1)] if bottleneck else [(3, n_out, stride), (3, n_out, 1)]
        )
        layers: list[nn.Module] = []
        width = n_in
        for kernel, channels, step in steps:
            layers += [_convolution(width, channels, kernel, step), nn.BatchNorm2d(channels), nn.ReLU()]
            width = channels
        self.residual = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(_convolution(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """``[n, n_in, h, w]`` to ``[n, n_out, h / stride, w / stride]``."""
        return F.relu(self.residual(x) + self.shortcut(x))


class ImageResNet(nn.Module):
    """A residual network ``[n, c, h, w] -> [n, n_classes]``.

    The first layer is a 3x3 convolution at full resolution, as He et al. have it for small images (their Sec. 4.2);
    theirs for ImageNet would leave 2 x 2 of 8 x 8 pixels.

    >>> import torch
    >>> ImageResNet(1, 5, blocks=(1, 1), channels=16)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        in_channels: int,
        n_classes: int,
        blocks: Sequence[int] = (2, 2, 2, 2),
        channels: int = 64,
        bottleneck: bool = False,
    ) -> None:
        """Build the layers.

        Args:
            in_channels: colors of an image.
            n_classes: logits.
            blocks: see `Depth`.
            channels: see `Depth`.
            bottleneck: see `Depth`.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        stages = options.widths("blocks", blocks)
        if not stages:
            raise UsageError(f"blocks must name at least one stage, such as [1, 1], got {blocks!r}")
        width = options.count("channels", channels)
        layers: list[nn.Module] = [
            _convolution(options.count("in_channels", in_channels), width, 3, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        for stage, n_blocks in enumerate(stages):
            n_out = channels * 2**stage * (EXPANSION if bottleneck else 1)
            for index in range(n_blocks):
                layers.append(Block(width, n_out, 2 if stage and not index else 1, bottleneck))
                width = n_out
        self.body = nn.Sequential(*layers)
        self.output = nn.Linear(width, options.count("n_classes", n_classes, 2))

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees: ``[n, c, h, w]`` to ``[n, f]``, the mean over all positions."""
        found: Tensor = self.body(x).mean((2, 3))
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``[n, n_classes]``."""
        logits: Tensor = self.output(self.features(x))
        return logits


def build_resnet(name: str, in_channels: int, n_classes: int, seed: int) -> ImageResNet:
    """A network of `DEPTHS` whose initial weights depend on nothing but ``seed``.

    Raises:
        UsageError: an unknown name.
    """
    depth = DEPTHS.get(name)
    with fresh_generator(seed):
        return ImageResNet(in_channels, n_classes, depth.blocks, depth.channels, depth.bottleneck)


def _convolution(n_in: int, n_out: int, kernel: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
