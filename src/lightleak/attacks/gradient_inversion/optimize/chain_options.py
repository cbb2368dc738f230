"""What the engine's options ask of a plain ReLU network: widths of its masks, whitening, categories that are absent."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, first_layer_gradient, observed_gradient
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.network.row_network import with_one
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.optimize.whitening import Whitening, maps_of
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.data.relaxation import Relaxation

MOMENT_ROWS = 4000
"""Random rows behind the second moments and deviations: forty times the units of a usual layer."""

LEAST_SIZE = 1e-3
"""Part of a layer's largest error that a unit's counts with at least: a weight of zero must not be divided by."""


@dataclass(frozen=True)
class ChainOptions:
    """Options of the closed form; None where they are off."""

    straight_through: StraightThrough | None = None
    whitening: Whitening | None = None


def require_options(name: str, update: ClientUpdate, config: EngineConfig) -> None:
    """Check that the engine's options have a meaning for an update.

    Args:
        name: of the attack, for messages.
        update: the observation, which fits its network.
        config: the settings.

    Raises:
        UnsupportedError: a network other than a plain ReLU network or, where what is believed of rows is used, images
            or the encoding ``quantile``.
    """
    of_first_layer = {"mask_absent": config.mask_absent, "tie_numbers": config.tie_numbers}
    of_chains = (*config.needs_closed_form, *(option for option, on in of_first_layer.items() if on))
    clamped = ("numerical 'clamp'",) if config.numerical == "clamp" else ()
    of_tables = sorted({*config.needs_prior, *of_chains, *clamped})
    if of_tables and is_image_state(update.encoder):
        raise UnsupportedError(f"{name}: {', '.join(of_tables)} is for tables; this update is on images")
    if of_chains and relu_chain(client_network(update)) is None:
        raise UnsupportedError(
            f"{name}: {', '.join(of_chains)} is for plain ReLU networks, whose gradient is known in closed form; got "
            f"{update.network['name']!r} with options {dict(update.network.get('options', {}))}"
        )
    affine = tuple(dict.fromkeys((*config.needs_prior, *of_chains)))
    if affine and update.encoder["encoding"] == "quantile":
        raise UnsupportedError(
            f"{name}: {', '.join(affine)} needs numbers encoded by an affine map; got the encoding "
            "'quantile', use 'standardized', 'onehot' or 'minmax'"
        )


def chain_options(
    updates: Sequence[ClientUpdate],
    config: EngineConfig,
    device: torch.device,
    dtype: torch.dtype,
    scale: float = 1.0,
) -> ChainOptions:
    """Options of the closed form for updates that are alike; their networks are taken before the update.

    Args:
        updates: observations, of plain ReLU networks where an option is on.
        config: the settings.
        device: where to work.
        dtype: in which precision.
        scale: what makes a gradient of what was observed.
    """
    if config.whitening is None and config.mask_derivative == "zero":
        return ChainOptions()
    deviations, moments = [], []
    for update in updates:
        chain, rows = ReLUChain.of(update, device), random_rows(update, config, device)
        found = chain.forward(rows)
        deviations.append(torch.stack([a.std(0).mean() for a in found.preactivations] or [rows.new_zeros(())]))
        if config.whitening is not None:
            errors = chain.errors(found, _directions(found.probabilities))
            layers = zip(errors, found.hidden, _units(chain, errors), strict=True)
            moments.append([maps_of(e, with_one(h), config.whitening, units) for e, h, units in layers])
    straight = StraightThrough(torch.stack(deviations).to(dtype), config.mask_width, config.mask_width_end)
    return ChainOptions(
        straight if config.mask_derivative == "straight_through" else None,
        Whitening.of(moments, _targets(updates, scale, device, dtype)) if config.whitening is not None else None,
    )


def random_rows(update: ClientUpdate, config: EngineConfig, device: torch.device) -> Tensor:
    """Rows ``[MOMENT_ROWS, d]``, float64, whose categories are drawn evenly from those that may occur.

    They are the same for every seed of the attack: they stand for moments of rows, not for a choice. By their shares
    rare categories would hardly be drawn, and the moments say little of how such rows differ.
    """
    encoder = TableEncoder.of(update, device)
    space = observed_domain(update, encoder, config)
    return space.rows.of(*space.draw(MOMENT_ROWS, generator(0, "random rows")))


def observed_domain(update: ClientUpdate, encoder: TableEncoder, config: EngineConfig) -> RowDomain:
    """The rows that may be behind an update, as far as the settings ask the first layer.

    Args:
        update: a gradient or weight delta of a plain ReLU network where they ask.
        encoder: its encoder, on the device of the work.
        config: ``mask_absent`` and ``tie_numbers``.
    """
    whole = RowDomain.whole(encoder, RowPrior.of(update, encoder))
    if not (config.mask_absent or config.tie_numbers):
        return whole
    first = first_layer_gradient(update, encoder.shift.device)
    if not first.any():
        return whole
    found = infer_domain(first, encoder, whole.prior, update.facts.n_rows)
    present = found.present if config.mask_absent else whole.present
    return RowDomain(
        encoder, whole.prior, present, *((found.constants, found.ties) if config.tie_numbers else ({}, {}))
    )


def restricted(
    relaxation: Relaxation, updates: Sequence[ClientUpdate], encoder: TableEncoder, config: EngineConfig
) -> Relaxation:
    """A relaxation to the rows that may be behind updates: see `observed_domain`.

    Args:
        relaxation: of variables ``[updates, restarts, rows, d]``.
        updates: one per index of the variables.
        encoder: theirs.
        config: the settings.
    """
    spaces = [observed_domain(update, encoder, config) for update in updates]
    if config.mask_absent:
        relaxation = relaxation.only(torch.stack([space.is_present for space in spaces])[:, None, None])
    bound = sorted({j for space in spaces for j in (*space.constants, *space.ties)})
    if not bound:
        return relaxation
    pairs = [space.dependence(bound) for space in spaces]
    offset, follows = (torch.stack(side).unsqueeze(1).to(relaxation.span) for side in zip(*pairs, strict=True))
    return relaxation.following([encoder.numerical_positions[j] for j in bound], offset.unsqueeze(1), follows)


def _targets(updates: Sequence[ClientUpdate], scale: float, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    """``[G gb]`` of every layer, ``[updates, out, in + 1]``."""
    each = [[scale * layer.to(dtype) for layer in observed_gradient(update, device)] for update in updates]
    return [torch.stack(layer) for layer in zip(*each, strict=True)]


def _units(chain: ReLUChain, errors: Sequence[Tensor]) -> list[Tensor | None]:
    """In which units the errors of every layer are whitened; None: all in one.

    Before their masks the errors of the last hidden layer are ``p - y`` times the last weights: of two classes the same
    for all rows up to a factor. There only the masks tell rows apart, and a unit's mask says as much of a row where the
    weights behind it are small. So each unit counts in the typical size of its error without a mask.
    """
    units: list[Tensor | None] = [None] * chain.depth
    if chain.depth > 1:
        size = (errors[-1] @ chain.weights[-1]).square().mean(0).sqrt()
        units[-2] = size.clamp_min(LEAST_SIZE * size.max())
    return units


def _directions(probabilities: Tensor) -> Tensor:
    """``p - y`` of unit length, for labels that the network itself would draw."""
    draws = generator(0, "labels of random rows")
    labels = torch.multinomial(probabilities.cpu(), 1, generator=draws).to(probabilities.device)
    errors = probabilities.scatter_add(-1, labels, -torch.ones_like(probabilities[..., :1]))
    return torch.nn.functional.normalize(errors, dim=-1)
