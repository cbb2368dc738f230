"""The FedAvg paper's networks: their sizes, and their layers as sums over windows."""

import pytest
import torch
from torch import Tensor

from lightleak.data.layout import EncodedLayout
from lightleak.targets.spec import NetworkSpec, build_network


@pytest.mark.parametrize(
    ("shape", "second_kernel", "channels", "features"),
    [
        ([1, 28, 28], 1, [32, 64], 4096),
        ([3, 32, 32], 1, [32, 64], 5184),  # Table 5a
        ([3, 32, 32], 1, [64, 128], 10368),  # Table 5b
        ([1, 28, 28], 3, [32, 64], 3136),  # flax of the published code
        ([3, 32, 32], 3, [64, 128], 8192),  # flax of the published code
        ([1, 8, 8], 1, [32, 64], 576),
        ([1, 8, 8], 3, [32, 64], 256),
        ([1, 7, 9], 3, [2, 3], 6),
    ],
)
def test_sizes(shape: list[int], second_kernel: int, channels: list[int], features: int) -> None:
    pixels = shape[0] * shape[1] * shape[2]
    options = {"shape": shape, "second_kernel": second_kernel, "channels": channels}
    network = build_network(NetworkSpec("image_cnn", 5, EncodedLayout.of_numerical(pixels), options), seed=0)
    assert network.layers[7].in_features == features
    assert network(torch.zeros(2, pixels)).shape == (2, 5)


def window_sums(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """A convolution with a border of one zero, one position at a time."""
    side = kernel.shape[-1]
    n, _, height, width = x.shape
    padded = torch.zeros(n, x.shape[1], height + 2, width + 2, dtype=x.dtype)
    padded[:, :, 1:-1, 1:-1] = x
    out = torch.empty(n, len(kernel), height + 3 - side, width + 3 - side, dtype=x.dtype)
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            window = padded[:, :, i : i + side, j : j + side]
            out[:, :, i, j] = torch.einsum("nchw,ochw->no", window, kernel) + bias
    return out


def halved(x: Tensor) -> Tensor:
    """The mean of every two by two positions; an odd last row or column is left out."""
    height, width = x.shape[2] // 2, x.shape[3] // 2
    x = x[:, :, : 2 * height, : 2 * width]
    return (x[:, :, ::2, ::2] + x[:, :, 1::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, 1::2]) / 4


@pytest.mark.parametrize("second_kernel", [1, 3])
def test_layers_are_sums_over_windows_of_the_unflattened_image(second_kernel: int) -> None:
    options = {"shape": [2, 5, 7], "second_kernel": second_kernel, "channels": [3, 4], "hidden": 6}
    network = build_network(NetworkSpec("image_cnn", 3, EncodedLayout.of_numerical(70), options), seed=0).double()
    images = torch.randn(4, 2, 5, 7, dtype=torch.float64)
    first, second, hidden, last = (network.layers[index] for index in (0, 3, 7, 9))
    x = halved(window_sums(images, first.weight, first.bias).relu())
    x = halved(window_sums(x, second.weight, second.bias).relu())
    x = x.reshape(4, -1) @ hidden.weight.T + hidden.bias
    torch.testing.assert_close(network(images.reshape(4, -1)), x.relu() @ last.weight.T + last.bias)


@pytest.mark.parametrize(("name", "variance"), [("torch", 1 / 3), ("flax", 1.0)])
def test_untrained_weights_have_the_variance_of_their_framework(name: str, variance: float) -> None:
    """PyTorch: even within 1 / sqrt(fan-in), biases too; flax's lecun_normal: a normal cut at two deviations."""
    options = {"shape": [4, 16, 16], "channels": [64, 64], "hidden": 128, "second_kernel": 3, "initialization": name}
    network = build_network(NetworkSpec("image_cnn", 64, EncodedLayout.of_numerical(1024), options), seed=0)
    for index in (0, 3, 7, 9):
        layer = network.layers[index]
        scaled = layer.weight.detach().flatten() * layer.weight[0].numel() ** 0.5
        assert scaled.square().mean().item() == pytest.approx(variance, rel=0.1)
        assert scaled.abs().max().item() == pytest.approx(1.0 if name == "torch" else 2 / 0.8796, rel=0.01)
        assert bool(layer.bias.any()) == (name == "torch")
    share = (scaled.abs() < 1).double().mean().item()  # normal: erf(0.8796 / sqrt(2)) / erf(2 / sqrt(2)) = 0.650
    assert share == pytest.approx(1.0 if name == "torch" else 0.650, abs=0.02)
