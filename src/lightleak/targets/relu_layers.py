"""Detect modules that consist of linear layers with ReLU in between, from their computation instead of their class.

Likewise with one smooth activation in ReLU's place.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from lightleak.targets.own import copied_rows

PASSED = (nn.Dropout, nn.Identity, nn.Flatten)
"""Layers that leave rows ``[n, d]`` unchanged; dropout, because an attack cannot know its masks and leaves it out."""

SMOOTH = (nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid, nn.ELU, nn.Softplus, nn.Mish)
"""Activations whose slope has no jump, element by element."""

_RELUS = (functional.relu, torch.relu, torch.relu_)
_SMOOTH_CALLS = (
    functional.gelu, functional.tanh, functional.silu, functional.sigmoid, functional.elu, functional.softplus,
    functional.mish, torch.tanh, torch.sigmoid,
)  # fmt: skip
_SMOOTH_METHODS = ("tanh", "sigmoid")


@dataclass(frozen=True)
class _Activation:
    """What stands between two linear layers.

    Attributes:
        name: equal for equal functions.
        function: element by element.
    """

    name: str
    function: Callable[[Tensor], Tensor]


class _Tracer(fx.Tracer):
    """Takes our normalization layers whole, as PyTorch's own."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return type(module).__module__.startswith("lightleak.") or super().is_leaf_module(module, name)


class _Otherwise(Exception):
    """The module computes something else; the message names the first layer that does."""


def relu_layers(network: nn.Module) -> list[str] | None:
    """Names of the linear layers of a plain ReLU chain, first layer first, or None where the module computes otherwise.

    Every linear layer must have a bias and be used once, ReLU must follow each but the last, and no parameter may be
    outside of them. The computation is traced symbolically (``torch.fx``); what cannot be traced counts as otherwise.

    >>> relu_layers(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    ['0', '2']
    >>> relu_layers(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    """
    try:
        return _chain(network, _is_relu)[0]
    except _Otherwise:
        return None


def smooth_layers(network: nn.Module) -> tuple[list[str], Callable[[Tensor], Tensor]] | None:
    """The same of a chain with one smooth activation (`SMOOTH`) in ReLU's place, and that activation.

    >>> smooth_layers(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    (['0', '2'], Tanh())
    """
    try:
        layers, activations = _chain(network, _is_smooth)
    except _Otherwise:
        return None
    one = {activation.name for activation in activations}
    return (layers, activations[0].function) if len(one) == 1 else None


def chain_obstacle(network: nn.Module) -> str | None:
    """Name the first layer that keeps a module from being a plain ReLU chain, or return None for a chain.

    >>> chain_obstacle(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)))
    "layer '1' is GELU"
    >>> chain_obstacle(nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2)))
    "layer '0' is a Linear layer without bias"
    """
    try:
        _chain(network, _is_relu)
    except _Otherwise as found:
        return str(found)
    return None


_Kind = Callable[[object], bool]
"""Whether a module, or what a graph calls, is an activation that may stand in the chain."""


def _is_relu(called: object) -> bool:
    return type(called) is nn.ReLU or called in (*_RELUS, "relu", "relu_")


def _is_smooth(called: object) -> bool:
    return type(called) in SMOOTH or called in (*_SMOOTH_CALLS, *_SMOOTH_METHODS)


def _chain(network: nn.Module, kind: _Kind) -> tuple[list[str], list[_Activation]]:
    layers: list[str] = []
    activations: list[_Activation] = []
    after_linear = False
    for step in _straight(network, kind):
        if isinstance(step, _Activation):
            if not layers:
                raise _Otherwise(f"{step.name} comes before the first Linear layer")
            activations.append(step)
            after_linear = False
        elif after_linear:
            raise _Otherwise(f"no ReLU stands between layers {layers[-1]!r} and {step!r}")
        elif step in layers:
            raise _Otherwise(f"layer {step!r} is used twice")
        else:
            layers.append(step)
            after_linear = True
    if not after_linear:
        raise _Otherwise("no Linear layer comes last")
    chained = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    named = [name for name, _ in network.named_parameters()]
    if lacking := [name for name in chained if name not in named]:
        layer, _, part = lacking[0].rpartition(".")
        raise _Otherwise(f"the {part} of layer {layer!r} is shared, or computed from other parameters")
    if outside := [name for name in named if name not in chained]:
        raise _Otherwise(f"parameter {outside[0]!r} belongs to no Linear layer of the chain")
    return layers, activations


