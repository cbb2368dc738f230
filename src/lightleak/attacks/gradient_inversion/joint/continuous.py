"""All cells of all rows moved at once by the shared engine, on the problem's own distance and space."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.optimize.engine import invert
from lightleak.attacks.gradient_inversion.optimize.matcher import Annealed, Matcher
from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import relative_error
from lightleak.attacks.gradient_inversion.optimize.priors import BelievedMatcher, RowBelief, cells_believed
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.optimize.whitening import Comparison, Whitening
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator
from lightleak.data.relaxation import Relaxation, State

WIDTH_ROWS = 2000
"""Random rows behind the typical deviations of pre-activations, which need no more than a few per cent."""


BELIEF = 2.0
"""How many times its proper weight the prior has while cells are relaxed: cells between two categories escape a part of
it. Measured on Adult, 96 rows, noise of 1e-3: 72% of the cells without it, 76% at 1 to 4, 73% at 16."""


class SpaceRelaxation(Relaxation):
    """The relaxation of a `RowDomain`: absent categories have no weight, constants and ties follow.

    A softmax's variables are logits; numbers are moved in deviations and clamped to their bounds.

    Args:
        space: the rows.
        temperature_end: see `Relaxation`.
        dtype: precision.
    """

    def __init__(self, space: RowDomain, temperature_end: float, dtype: torch.dtype) -> None:
        encoder, at = space.encoder, space.encoder.numerical_positions
        unit = torch.ones_like(encoder.scale)
        unit[at] = space.prior.deviation / encoder.scale[at]
        constants = (encoder.shift, encoder.scale, *encoder.encoded_bounds(), unit)
        shift, scale, lower, upper, unit = (value.to(dtype) for value in constants)
        super().__init__(encoder.layout, shift, scale, lower, upper, "softmax", "clamp", unit, True, temperature_end)
        self.logit_shift = self.only(space.is_present).logit_shift
        bound = [j for j in range(len(at)) if j not in space.free]
        self.bound = [at[j] for j in bound]
        self.offset, self.follows = (value.to(dtype) for value in space.dependence(bound))

    def forward(self, z: Tensor) -> tuple[Tensor, State]:
        """See `Relaxation`."""
        x, state = super().forward(z)
        if len(self.bound):
            x[..., self.bound] = self.offset + x @ self.follows
        return x, state

    def backward(self, grad: Tensor, state: State) -> Tensor:
        """See `Relaxation`."""
        if len(self.bound):
            of_bound = grad[..., self.bound]
            grad = torch.addmm(grad.flatten(0, -2), of_bound.flatten(0, -2), self.follows.T).view_as(grad)
            grad[..., self.bound] = 0
        return super().backward(grad, state)


def belief_of(space: RowDomain, dtype: torch.dtype = torch.float64) -> RowBelief:
    """What is believed of the space's rows, as the engine takes it; of numbers that are not free nothing is."""
    bound = [at for at in space.encoder.numerical_positions if at not in space.free_positions]
    return RowBelief.stacked([cells_believed(space.prior, space.encoder, bound)], space.encoder.shift.device, dtype)


def prior_start(space: RowDomain, rows: int, seed: int, restart: int) -> Tensor:
    """Variables ``[rows, d]`` around what is believed of rows.

    Args:
        space: the rows.
        rows: how many.
        seed: root of the random stream.
        restart: number of the start.
    """
    width = space.encoder.width
    noise = torch.randn(rows, width, generator=generator(seed, "joint start", restart), dtype=torch.float64)
    relaxation = SpaceRelaxation(space, 1.0, torch.float64)
    return belief_of(space).start(noise.to(space.encoder.shift.device)[None, None], relaxation)[0, 0]


def one_hot_start(space: RowDomain, rows: JointRows, amplitude: float) -> Tensor:
    """Variables ``[n, d]`` at given rows: the logit ``amplitude`` for their categories, 0 for the others."""
    encoder = space.encoder
    start = rows.numbers.new_zeros(len(rows.codes), encoder.width)
    for k, block in enumerate(encoder.layout.categorical):
        start.scatter_(1, (block.start + space.present[k][rows.codes[:, k]]).unsqueeze(1), amplitude)
    if space.free:
        _set_numbers(start, space, rows.numbers)
    return start


def _set_numbers(start: Tensor, space: RowDomain, numbers: Tensor) -> None:
    """Variables of free numbers: a variable 0 is the encoded value 0, one unit is a deviation."""
    at = space.free_positions
    start[:, at] = numbers + (space.center - space.encoder.shift[at]) / space.unit


def optimize(
    problem: JointProblem,
    starts: Tensor,
    labels: Tensor,
    config: EngineConfig,
    widths: Tensor | None = None,
    compared: Comparison | None = None,
) -> list[JointRows]:
    """Run the engine from starts ``[restarts, n, d]`` with labels ``[n]``, one result per start.

    Args:
        problem: one node, or nodes apart.
        starts: variables of `SpaceRelaxation`.
        labels: of the rows, which stay.
        config: steps, rates, widths of the masks and temperature.
        widths: see `widths_of`, where they are known.
        compared: see `matcher_of`.
    """
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    relaxation = SpaceRelaxation(problem.space, config.temperature_end, dtype)
    widths = widths_of(problem) if widths is None else widths
    matcher = matcher_of(problem, labels, config, dtype, widths, compared)
    found = invert(starts.to(dtype).unsqueeze(0), relaxation, matcher, config)
    return [_rows(problem.space, x, labels) for x in found.x[0]]


