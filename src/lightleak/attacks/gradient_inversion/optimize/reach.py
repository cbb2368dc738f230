"""Does the derivative that gradient-based attacks follow lead to every input column? Tried on made-up rows.

An attack moves candidate rows along the derivative of their parameter gradient. Where a network rounds an input or
turns it into an index, that derivative is zero and the column stays at chance, however much the update reveals: the
attack would understate the risk. Such a network is refused by name, and so is one whose derivative is wrong or missing.
"""

from collections.abc import Callable, Sequence
from textwrap import shorten

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from lightleak.attacks.gradient_inversion.network.client import relu_chain
from lightleak.attacks.gradient_inversion.optimize.labels import plausible_rows
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.data.layout import Block
from lightleak.targets.functional import cross_entropy, functional_call, twice_differentiable

CANDIDATES, ROWS = 6, 4
"""Batches that are tried, half of them of valid rows and half between two such; BatchNorm needs more than one row."""

VANISHES = 1e-9
"""Part of the largest derivative below which a column's counts as zero; true zeros are exact."""

DEPENDS = 1e-6
"""Part of the parameter gradient by which a column must move it to count as used: far above rounding."""

WRONG = 1e-4
"""Relative error of a right derivative against a central difference is below 1e-8 in double precision; PyTorch's fused
normalization is 3e-3 off."""

STEPS = (1e-5, 1e-8)
"""Of central differences, in encoded units. Their own error is least about the first in double precision; deep stacks
of BatchNorm (DANet) have kinks closer than that. A wrong derivative misses the differences of all steps."""

NAMED = 5
"""Columns that a message lists."""

TRIED = 200
"""Columns without derivative that are tried one by one: each costs a pass, and a table may have thousands."""

SAID = 160
"""Characters of PyTorch's own message that are passed on: its first sentence, mostly."""

Projected = Callable[[Tensor], Tensor]
"""From batches ``[k, n, d]`` to the parameter gradient of each, projected on one fixed direction: ``[k]``."""


def require_reach(name: str, update: ClientUpdate, network: nn.Module) -> None:
    """Refuse a network whose parameter gradient has no right derivative by some column that it uses.

    Networks of the registry and plain ReLU chains are known to have one, and are not tried.

    Args:
        name: of the attack, for messages.
        update: an observation on rows of a table; images are not tried.
        network: what `lightleak.attacks.gradient_inversion.optimize.problem.client_network` made of it.

    Raises:
        UnsupportedError: a column that the network uses and its derivative does not reach, naming columns and layers; a
            derivative that is wrong, not finite, or that ``torch.func`` cannot take.
    """
    of_registry = type(network).__module__.startswith("lightleak.")
    if of_registry or is_image_state(update.encoder) or relu_chain(network) is not None:
        return
    encoder = TableEncoder.of(update)
    draws = generator(0, "reach")
    dtype, projected, rows, derivative = _tried(name, update, network, encoder, draws)
    kind = type(network).__name__
    if not derivative.isfinite().all():
        raise UnsupportedError(
            f"{name}: the derivative of {kind}'s gradient by its inputs is not finite at plausible rows; look for "
            "square roots, divisions or logarithms of zero in its forward"
        )
    blocks = encoder.layout.blocks
    largest = float(derivative.abs().max())
    still = [b for b in blocks if float(derivative[..., b.slice].abs().max()) <= VANISHES * largest]
    unreached = _used(projected, rows, _other_rows(encoder, draws).to(dtype), still)
    if unreached:
        raise UnsupportedError(f"{name}: {_unreached_words(network, unreached, encoder, len(still) > TRIED)}")
    if dtype == torch.float64 and (error := _deviation(projected, rows, derivative, still, draws)) > WRONG:
        raise UnsupportedError(
            f"{name}: the derivative of {kind}'s gradient by its inputs is wrong by {error:.1%} under torch.func, as "
            "that of the fused functional.layer_norm is; use nn.LayerNorm and nn.BatchNorm1d layers, which are "
            "replaced by differentiable ones"
        )


