"""Is a module nothing but linear layers with ReLU between them? Read off its computation, not its class."""

import torch
from torch import fx, nn
from torch.nn import functional

PASSED = (nn.Dropout, nn.Identity, nn.Flatten)
"""Layers that leave rows ``[n, d]`` as they are; dropout, because an attack cannot know its masks and leaves it out."""

_RELUS = (functional.relu, torch.relu, torch.relu_)


def relu_layers(network: nn.Module) -> list[str] | None:
    """Names of the linear layers of a plain ReLU chain, first layer first, or None where the module computes otherwise.

    Every linear layer must have a bias and be used once, ReLU must follow each but the last, and no parameter may be
    outside of them. The computation is traced symbolically (``torch.fx``); what cannot be traced counts as otherwise.

    >>> relu_layers(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    ['0', '2']
    >>> relu_layers(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    """
    steps = _straight(network)
    if steps is None:
        return None
    layers: list[str] = []
    after_linear = False
    for step in steps:
        if step == "relu":
            if not layers:
                return None
            after_linear = False
        elif after_linear:
            return None
        else:
            layers.append(step)
            after_linear = True
    held = {name for name, _ in network.named_parameters()}
    chained = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    return layers if after_linear and held == chained and len(set(layers)) == len(layers) else None


def _straight(network: nn.Module) -> list[str] | None:
    """The computation as ``relu`` and names of linear layers, in order; None where it is anything else."""
    try:
        graph = fx.Tracer().trace(network)
    except Exception:  # control flow, other libraries' calls: a user's forward may raise anything when traced
        return None
    modules = dict(network.named_modules())
    steps: list[str] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if last is not None:
                return None
        elif not node.args or node.args[0] is not last:
            return None
        elif node.op != "output":
            step = _step(node, modules)
            if step is None:
                return None
            steps += step
        last = node
    return steps


def _step(node: fx.Node, modules: dict[str, nn.Module]) -> list[str] | None:
    if node.op == "call_module":
        name = str(node.target)
        layer = modules[name]
        if type(layer) is nn.Linear and layer.bias is not None:
            return [name]
        if type(layer) is nn.ReLU:
            return ["relu"]
        if isinstance(layer, nn.Flatten) and layer.start_dim != 1:
            return None
        return [] if type(layer) in PASSED else None
    if node.op == "call_function" and node.target in _RELUS:
        return ["relu"]
    if node.op == "call_method" and node.target in ("relu", "relu_"):
        return ["relu"]
    return None