def widths_of(problem: JointProblem) -> Tensor:
    """Typical deviations of the networks' pre-activations over random rows ``[T, hidden layers]``; of ReLU alone.

    They are measured on random rows of the problem's space, the same for every seed.
    """
    nodes = problem.nodes
    if nodes.activation.smooth is not None:
        return nodes.shares.new_ones(len(nodes.shares), nodes.depth - 1)
    rows = problem.space.rows.of(*problem.space.draw(WIDTH_ROWS, generator(0, "widths")))
    found = [chain.forward(rows).preactivations for chain in problem.nodes.chains]
    return torch.stack([torch.stack([a.std(0).mean() for a in layers]) for layers in found])


def matcher_of(
    problem: JointProblem,
    labels: Tensor,
    config: EngineConfig,
    dtype: torch.dtype,
    widths: Tensor,
    compared: Comparison | None = None,
) -> Matcher:
    """The engine's closed form on the problem's distance, or on another measure of gradients in the prior's units."""
    nodes = problem.nodes.to(dtype)
    targets = [t.to(dtype).reshape(-1, *t.shape[-2:]) for t in problem.target]
    straight = StraightThrough(widths.to(dtype), config.mask_width, config.mask_width_end)
    is_kinked = nodes.activation.smooth is None
    matcher: Matcher = MLPMatcher(
        nodes.weights,
        nodes.biases,
        [t[..., :-1] for t in targets],
        [t[..., -1] for t in targets],
        labels.expand(len(nodes.shares), -1),
        relative_error,
        straight_through=straight if is_kinked and config.mask_derivative == "straight_through" else None,
        whitening=compared or _whitening(problem, targets, dtype),
        activation=nodes.activation,
    )
    if nodes.apart:
        squares = torch.stack([t.square().sum((-1, -2)) for t in targets]).sum(0)
        matcher = _ReleasesMatcher(matcher, (squares / squares.sum()).unsqueeze(-1))
    if problem.prior is None:
        return matcher
    weight = BELIEF * problem.prior_weight / (problem.target_value if compared is None else 1.0)
    return BelievedMatcher(matcher, belief_of(problem.space, dtype), weight)


class _ReleasesMatcher:
    """One loss of the same rows under the weights of several releases.

    Args:
        matcher: of the releases, each an update of its own; its losses are relative.
        shares: of the releases in the loss ``[releases, 1]``.
    """

    def __init__(self, matcher: Matcher, shares: Tensor) -> None:
        self.matcher, self.shares = matcher, shares

    def at(self, share: float) -> "_ReleasesMatcher":
        """See `Annealed`."""
        return _ReleasesMatcher(self.matcher.at(share), self.shares) if isinstance(self.matcher, Annealed) else self

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`; ``x`` is ``[1, restarts, n, d]``."""
        value, by_x = self.matcher.value_and_grad(x.expand(len(self.shares), -1, -1, -1))
        weighted = by_x * self.shares[..., None, None]
        return (value * self.shares).sum(0, keepdim=True), weighted.sum(0, keepdim=True)


def _whitening(problem: JointProblem, targets: list[Tensor], dtype: torch.dtype) -> Whitening | None:
    """The problem's kernels as the engine's maps; None for the plain distance."""
    kernels = problem.kernels
    if any(k is None for k in (*kernels.left, *kernels.right)):
        return None
    pairs = [(left, right) for left, right in zip(kernels.left, kernels.right, strict=True)]
    return Whitening.of([pairs], targets)  # type: ignore[list-item]


def _rows(space: RowDomain, x: Tensor, labels: Tensor) -> JointRows:
    """The nearest rows of relaxed ones ``[n, d]``: largest category among those present, numbers unchanged."""
    encoder = space.encoder
    raw = x.double() * encoder.scale + encoder.shift
    codes = [
        raw[:, block.start + present].argmax(-1)
        for block, present in zip(encoder.layout.categorical, space.present, strict=True)
    ]
    at = space.free_positions
    numbers = space.clamp((raw[:, at] - space.center) / space.unit)
    stacked = torch.stack(codes, -1) if codes else labels.new_empty(len(x), 0)
    return JointRows(stacked, numbers, labels)


def stage_config(**options: Any) -> EngineConfig:
    """The engine's settings that all stages share: plain Adam steps, cosine rates, masks that are differentiated."""
    shared = EngineConfig(
        restarts=1,
        sign=False,
        schedule="cosine",
        initialization="prior",
        numerical="clamp",
        mask_derivative="straight_through",
        whitening=1e-2,
        pooling="none",
    )
    return replace(shared, **options)