def plausible_pair(encoder: TableEncoder, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two lots of valid encoded rows, ``[CANDIDATES, ROWS, d]`` float64 each."""
    drawn = plausible_rows(encoder, 2 * CANDIDATES * ROWS, draws).double()
    first, second = drawn.reshape(2, CANDIDATES, ROWS, encoder.width)
    return first, second


def _other_rows(encoder: TableEncoder, draws: torch.Generator) -> Tensor:
    """Lots of rows to take cells from: plausible ones, and others from first to last category, lowest to highest."""
    spread = encoder.spread_rows(CANDIDATES * ROWS).double().reshape(CANDIDATES, ROWS, encoder.width)
    return torch.stack([*plausible_pair(encoder, draws), spread])


def _tried(
    name: str, update: ClientUpdate, network: nn.Module, encoder: TableEncoder, draws: torch.Generator
) -> tuple[torch.dtype, Projected, Tensor, Tensor]:
    """The derivative at made-up rows, in double precision where the module computes in it."""
    first, second = plausible_pair(encoder, draws)
    between = 0.1 + 0.8 * torch.rand(CANDIDATES // 2, ROWS, 1, generator=draws, dtype=torch.float64)
    half = CANDIDATES // 2
    rows = torch.cat([first[:half], first[half:] + between * (second[half:] - first[half:])])
    failure: Exception | None = None
    for dtype in (torch.float64, torch.float32):
        x = rows.to(dtype).requires_grad_()
        try:
            projected = _projection(update, network.to(dtype), dtype, draws)
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                value = projected(x)
                if not value.requires_grad:
                    return dtype, projected, x.detach(), torch.zeros_like(x)
                (derivative,) = torch.autograd.grad(value.sum(), x)
            return dtype, projected, x.detach(), derivative
        except Exception as error:  # a user's forward may raise anything
            failure = failure or error
    raise UnsupportedError(
        f"{name}: {type(network).__name__} has no gradient per candidate batch under torch.func that could be "
        "differentiated again; draw random numbers in dropout layers alone and do not branch on values: "
        f"{shorten(str(failure) or type(failure).__name__, SAID)}"
    ) from failure


def _projection(update: ClientUpdate, network: nn.Module, dtype: torch.dtype, draws: torch.Generator) -> Projected:
    """The parameter gradient as an attack computes it, on one random direction."""

    def cast(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    # Stacked over one update, as attacks do: a layer that writes into its buffers may not take that.
    parameters = {key: cast(value).unsqueeze(0) for key, value in update.parameters.items()}
    buffers = {key: cast(value).unsqueeze(0) for key, value in update.buffers.items()}
    n_classes = int(update.network["n_classes"])
    labels = torch.randint(n_classes, (ROWS,), generator=draws)
    direction = {key: torch.randn(value.shape, generator=draws, dtype=dtype) for key, value in parameters.items()}

    def loss(named: dict[str, Tensor], held: dict[str, Tensor], x: Tensor) -> Tensor:
        return cross_entropy(functional_call(network, (named, held), (x,)), labels)

    gradients = vmap(vmap(grad(loss), in_dims=(None, None, 0)))

    def projected(x: Tensor) -> Tensor:
        held = {key: value.clone() for key, value in buffers.items()}  # in case a layer writes into its own
        with twice_differentiable():
            found = gradients(parameters, held, x.unsqueeze(0))
        return torch.stack([(found[key][0] * direction[key]).flatten(1).sum(-1) for key in parameters]).sum(0)

    return projected


@torch.no_grad()
def _used(projected: Projected, rows: Tensor, others: Tensor, blocks: Sequence[Block]) -> list[Block]:
    """Those columns that change the parameter gradient as their cells are exchanged for those of ``others``."""
    before = projected(rows)
    rounding = DEPENDS * before.abs().clamp_min(torch.finfo(rows.dtype).tiny)

    def moved(members: Sequence[Block]) -> bool:
        changed = rows.expand_as(others).clone()
        for block in members:
            changed[..., block.slice] = others[..., block.slice]
        return any(bool(((projected(lot) - before).abs() > rounding).any()) for lot in changed)

    if not blocks or not moved(blocks):
        return []  # a column that the network leaves out is no column that an attack misses
    found = [block for block in blocks[:TRIED] if moved([block])]
    # Beyond the first, or together alone: something of these is used.
    return found or [block for block in blocks[TRIED:] if moved([block])] or list(blocks)


def _deviation(
    projected: Projected, rows: Tensor, derivative: Tensor, still: Sequence[Block], draws: torch.Generator
) -> float:
    """Relative difference of the derivative along a random direction from central differences; the median batch's."""
    direction = torch.randn(rows.shape, generator=draws, dtype=rows.dtype)
    for block in still:
        direction[..., block.slice] = 0
    expected = (derivative * direction).sum((-2, -1))
    errors = []
    for step in STEPS:
        with torch.no_grad():
            difference = (projected(rows + step * direction) - projected(rows - step * direction)) / (2 * step)
        scale = torch.maximum(difference.abs(), expected.abs()).clamp_min(torch.finfo(rows.dtype).tiny)
        errors.append(float(((difference - expected).abs() / scale).median()))
    return min(errors)


def _unreached_words(network: nn.Module, blocks: Sequence[Block], encoder: TableEncoder, at_least: bool) -> str:
    listed = ", ".join(repr(block.name) for block in blocks[:NAMED])
    more = f" and {len(blocks) - NAMED} more" if len(blocks) > NAMED else ""
    tables = [name for name, module in network.named_modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    layers = f" (layer {', '.join(map(repr, tables[:NAMED]))})" if tables else ""
    words = (
        f"the gradient of {type(network).__name__} does not reach {'at least ' * at_least}{len(blocks)} of "
        f"{len(encoder.layout.blocks)} columns, {listed}{more}, though the update depends on them: the network rounds "
        f"or detaches them or turns them into indices, as argmax, .long() and nn.Embedding do{layers}. An attack that "
        "follows gradients would leave them at chance and understate the risk"
    )
    block = next((block for block in blocks if block.categorical), None)
    if block is None:
        return f"{words}; use the plain numbers"
    table = f"{tables[0]}.weight" if tables else "embedding.weight"
    return (
        f"{words}; multiply the one-hot columns instead, as x[:, {block.start}:{block.stop}] @ {table} of "
        f"{block.name!r} (encoding='onehot'), which computes the same"
    )
