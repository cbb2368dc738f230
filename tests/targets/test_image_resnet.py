"""Residual networks for images: the architecture of the literature, and features before the last layer."""

import pytest
import torch
from torch import nn

from lightleak.core.errors import UsageError
from lightleak.targets.image_resnet import DEPTHS, ImageResNet, build_resnet


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights as they lie in memory: drawing the 60 million of the largest network is not what is tested."""
    for kind in (nn.Conv2d, nn.Linear, nn.BatchNorm2d):
        monkeypatch.setattr(kind, "reset_parameters", lambda self: None)
    monkeypatch.setattr(nn.init, "kaiming_normal_", lambda weight, **_: weight)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet-18", 11_689_512), ("resnet-50", 25_557_032), ("resnet-152", 60_192_808)],
)
def test_parameters_are_those_of_torchvision_but_for_the_first_layer(name: str, parameters: int) -> None:
    # Counts of torchvision's models with 1,000 classes, as its documentation gives them.
    depth = DEPTHS.get(name)
    network = ImageResNet(3, 1000, depth.blocks, depth.channels, depth.bottleneck)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == parameters - 64 * 3 * 49 + 64 * 3 * 9  # 7x7 there, 3x3 here


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("name", list(DEPTHS))
def test_the_name_counts_the_layers(name: str) -> None:
    depth = DEPTHS.get(name)
    network = ImageResNet(3, 2, depth.blocks, depth.channels, depth.bottleneck)
    layers = [
        module
        for place, module in network.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and "shortcut" not in place
    ]
    assert name == f"resnet-{len(layers)}"


def test_logits_are_the_last_layer_of_the_features() -> None:
    network = build_resnet("resnet-6", 1, 5, seed=0).eval()
    x = torch.randn(3, 1, 8, 8)
    features = network.features(x)
    assert features.shape == (3, 32)
    assert torch.equal(network(x), network.output(features))


def test_every_stage_after_the_first_halves_the_image() -> None:
    network = ImageResNet(1, 2, blocks=(1, 1, 1), channels=4)
    assert network.body(torch.zeros(2, 1, 8, 12)).shape == (2, 16, 2, 3)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_block_whose_convolutions_give_nothing_passes_its_input_on(bottleneck: bool) -> None:
    network = ImageResNet(1, 2, blocks=(2,), channels=4, bottleneck=bottleneck).eval()
    block = network.body[-1]
    with torch.no_grad():
        block.residual[-1].weight.zero_()  # type: ignore[union-attr]
    x = torch.rand(2, 16 if bottleneck else 4, 4, 4)
    assert torch.equal(block(x), x)


def test_weights_depend_on_the_seed_alone() -> None:
    first = build_resnet("resnet-6", 1, 5, seed=0)
    state = torch.get_rng_state()
    again, other = build_resnet("resnet-6", 1, 5, seed=0), build_resnet("resnet-6", 1, 5, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.output.weight, again.output.weight)
    assert not torch.equal(first.output.weight, other.output.weight)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"blocks": ()}, "at least one stage"), ({"blocks": (0,)}, "at least 1"), ({"channels": 0}, "channels")],
)
def test_options_out_of_range_are_named(changed: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ImageResNet(1, 2, **changed)  # type: ignore[arg-type]


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(UsageError, match="resnet-18"):
        build_resnet("resnet-17", 1, 2, seed=0)
