"""The functional loss and gradient against closed forms."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lightleak.core.errors import UsageError
from lightleak.targets.functional import criterion, functional_call, gradients


def test_unknown_criterion_is_named() -> None:
    with pytest.raises(UsageError, match=r"unknown criterion 'mse'.*known: cross_entropy"):
        criterion("mse")


@given(n=st.integers(1, 6), d=st.integers(1, 5), classes=st.integers(2, 4), seed=st.integers(0, 2**16))
def test_linear_gradient_is_the_outer_product(n: int, d: int, classes: int, seed: int) -> None:
    """``dL/dW = mean (p - y) x^T`` and ``dL/db = mean (p - y)``."""
    torch.manual_seed(seed)
    layer = nn.Linear(d, classes).double()
    inputs, labels = torch.randn(n, d, dtype=torch.float64), torch.randint(0, classes, (n,))
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    gradient = gradients(layer, parameters, {}, inputs, labels)
    residual = (torch.softmax(layer(inputs), 1) - F.one_hot(labels, classes)) / n
    torch.testing.assert_close(gradient, {"weight": residual.T @ inputs, "bias": residual.sum(0)})


def test_pytorchs_own_batch_norm_is_served_and_left_alone() -> None:
    """Its update of running statistics in place would be refused inside ``grad``."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    before = copy.deepcopy(network.state_dict())
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    inputs, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    gradient = gradients(network, parameters, dict(network.named_buffers()), inputs, labels)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    F.cross_entropy(network(inputs), labels).backward()
    torch.testing.assert_close(gradient, {name: value.grad for name, value in network.named_parameters()})


def test_probabilities_serve_as_labels() -> None:
    layer = nn.Linear(3, 2)
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    inputs, labels = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    hard = gradients(layer, parameters, {}, inputs, labels)
    soft = gradients(layer, parameters, {}, inputs, F.one_hot(labels, 2).float())
    torch.testing.assert_close(hard, soft)


class Tied(nn.Module):
    """One layer under two names, and one weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.again, self.other = self.one, nn.Linear(3, 3)
        self.other.weight = self.one.weight
        self.norm = nn.BatchNorm1d(3)
        self.norms = nn.ModuleList([self.norm])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.norms[0](self.again(torch.tanh(self.norm(self.one(x))))))


@pytest.mark.parametrize("by_state", [False, True])
def test_a_layer_of_two_names_keeps_its_weights(by_state: bool) -> None:
    torch.manual_seed(0)
    network, expected = Tied().double().eval(), Tied().double().eval()
    given = expected.state_dict() if by_state else dict(expected.named_parameters())
    held = dict(network.state_dict(keep_vars=True))
    before = copy.deepcopy(network.state_dict())
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(functional_call(network, given, (x,)), expected(x))
    assert all(value is held[name] for name, value in network.state_dict(keep_vars=True).items())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    gradient = gradients(network, parameters, {}, x, torch.tensor([0, 1, 2, 0]))
    F.cross_entropy(network(x), torch.tensor([0, 1, 2, 0])).backward()
    torch.testing.assert_close(gradient, {name: value.grad for name, value in network.named_parameters()})
