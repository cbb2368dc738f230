"""Can DP-SGD protect this network? Asked before training, and answered with the layers it cannot."""

import copy
import warnings

import torch
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.defenses.horizontal.optional_opacus import import_opacus
from lightleak.defenses.horizontal.per_sample import per_sample_gradients
from lightleak.targets.functional import criterion, without_dropout
from lightleak.targets.normalization import moved_buffers

TOLERANCE = 1e-3
"""Two ways to compute a row's gradient differ by float32 rounding, about 1e-6 of the largest entry."""

INSTEAD = "use 'linear', 'image_cnn', 'mlp' with norm: none or layer, or 'resnet_preact' with norm: layer"


def check_protectable(network: nn.Module, width: int, loss: str = "cross_entropy") -> None:
    """Refuse a network for which opacus does not give every row's own gradient.

    First its layers are asked by type: a subclass of a layer that opacus refuses counts as that layer, as our
    normalizations are. Then opacus' gradients of a few random rows are compared with those computed row by row: that
    shows what types cannot, such as a weight that is used outside its layer, or a row that depends on its batch.

    Args:
        network: not modified; a copy on the CPU is tried.
        width: encoded features d of a row.
        loss: name of the criterion.

    Raises:
        UnsupportedError: it cannot be protected; the message names the layers or parameters.
    """
    if not getattr(network, "differentiable", True) or not any(p.requires_grad for p in network.parameters()):
        raise UnsupportedError(f"dp_sgd cannot protect {type(network).__name__}: no gradient trains it; {INSTEAD}")
    if refused := _refused_layers(network):
        raise UnsupportedError(f"dp_sgd cannot protect these layers: {'; '.join(refused)}; {INSTEAD}")
    if wrong := _wrong_parameters(network, width, loss):
        raise UnsupportedError(
            f"dp_sgd cannot protect {type(network).__name__}: opacus does not give the gradient of each row for "
            f"{', '.join(wrong[:5])}; {INSTEAD}"
        )


def _refused_layers(network: nn.Module) -> list[str]:
    """``name (type: reason)`` of every layer that opacus refuses."""
    validators = import_opacus().validators.ModuleValidator.VALIDATORS.items()
    refused = []
    for name, layer in network.named_modules():
        reasons = [str(error) for kind, ask in validators if isinstance(layer, kind) for error in ask(layer)]
        trained = any(p.requires_grad for p in layer.parameters(recurse=False))
        if not reasons and trained and any(True for _ in layer.buffers()):
            reasons = ["it trains weights and holds buffers"]
        if reasons:
            refused.append(f"{name or 'the network'} ({type(layer).__name__}: {reasons[0].split('. ')[0]})")
    return refused


def _wrong_parameters(network: nn.Module, width: int, loss: str) -> list[str]:
    """Names of trained parameters for which opacus has no gradient of each row or a wrong one, and of moved buffers."""
    # The two computations would drop different units.
    tried = without_dropout(copy.deepcopy(network).cpu().float().train())
    trained = {name: p for name, p in tried.named_parameters() if p.requires_grad}
    rows = torch.randn(4, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        labels = torch.arange(4) % tried(rows).shape[1]
    try:
        expected = per_sample_gradients(tried, trained, {}, rows, labels, loss)
        got = _opacus_gradients(tried, rows, labels, loss)
    except (RuntimeError, ValueError, UsageError) as error:
        raise UnsupportedError(
            f"dp_sgd cannot protect {type(network).__name__}: its rows cannot be differentiated one by one ({error}); "
            f"{INSTEAD}"
        ) from error
    # Relative to the whole gradient: one parameter's own may be nothing but rounding.
    bound = TOLERANCE * max(float(gradient.abs().max()) for gradient in expected.values())
    wrong = [name for name in trained if name not in got or float((got[name] - expected[name]).abs().max()) > bound]
    return wrong + moved_buffers(network, width)


def _opacus_gradients(network: nn.Module, rows: Tensor, labels: Tensor, loss: str) -> dict[str, Tensor]:
    """What opacus takes for each row's gradient, ``[n, *shape]``; parameters that it misses are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hooked = import_opacus().grad_sample.GradSampleModule(network)
        criterion(loss)(network(rows), labels).backward()
    found = {name: getattr(p, "grad_sample", None) for name, p in network.named_parameters()}
    hooked.to_standard_module()
    return {name: gradient for name, gradient in found.items() if gradient is not None}
