"""One logit under binary cross-entropy is two classes: the same function, the same gradient."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from lightleak.core.errors import UnsupportedError
from lightleak.targets.single_logit import two_logit_gradient, two_logit_weights, with_two_logits


class Flat(nn.Module):
    """Returns ``[n]``; its last layer is not registered last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 1)
        self.body = nn.Sequential(nn.Linear(3, 5), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)).squeeze(-1)


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1, bias=False))


@pytest.mark.parametrize("make", [Flat, chain, lambda: nn.Linear(3, 1)])
def test_the_gradient_is_that_of_two_classes(make: Callable[[], nn.Module]) -> None:
    network, x, y = make().double(), torch.randn(7, 3, dtype=torch.double), torch.randint(2, (7,))
    binary_cross_entropy_with_logits(network(x).reshape(7), y.double()).backward()
    grown, layer = with_two_logits(network, 3)
    assert layer is not None
    cross_entropy(grown(x), y).backward()
    found = two_logit_gradient({name: p.grad for name, p in network.named_parameters()}, layer)
    weights = two_logit_weights(dict(network.named_parameters()), layer)
    for name, parameter in grown.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
        assert torch.equal(weights[name], parameter)


def test_two_logits_stay_as_they_are() -> None:
    network = nn.Linear(3, 2)
    assert with_two_logits(network, 3) == (network, None)
    assert with_two_logits(network, 4) == (network, None)  # what it refuses is for others to report


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()),
        nn.Sequential(nn.Linear(3, 4), nn.AvgPool1d(4)),
        nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 4), nn.AvgPool1d(4)),
    ],
)
def test_another_way_to_one_number_is_refused(network: nn.Module) -> None:
    with pytest.raises(UnsupportedError, match="must be the output of a final nn"):
        with_two_logits(network, 3)