def _straight(network: nn.Module, kind: _Kind) -> list[str | _Activation]:
    """The computation as names of linear layers, and activations, in order."""
    for name, layer in network.named_modules():
        hooks = {*layer._forward_hooks.values(), *layer._forward_pre_hooks.values()}
        if hooks - {copied_rows}:  # torch.fx runs none of the whole and of layers that it takes as they are
            raise _Otherwise(f"layer {name!r} has a forward hook" if name else "it has a forward hook")
    own = set(vars(network))
    try:
        graph = _Tracer().trace(network)
    except Exception as error:  # control flow, other libraries' calls: a user's forward may raise anything when traced
        raise _Otherwise(f"its forward cannot be traced by torch.fx ({type(error).__name__})") from error
    finally:
        for constant in set(vars(network)) - own:  # torch.fx keeps tensors that the forward makes in the module
            delattr(network, constant)
    modules = dict(network.named_modules())
    steps: list[str | _Activation] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if last is not None:
                raise _Otherwise("its forward takes several arguments")
        elif node.op != "output":
            steps += _step(node, modules, kind)  # first: the layer says more than where its input comes from
        if node.op != "placeholder" and (not node.args or node.args[0] is not last):
            raise _Otherwise(f"{_called(node)} takes more than the output of the layer before it")
        last = node
    return steps


def _step(node: fx.Node, modules: dict[str, nn.Module], kind: _Kind) -> list[str | _Activation]:
    if node.op == "call_module":
        name = str(node.target)
        layer = modules[name]
        if type(layer) is nn.Linear and layer.bias is not None:
            return [name]
        if kind(layer):
            apart = _not_in_place(layer)
            return [_Activation("ReLU" if type(layer) is nn.ReLU else repr(apart), apart)]
        if type(layer) in PASSED and not (isinstance(layer, nn.Flatten) and layer.start_dim != 1):
            return []
        what = "a Linear layer without bias" if type(layer) is nn.Linear else type(layer).__name__
        raise _Otherwise(f"layer {name!r} is {what}")
    if node.op in ("call_function", "call_method") and kind(node.target):
        function = getattr(torch, node.target) if isinstance(node.target, str) else node.target
        name = "ReLU" if _is_relu(node.target) else f"{function.__name__}{node.args[1:]}{node.kwargs}"
        return [_Activation(name, _with_arguments(function, node))]
    raise _Otherwise(f"its forward computes {_called(node)}")


def _with_arguments(function: Callable[..., Tensor], node: fx.Node) -> Callable[[Tensor], Tensor]:
    """The function of its first argument alone, as the graph calls it."""
    others, named = node.args[1:], node.kwargs
    return lambda x: function(x.clone(), *others, **named)  # it may write into its argument


def _not_in_place(layer: nn.Module) -> nn.Module:
    """The same activation, which leaves its argument alone; in a chain nothing else reads that."""
    if not getattr(layer, "inplace", False):
        return layer
    apart: Any = copy.copy(layer)
    apart.inplace = False
    return cast(nn.Module, apart)


def _called(node: fx.Node) -> str:
    """Describe what a node of the graph computes."""
    if node.op == "call_module":
        return f"layer {str(node.target)!r}"
    if node.op == "output":
        return "its output"
    return f"{getattr(node.target, '__name__', node.target)}"
