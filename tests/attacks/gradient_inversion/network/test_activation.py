"""Values, slopes and bends of activations."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.activation import Activation


@pytest.mark.parametrize(
    "function",
    [nn.GELU(), nn.GELU("tanh"), nn.Tanh(), nn.SiLU(), nn.ELU(), nn.LeakyReLU(0.1)],
    ids=["gelu", "gelu-tanh", "tanh", "silu", "elu", "leaky-relu"],
)
def test_derivatives_are_those_of_the_function(function: nn.Module) -> None:
    def differences(f: Callable[[Tensor], Tensor], a: Tensor) -> Tensor:
        return (f(a + 1e-6) - f(a - 1e-6)) / 2e-6

    a, activation = torch.linspace(-8, 8, 320, dtype=torch.float64), Activation(function)
    value, slope, bend = activation.derivatives(a)
    torch.testing.assert_close(value, function(a), rtol=0, atol=0)
    torch.testing.assert_close(slope, differences(function, a), rtol=0, atol=1e-8)
    assert bend is not None
    torch.testing.assert_close(bend, differences(lambda x: activation.value_and_slope(x)[1], a), rtol=0, atol=1e-8)
    torch.testing.assert_close(activation.value_and_slope(a)[1], slope)
