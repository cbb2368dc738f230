"""Layers of another class that compute what a linear layer computes, with scaled weights.

Networks in NTK parametrization, RealMLP among them, divide a layer's weights by the root of its inputs in every
forward. Such a layer is found by what it computes, not by its name: for any weights and biases its output is
``a W x + c b`` with two constants. It is replaced by an ``nn.Linear`` of weight ``a W`` and bias ``c b``, which tests
rows as any other. Its gradient is the observed one divided by ``a`` and ``c``.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lightleak.core.seeds import generator
from lightleak.targets.functional import functional_call

PROBES = 4
"""Inputs on which a layer is tried with each pair of weights and biases."""

SIZES = (1e-3, 1.0, 1e3, 1e6)
"""Of these inputs and biases: a layer that clips, or rounds, is not linear at all of them."""

SAME = 1e-9
"""Relative difference in float64 below which two computations are the same."""

PARAMETERS = {"weight": 2, "bias": 1}
"""Names and dimensions of such a layer's parameters."""


@dataclass(frozen=True)
class LinearForm:
    """A layer that computes ``weight W x + bias b``.

    Attributes:
        weight: constant that multiplies its weights; not 0.
        bias: constant that multiplies its biases; not 0.
        transposed: weights are ``[in, out]``.
    """

    weight: float
    bias: float
    transposed: bool

    @property
    def is_plain(self) -> bool:
        """Whether both constants are 1."""
        return max(abs(self.weight - 1), abs(self.bias - 1)) <= SAME

    def linear(self, layer: nn.Module) -> nn.Linear:
        """Return the linear layer that computes the same."""
        weight, bias = self._oriented(layer.get_parameter("weight")), layer.get_parameter("bias")
        made = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device, dtype=weight.dtype)
        made.weight.data, made.bias.data = self.weight * weight.detach(), self.bias * bias.detach()
        return made

    def to_linear(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Convert gradients by the layer's parameters to those by the linear layer's."""
        return self._oriented(weight) / self.weight, bias / self.bias

    def from_linear(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Convert gradients by the linear layer's parameters to those by the layer's."""
        return self._oriented(weight) * self.weight, bias * self.bias

    def _oriented(self, weight: Tensor) -> Tensor:
        return weight.T if self.transposed else weight


Forms = Mapping[str, LinearForm]


def with_linear_layers(module: nn.Module) -> dict[str, LinearForm]:
    """Replace, in place, every layer that is linear with scaled weights.

    Args:
        module: in the client's mode, with its weights. Where a layer is replaced, all are converted to float64.

    Returns:
        Forms of the replaced layers by name.
    """
    found = {name: form for name, layer in module.named_modules() if (form := linear_form(layer)) is not None}
    if found:
        module.double()
    for name, form in found.items():
        module.set_submodule(name, form.linear(module.get_submodule(name)))
    return found


def linear_form(layer: nn.Module) -> LinearForm | None:
    """Return how a layer is linear; None for ``nn.Linear`` itself and for everything else.

    >>> class Halved(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x) / 2
    >>> form = linear_form(Halved(3, 2))
    >>> round(form.weight, 12), round(form.bias, 12), form.transposed
    (0.5, 0.5, False)
    """
    own = {name: parameter.dim() for name, parameter in layer.named_parameters(recurse=False)}
    if type(layer) is nn.Linear or own != PARAMETERS or any(True for _ in layer.children()):
        return None
    tried = copy.deepcopy(layer).double().requires_grad_(False)
    for transposed in (False, True):
        if (found := _form(tried, transposed)) is not None:
            return None if isinstance(layer, nn.Linear) and found.is_plain else found
    return None


def to_linear(gradients: Mapping[str, Tensor], forms: Forms) -> Mapping[str, Tensor]:
    """Convert the gradients by the parameters of replaced layers; see `LinearForm.to_linear`."""
    return _converted(gradients, forms, lambda form: form.to_linear)


def from_linear(gradients: Mapping[str, Tensor], forms: Forms) -> Mapping[str, Tensor]:
    """Invert `to_linear`."""
    return _converted(gradients, forms, lambda form: form.from_linear)


def _converted(
    gradients: Mapping[str, Tensor], forms: Forms, how: Callable[[LinearForm], Callable[..., tuple[Tensor, Tensor]]]
) -> Mapping[str, Tensor]:
    converted = dict(gradients)
    for name, form in forms.items():
        keys = f"{name}.weight", f"{name}.bias"
        if all(key in gradients for key in keys):
            converted |= zip(keys, how(form)(*(gradients[key] for key in keys)), strict=True)
    return converted


def _form(layer: nn.Module, transposed: bool) -> LinearForm | None:
    """Return the form of a float64 layer whose weights lie that way."""
    weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
    draws = generator(0, "linear form")
    forms = []
    for size in SIZES:
        values = {
            "weight": torch.randn(weight.shape, generator=draws, dtype=weight.dtype).to(weight.device),
            "bias": size * torch.randn(bias.shape, generator=draws, dtype=bias.dtype).to(bias.device),
        }
        by_row = values["weight"] if transposed else values["weight"].T
        inputs = size * torch.randn(PROBES, len(by_row), generator=draws, dtype=weight.dtype).to(weight.device)
        parts = [inputs @ by_row, values["bias"].expand(PROBES, -1)]
        try:
            outputs = functional_call(layer, values, (inputs,))
        except Exception:  # a user's forward may raise anything
            return None
        if not isinstance(outputs, Tensor) or any(outputs.shape != part.shape for part in parts):
            return None
        design = torch.stack([part.flatten() for part in parts], 1)
        form = torch.linalg.pinv(design) @ outputs.flatten()
        if not bool((design @ form - outputs.flatten()).norm() <= SAME * outputs.norm()):
            return None
        forms.append(form)
    first = forms[0]
    if any(bool((form - first).norm() > SAME * first.norm()) for form in forms):
        return None
    if bool((first.abs() <= SAME * first.norm()).any()):
        return None  # a parameter that the output does not depend on
    of_weight, of_bias = torch.stack(forms).mean(0).tolist()
    return LinearForm(of_weight, of_bias, transposed)
