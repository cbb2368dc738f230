"""One forward and backward, by plain autograd."""

import pytest
import torch
from torch import nn

from lightleak.protocols.local_pass import in_mode, local_pass
from lightleak.targets.functional import gradients


class Counting(nn.Module):
    """Writes into a buffer in every forward, as no network of ours does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.unused = nn.Parameter(torch.ones(4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, 3), torch.randint(2, (6,))


def test_gradient_is_that_of_the_functional_reference(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    parameters = {name: torch.randn_like(value) for name, value in network.named_parameters()}
    found = local_pass(network, parameters, {}, *batch).gradient
    for name, expected in gradients(network, parameters, {}, *batch).items():
        torch.testing.assert_close(found[name], expected)


def test_nothing_given_is_changed_and_unused_parameters_have_no_gradient(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    network = Counting()
    buffers = {"calls": torch.zeros(())}
    with torch.no_grad():  # the caller's setting must not stop the backward
        done = local_pass(network, dict(network.named_parameters()), buffers, *batch)
    assert buffers["calls"] == 0
    assert network.calls == 0
    assert network.linear.weight.grad is None
    assert torch.equal(done.gradient["unused"], torch.zeros(4))
    assert done.gradient["linear.weight"].abs().sum() > 0


@pytest.mark.parametrize(("divisor", "loss_scale"), [(4, 1.0), (1, 1024.0), (3, 8.0)])
def test_the_backward_is_divided_and_scaled_but_not_the_loss(
    batch: tuple[torch.Tensor, torch.Tensor], divisor: int, loss_scale: float
) -> None:
    network = nn.Linear(3, 2)
    parameters = dict(network.named_parameters())
    plain = local_pass(network, parameters, {}, *batch)
    changed = local_pass(network, parameters, {}, *batch, divisor=divisor, loss_scale=loss_scale)
    assert changed.loss == plain.loss
    for name, gradient in plain.gradient.items():
        torch.testing.assert_close(changed.gradient[name], gradient * loss_scale / divisor)


def test_autocast_computes_in_half_precision(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    network = nn.Linear(3, 2)
    parameters = dict(network.named_parameters())
    full, half = (local_pass(network, parameters, {}, *batch, autocast=a).gradient for a in ("none", "bfloat16"))
    assert not torch.equal(full["weight"], half["weight"])
    torch.testing.assert_close(full["weight"], half["weight"], rtol=0.05, atol=0.02)
    assert half["weight"].dtype == torch.float32


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_lent_and_given_back(training: bool) -> None:
    network = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2), nn.Dropout())
    network[1].eval()
    with in_mode(network, training):
        assert all(module.training is training for module in network.modules())
    assert [module.training for module in network.modules()] == [True, True, False, True]
