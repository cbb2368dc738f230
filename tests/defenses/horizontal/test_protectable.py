"""Networks that DP-SGD cannot protect are refused, with the layers named; those it can pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError
from lightleak.data.layout import Block, EncodedLayout
from lightleak.defenses.horizontal.protectable import check_protectable
from lightleak.targets import NETWORKS, NetworkSpec, build_network

pytest.importorskip("opacus", reason="the extra dp brings it")

LAYOUT = EncodedLayout((Block("age", 0, 1, False), Block("work", 1, 4, True), Block("hours", 4, 9, True)))
PROTECTED: dict[str, list[dict[str, Any]]] = {
    "linear": [{}],
    "mlp": [{}, {"norm": "layer", "dropout": 0.3}, {"activation": "gelu"}],
    "resnet_preact": [{"norm": "layer", "width": 8, "hidden_dropout": 0.2}],
    "image_cnn": [{"shape": [1, 3, 3], "channels": [2, 2], "hidden": 4}],
    "tabm": [{"k": 3, "n_blocks": 2, "d_block": 6}],
    "deeptab_mlp": [{"layer_sizes": [6, 5]}],
    "realmlp_like": [{"width": 6}],
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mlp": (
        {"norm": "batch"},
        r"norms.0 \(BatchNorm1d: BatchNorm cannot support .*\); norms.1 \(.*use 'linear', 'image_cnn'",
    ),
    "resnet": ({}, r"blocks.0.norm \(BatchNorm1d"),
    "resnet_preact": ({}, r"blocks.0.norm \(BatchNorm1d"),
    "cnn": ({}, r"norm \(BatchNorm1d"),
    "boosted_trees": ({}, "BoostedTrees: no gradient trains it"),
    "gandalf": ({"normalize_numerical": False}, "GANDALF: .*embedding"),
    "category_embedding": ({}, r"network.embedding.normalizing_batch_norm.bn \(BatchNorm1d"),
    "ft_transformer": ({}, r"network.embedding \(Embedding2dLayer: it trains weights"),
    "autoint": ({}, r"network.embedding \(Embedding2dLayer: .*network.backbone.self_attns.0 \(MultiheadAttention"),
    "danet": ({}, r"network.backbone.init_layer.conv1.bn.bn \(BatchNorm1d"),
    "tabnet": ({}, r"network.backbone.tabnet.tabnet.encoder.initial_bn \(BatchNorm1d"),
    **dict.fromkeys(
        ("frame_mlp", "frame_resnet", "frame_ft_transformer"),
        ({}, r"encoder_dict.numerical \(LinearEncoder: it trains weights and holds buffers"),
    ),
}


def network(name: str, options: dict[str, Any]) -> nn.Module:
    layout = EncodedLayout.of_numerical(9) if name == "image_cnn" else LAYOUT
    return build_network(NetworkSpec(name, 3, layout, options), seed=0)


@pytest.mark.parametrize(("name", "options"), [(name, options) for name in PROTECTED for options in PROTECTED[name]])
def test_networks_of_independent_rows_pass_and_stay_as_they_are(name: str, options: dict[str, Any]) -> None:
    built = network(name, options).eval()
    before, drawn = {key: value.clone() for key, value in built.state_dict().items()}, torch.get_rng_state()
    check_protectable(built, 9)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not any(module.training for module in built.modules())
    assert not any(module._forward_hooks or module._backward_hooks for module in built.modules())
    assert not any(hasattr(parameter, "grad_sample") for parameter in built.parameters())
    assert before.keys() == built.state_dict().keys()
    assert all(torch.equal(value, before[key]) for key, value in built.state_dict().items())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_networks_that_cannot_be_protected_are_refused_by_layer(name: str) -> None:
    options, message = REFUSED[name]
    with pytest.raises(UnsupportedError, match=f"dp_sgd cannot protect .*{message}"):
        check_protectable(network(name, options), 9)


def test_every_network_of_the_registry_is_decided_here() -> None:
    assert set(NETWORKS) - {"gandalf", "image_resnet"} <= {*PROTECTED, *REFUSED}


class UsesItsBatch(nn.Module):
    """Adds the mean of the batch to every row: no layer of it is suspicious."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x + x.mean(0))


class UsesItsWeightTwice(nn.Module):
    """Multiplies by a layer's weight beside calling the layer, which no hook sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + (x @ self.layer.weight.T).tanh()


class Remembers(nn.Module):
    """Keeps the last batch's mean in a buffer of a layer without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.Module()
        self.memory.register_buffer("mean", torch.zeros(9))
        self.layer = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            if not torch._C._are_functorch_transforms_active():
                self.memory.mean.copy_(x.mean(0))
        return self.layer(x)


class Buffered(nn.Linear):
    def __init__(self) -> None:
        super().__init__(9, 3)
        self.register_buffer("scale", torch.ones(()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (UsesItsBatch, "UsesItsBatch: opacus does not give the gradient of each row for layer.weight"),
        (UsesItsWeightTwice, "UsesItsWeightTwice: opacus does not give the gradient of each row for layer.weight; use"),
        (Remembers, "for memory.mean; use"),
        (Buffered, r"the network \(Buffered: it trains weights and holds buffers\)"),
        (lambda: nn.Sequential(nn.BatchNorm1d(9, affine=False), nn.Linear(9, 3)), r"0 \(BatchNorm1d"),
        (lambda: nn.Sequential(nn.Linear(9, 3)).requires_grad_(False), "no gradient trains it"),
    ],
)
def test_what_no_layer_tells_is_found_by_trying(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        check_protectable(make(), 9)
