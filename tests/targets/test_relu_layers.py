"""Which modules are plain ReLU chains: by what they compute, however they are written."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lightleak.attacks.gradient_inversion.network.client import relu_chain
from lightleak.data.layout import EncodedLayout
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.own import reads_copies
from lightleak.targets.relu_layers import chain_obstacle, relu_layers, smooth_layers


class Written(nn.Module):
    """A chain in three ways of writing ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 7)
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.head(self.third(x).relu())


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)) + x)


class Branches(Skips):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x))) if x.sum() > 0 else self.second(x)


class Twice(Skips):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(torch.relu(self.first(x)))))


class Unused(Skips):
    def forward(self, x: Tensor) -> Tensor:
        return self.first(x)


def linear(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), *layers, nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("network", "layers"),
    [
        (Written(), ["first", "second", "third", "head.1"]),
        (nn.Sequential(nn.Linear(4, 2)), ["0"]),
        (linear(nn.ReLU(inplace=True)), ["0", "2"]),
        (nn.Sequential(nn.Flatten(), linear(nn.ReLU())), ["1.0", "1.2"]),
        (linear(nn.Tanh()), None),
        (linear(), None),
        (linear(nn.LayerNorm(4), nn.ReLU()), None),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), None),
        (linear(nn.ReLU(), nn.Linear(4, 4, bias=False), nn.ReLU()), None),
        (nn.Sequential(linear(nn.ReLU()), nn.ReLU()), None),
        (Skips(), None),
        (Branches(), None),
        (Twice(), None),
        (Unused(), None),
    ],
)
def test_chains_are_told_by_what_they_compute(network: nn.Module, layers: list[str] | None) -> None:
    assert relu_layers(network) == layers


@pytest.mark.parametrize("name", ["", "0", "1"])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_keep_a_network_from_being_a_chain(name: str, kind: str) -> None:
    network = reads_copies(linear(nn.ReLU()))
    assert relu_layers(network) == ["0", "2"]
    getattr(network.get_submodule(name), kind)(lambda *called: None)
    assert relu_layers(network) is None and "has a forward hook" in str(chain_obstacle(network))


@pytest.mark.parametrize("activation", [nn.ELU, nn.SiLU, nn.Mish])
def test_the_activation_of_a_chain_leaves_its_argument_alone(activation: type[nn.Module]) -> None:
    network = linear(activation(inplace=True), nn.Linear(4, 4), activation())
    found = smooth_layers(network)
    assert found is not None and found[0] == ["0", "2", "4"]
    a = torch.linspace(-1, 1, 5, requires_grad=True)
    assert torch.equal(found[1](a), activation()(a)) and network[1].inplace


def test_a_chain_computes_what_its_layers_do() -> None:
    network = Written().eval()
    x = rows = torch.randn(5, 4)
    for name in (layers := relu_layers(network) or []):
        x = network.get_submodule(name)(x)
        x = x.relu() if name != layers[-1] else x
    assert torch.equal(x, network(rows))


@pytest.mark.parametrize(("name", "layers"), [("mlp", 3), ("linear", 1), ("cnn", 0), ("resnet", 0)])
def test_networks_of_the_registry_are_judged_as_before(name: str, layers: int) -> None:
    network = build_network(NetworkSpec(name, 2, EncodedLayout.of_numerical(9)), seed=0)
    assert (relu_chain(network) or []) == [f"linears.{i}" for i in range(layers)]
