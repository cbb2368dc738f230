"""A network with one logit, trained by binary cross-entropy, as the network of two classes that it equals.

Of the logits ``(0, z)`` the cross-entropy is the binary cross-entropy of z, so both have the same gradient by every
weight below the last layer. There a gradient g of the one logit is ``(-g, g)``, as ``p_0 - y_0 = -(p_1 - y_1)``:
nothing is added or lost. It is so for gradients, not for training: SGD moves the difference of two logits twice as far
as one logit.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError
from lightleak.targets.own import copied_network, require_parameters

ROWS = 3

TOLERANCE = 1e-6
"""Of logits of about 1 in float32: another order of sums."""


def with_two_logits(network: nn.Module, width: int) -> tuple[nn.Module, str | None]:
    """A copy of a network of one logit z that returns ``(0, z)``, and the name of the layer that grew.

    Args:
        network: takes encoded rows ``[n, width]``; one that does not return ``[n, 1]`` or ``[n]`` is handed back with
            None, whatever it returns.
        width: encoded features.

    Raises:
        UnsupportedError: its one output is not what a last Linear layer of one output computes, or it has no
            parameters yet, or it cannot be copied.

    >>> network, layer = with_two_logits(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), width=3)
    >>> layer, network(torch.zeros(1, 3)).shape
    ('2', torch.Size([1, 2]))
    """
    require_parameters(network)
    alone = _output(network, width)
    if alone is None or alone.shape not in ((ROWS,), (ROWS, 1)):
        return network, None
    name = type(network).__name__
    layers = [key for key, layer in network.named_modules() if isinstance(layer, nn.Linear) and layer.out_features == 1]
    expected = f"{name} returns one number for a row; it must be the output of a final nn.Linear(..., 1)"
    if not layers:
        raise UnsupportedError(f"{expected}, which it lacks; give it two logits")
    grown = copied_network(network)
    last = _grown(grown.get_submodule(layers[-1]))
    if layers[-1]:
        grown.set_submodule(layers[-1], last)
    else:  # the network is that layer
        grown = last
    both = _output(grown, width)
    wanted = torch.stack([torch.zeros(ROWS), alone.reshape(ROWS).float()], -1)
    if both is None or both.shape != (ROWS, 2) or not torch.allclose(both.float(), wanted, atol=TOLERANCE):
        raise UnsupportedError(f"{expected}, without a sigmoid after it; or give it two logits")
    return grown, layers[-1]


def two_logit_weights(weights: Mapping[str, Tensor], layer: str) -> dict[str, Tensor]:
    """Parameters by name with those of the last layer ``[1, ...]`` grown to ``(0, w)``."""
    return {name: torch.cat([torch.zeros_like(w), w]) if _is_of(name, layer) else w for name, w in weights.items()}


def two_logit_gradient(gradient: Mapping[str, Tensor], layer: str) -> dict[str, Tensor]:
    """Gradient by name with that of the last layer ``[1, ...]`` grown to ``(-g, g)``."""
    return {name: torch.cat([-g, g]) if _is_of(name, layer) else g for name, g in gradient.items()}


def _grown(layer: nn.Module) -> nn.Linear:
    assert isinstance(layer, nn.Linear)
    held = {"dtype": layer.weight.dtype, "device": layer.weight.device}
    grown = nn.Linear(layer.in_features, 2, bias=layer.bias is not None, **held)
    grown.load_state_dict({name: torch.cat([torch.zeros_like(w), w]) for name, w in layer.state_dict().items()})
    return grown.train(layer.training)


def _is_of(name: str, layer: str) -> bool:
    return name.rpartition(".")[0] == layer


def _output(network: nn.Module, width: int) -> Tensor | None:
    """What a copy returns in eval mode for made rows; None where it refuses them, which others report."""
    tried = copied_network(network).eval()
    rows = torch.linspace(-1, 1, ROWS * width, dtype=next(tried.parameters()).dtype).reshape(ROWS, width)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = tried(rows)
    except Exception:  # a user's forward may raise anything
        return None
    return found if isinstance(found, Tensor) else None
