"""Which networks the closed form serves, and how their parameters become its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.fedavg.simulate.chain_step import ChainStep, LinearMap
from lightleak.attacks.gradient_inversion.fedavg.simulate.image_maps import ImageMap
from lightleak.attacks.gradient_inversion.network.client import relu_chain
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.targets.image_cnn import ImageCNN


@dataclass(frozen=True)
class Chain:
    """A network as linear layers with ReLUs between them.

    Attributes:
        names: parameter names, weight and bias of every layer, first layer first.
        maps: what lies before each layer.
        floats_per_row: values of one row in all layers' inputs and outputs.
    """

    names: tuple[str, ...]
    maps: tuple[LinearMap | None, ...]
    floats_per_row: int

    def step(self, straight_through: StraightThrough | None = None) -> ChainStep:
        """Its local step."""
        return ChainStep(self.maps, straight_through)

    def weights(self, named: Mapping[str, Tensor]) -> list[Tensor]:
        """Stacked parameters ``[updates, ...]`` in the order and shape of the chain; kernels are flattened."""
        return [tensor.flatten(2) if tensor.dim() > 3 else tensor for tensor in (named[name] for name in self.names)]


def chain_of(network: nn.Module) -> Chain | None:
    """The chain that a network is, or None where it is none."""
    linears = relu_chain(network)
    if linears is not None:
        shapes = dict(network.named_parameters())
        floats = sum(sum(shapes[f"{name}.weight"].shape) for name in linears)
        return Chain(_names(linears), (None,) * len(linears), floats)
    return _image_chain(network) if isinstance(network, ImageCNN) else None


def _image_chain(network: ImageCNN) -> Chain:
    """Walk the layers: poolings and flattening are gathered until a layer with weights takes their result."""
    names: list[str] = []
    maps: list[LinearMap | None] = []
    floats, pool, flat = 0, 1, True
    shape: tuple[int, int, int] | None = network.image_shape
    for index, layer in enumerate(network.layers):
        if isinstance(layer, nn.AvgPool2d):
            pool = layer.kernel_size if isinstance(layer.kernel_size, int) else layer.kernel_size[0]
        elif isinstance(layer, nn.Conv2d) and shape is not None:
            kernel, padding = layer.kernel_size[0], int(layer.padding[0])
            image = ImageMap(shape, pool, kernel, padding, flat)
            sides = [side + 2 * padding - kernel + 1 for side in image.pooled[1:]]
            floats += prod(sides) * (image.pooled[0] * kernel**2 + layer.out_channels)
            shape, pool, flat = (layer.out_channels, sides[0], sides[1]), 1, False
            names.append(f"layers.{index}")
            maps.append(image)
        elif isinstance(layer, nn.Linear):
            # Behind the first linear layer values are flat already.
            maps.append(ImageMap(shape, pool) if shape else None)
            floats += layer.in_features + layer.out_features
            shape, pool = None, 1
            names.append(f"layers.{index}")
    return Chain(_names(names), tuple(maps), floats)


def _names(layers: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{layer}.{part}" for layer in layers for part in ("weight", "bias"))
