"""From observations to a matching problem: stacked tensors and the matcher for the client's network."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig, Precision
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.optimize.matcher import Matcher, NetworkMatcher
from lightleak.attacks.gradient_inversion.optimize.matrix_products import MatrixProducts
from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES
from lightleak.attacks.gradient_inversion.optimize.priors import inversion_penalty
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.optimize.whitening import Whitening
from lightleak.core.observations import ClientUpdate
from lightleak.targets.spec import NetworkSpec

LIVE_COPIES = 12
"""Tensors of the size of a candidate's gradient or rows alive at once in a step; see `benchmarks/inversion.py`."""


USUAL_NORMS = (1e-12, 1e12)
"""Norms of an update whose elements may be squared in float32, the small ones among them included."""


def of_usual_norm(update: ClientUpdate, scale: float = 1.0) -> ClientUpdate:
    """Divide an update by the norm of ``scale`` times it where that is beyond `USUAL_NORMS`; its cosines stay the same.

    An update of zeros or of infinite norm is returned unchanged.
    """
    norm = abs(scale) * math.sqrt(sum(float(t.double().square().sum()) for t in update.update.values()))
    if norm == 0 or not math.isfinite(norm) or USUAL_NORMS[0] <= norm <= USUAL_NORMS[1]:
        return update
    return replace(update, update={name: (t.double() / norm).to(t.dtype) for name, t in update.update.items()})


def build_matcher(
    updates: Sequence[ClientUpdate],
    labels: Tensor,
    config: InversionConfig,
    device: torch.device,
    dtype: torch.dtype,
    straight_through: StraightThrough | None = None,
    whitening: Whitening | None = None,
) -> Matcher:
    """The closed form for plain ReLU networks, ``torch.func`` for everything else.

    Args:
        updates: observations of one network, batch size and table.
        labels: LongTensor ``[updates, n]``.
        config: objective, priors, and in which precision the closed form multiplies matrices.
        device: where to work.
        dtype: in which precision everything else is.
        straight_through: derivative of a plain ReLU network's masks.
        whitening: comparison of a plain ReLU network's gradients, in place of the objective.
    """
    if config.objective == "cosine":
        updates = [of_usual_norm(update) for update in updates]

    def stacked(which: str, name: str) -> Tensor:
        values = torch.stack([getattr(update, which)[name] for update in updates]).to(device)
        return values.to(dtype) if values.is_floating_point() else values

    network = client_network(updates[0])
    objective, labels = OBJECTIVES[config.objective], labels.to(device)
    penalty = inversion_penalty(updates, config, device, dtype)
    chain = relu_chain(network)
    if chain is not None and penalty is None:
        weights, biases = [f"{name}.weight" for name in chain], [f"{name}.bias" for name in chain]
        return MLPMatcher(
            [stacked("parameters", name) for name in weights],
            [stacked("parameters", name) for name in biases],
            [stacked("update", name) for name in weights],
            [stacked("update", name) for name in biases],
            labels,
            objective,
            MatrixProducts(torch.bfloat16 if config.precision == "bfloat16" else None),
            straight_through,
            whitening,
        )
    assert straight_through is None and whitening is None  # the attack's check refuses them for other networks
    names = list(updates[0].parameters)
    return NetworkMatcher(
        network.to(device, dtype),
        {name: stacked("parameters", name) for name in names},
        {name: stacked("buffers", name) for name in updates[0].buffers},
        {name: stacked("update", name) for name in names},
        labels,
        objective,
        penalty,
    )


def bytes_per_restart(update: ClientUpdate, precision: Precision) -> int:
    """Memory one restart takes in a step, in bytes, from the sizes of its gradient and of its rows in every layer."""
    gradient = sum(p.numel() for p in update.parameters.values())
    units = sum(p.shape[0] for p in update.parameters.values() if p.dim())
    width = NetworkSpec.from_dict(update.network).layout.width + units
    return LIVE_COPIES * (gradient + update.facts.n_rows * width) * (8 if precision == "float64" else 4)
