"""What stands between the linear layers of a chain, element by element: its value, its slope, and its bend."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Activation:
    """ReLU, or a smooth function.

    Attributes:
        smooth: the function; None: ReLU.
    """

    smooth: Callable[[Tensor], Tensor] | None = None

    def value_and_slope(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Values and first derivatives; ReLU's are its masks.

        >>> value, slope = RELU.value_and_slope(torch.tensor([-1.0, 2.0]))
        >>> value.tolist(), slope.tolist()
        ([0.0, 2.0], [0.0, 1.0])
        """
        if self.smooth is None:
            return a.relu(), (a > 0).to(a.dtype)
        value, slope, _ = _derivatives(self.smooth, a, bend=False)
        return value, slope

    def bend(self, a: Tensor) -> Tensor | None:
        """Second derivatives; None for ReLU, whose are zero but at the kink."""
        return None if self.smooth is None else _derivatives(self.smooth, a, bend=True)[2]

    def derivatives(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """All three."""
        return (*self.value_and_slope(a), None) if self.smooth is None else _derivatives(self.smooth, a, bend=True)


def _derivatives(function: Callable[[Tensor], Tensor], a: Tensor, bend: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value, slope and, if asked for, bend; GELU's in closed form, in a third of the time."""
    if isinstance(function, nn.GELU) and function.approximate == "none":
        density = (a.square() / -2).exp_().div_(math.sqrt(2 * math.pi))
        slope = torch.erf(a / math.sqrt(2)).add_(1).div_(2).addcmul_(a, density)
        return function(a), slope, density * (2 - a.square()) if bend else None
    with torch.enable_grad():
        a = a.detach().requires_grad_()
        value = function(a)
        (slope,) = torch.autograd.grad(value.sum(), a, create_graph=bend)
        second = torch.autograd.grad(slope.sum(), a)[0] if bend else None
    return value.detach(), slope.detach(), second


RELU = Activation()
