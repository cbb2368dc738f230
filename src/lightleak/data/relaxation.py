"""TabLeak's continuous relaxation of a row: softmax over each categorical block, sigmoid into bounds for each number.

The whole encoded vector is treated at once. A block's softmax denominator is a product with a block-diagonal matrix of
ones, kept as its two thin factors: two small matrix products instead of a gather and scatter per column.
"""

import copy
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightleak.data.layout import EncodedLayout

CategoricalRelaxation = Literal["softmax", "none"]
NumericalRelaxation = Literal["sigmoid", "none", "clamp"]
State = tuple[Tensor, Tensor]

EDGE = 1e-3
"""Closest distance to a bound, as a share of the span, at which a sigmoid may start: its variable is infinite there."""


class Relaxation:
    """A differentiable map from an unconstrained ``z`` to an encoded row ``x`` (TabLeak Eq. 2 and App. B).

    Softmax acts in the raw one-hot space: ``x = (softmax(scale z + shift) - shift) / scale`` per categorical block, and
    ``x = lower + (upper - lower) sigmoid(z)`` per number. ``none`` leaves that kind of column unchanged. ``clamp``
    lets a number move freely in units of its deviation; the caller keeps it inside `bounds`.

    Further options of a softmax: ``logits`` takes ``z`` itself as logits, whatever the encoding's scale; a temperature
    divides the logits, and changes during the optimization (`at`); categories may be ruled out (`only`).

    Args:
        layout: where the columns lie.
        shift: ``[d]`` mean removed from the one-hot columns by the encoder.
        scale: ``[d]`` deviation they were divided by.
        lower: ``[d]`` lowest encoded value (read at numerical positions).
        upper: ``[d]`` highest encoded value.
        categorical: relaxation of categorical blocks.
        numerical: relaxation of numbers.
        unit: ``[d]`` encoded value of one deviation, for ``clamp`` (read at numerical positions); None: 1.
        logits: whether a softmax takes ``z`` as its logits.
        temperature_end: temperature at the end of the optimization; it falls geometrically from 1.

    Attributes:
        numbers: which positions are numerical, bool ``[d]``.
        bounds: lowest and highest ``z`` of every position where numbers are clamped, else None.
    """

    def __init__(
        self,
        layout: EncodedLayout,
        shift: Tensor,
        scale: Tensor,
        lower: Tensor,
        upper: Tensor,
        categorical: CategoricalRelaxation = "softmax",
        numerical: NumericalRelaxation = "sigmoid",
        unit: Tensor | None = None,
        logits: bool = False,
        temperature_end: float = 1.0,
    ) -> None:
        soft = torch.zeros(layout.width, dtype=torch.bool, device=shift.device)
        bound, self.numbers = torch.zeros_like(soft), torch.zeros_like(soft)
        member = torch.zeros(layout.width, len(layout.blocks), dtype=shift.dtype, device=shift.device)
        for i, block in enumerate(layout.blocks):
            member[block.slice, i] = 1
            soft[block.slice] = block.categorical and categorical == "softmax"
            bound[block.slice] = not block.categorical and numerical == "sigmoid"
            self.numbers[block.slice] = not block.categorical
        self.member, self.temperature_end = member, temperature_end
        # Everything is a sum of masked terms: outside the soft columns the logit is 0, so that exp never overflows on a
        # number, and a term that does not concern a column is multiplied by 0 there.
        zero = torch.zeros_like(scale)
        self.logit_scale = soft.to(scale.dtype) if logits else torch.where(soft, scale, zero)
        self.logit_shift = zero if logits else torch.where(soft, shift, zero)
        self.soft_scale = torch.where(soft, 1 / scale, zero)
        self.span = torch.where(bound, upper - lower, zero)
        self.constant = torch.where(soft, -shift / scale, torch.where(bound, lower, zero))
        self.free = (~(soft | bound)).to(scale.dtype)
        self.bounds: tuple[Tensor, Tensor] | None = None
        if numerical == "clamp":
            one = torch.ones_like(scale) if unit is None else torch.where(self.numbers, unit, torch.ones_like(scale))
            self.free, endless = self.free * one, torch.full_like(scale, torch.inf)
            self.bounds = (
                torch.where(self.numbers, lower / one, -endless),
                torch.where(self.numbers, upper / one, endless),
            )
        self.followers: tuple[list[int], Tensor, Tensor] | None = None
        self.has_free = bool(self.free.any())
        self.blocks = [block.slice for block in layout.categorical] if categorical == "softmax" else []

    def __call__(self, z: Tensor) -> Tensor:
        """Relax ``[..., d]`` to ``[..., d]``; autograd differentiates it once."""
        relaxed: Tensor = _Relax.apply(z, self)
        return relaxed

    @property
    def repeats(self) -> bool:
        """Whether every step of an optimization does the same to its rows, on the device alone."""
        return self.temperature_end == 1 and self.followers is None

    def at(self, share: float) -> "Relaxation":
        """Return the relaxation after a share of the optimization, at temperature ``temperature_end ** share``."""
        if self.temperature_end == 1:
            return self
        cooled, temperature = copy.copy(self), self.temperature_end**share
        cooled.logit_scale, cooled.logit_shift = self.logit_scale / temperature, self.logit_shift / temperature
        return cooled

    def only(self, present: Tensor) -> "Relaxation":
        """Return the relaxation with zero weight on categories that are not present.

        Args:
            present: bool ``[..., d]``, broadcast against ``z``; read at the columns that a softmax relaxes. A block
                without any present category keeps all of them.
        """
        kept = present.clone()
        for block in self.blocks:
            kept[..., block] |= ~present[..., block].any(-1, keepdim=True)
        masked = copy.copy(self)
        ruled_out = ~kept & (self.logit_scale != 0)
        masked.logit_shift = torch.where(ruled_out, torch.full_like(self.logit_shift, -torch.inf), self.logit_shift)
        return masked

    def following(self, positions: list[int], offset: Tensor, follows: Tensor) -> "Relaxation":
        """Return the relaxation with some columns affine in the others: ``x[positions] = offset + x follows``.

        Args:
            positions: b encoded columns.
            offset: ``[..., b]``, broadcast against rows.
            follows: ``[..., d, b]``, likewise; no column of these may depend on another of them, but on itself.
        """
        bound = copy.copy(self)
        bound.followers = (positions, offset, follows)
        return bound

    def with_numbers(self, z: Tensor, x: Tensor) -> Tensor:
        """Return ``z`` ``[..., d]`` with the variables of the numbers set so that they relax to encoded ``x``."""
        inside = (x - self.constant) / torch.where(self.span > 0, self.span, torch.ones_like(self.span))
        bounded = torch.logit(torch.where(self.span > 0, inside, torch.full_like(inside, 0.5)), eps=EDGE)
        free = x / torch.where(self.free > 0, self.free, torch.ones_like(self.free))
        return torch.where(self.numbers, torch.where(self.free > 0, free, bounded), z)

    def _block_sums(self, values: Tensor) -> Tensor:
        """At every position the sum over its own block."""
        return (values @ self.member) @ self.member.T

    def forward(self, z: Tensor) -> tuple[Tensor, State]:
        """Relaxed rows and what `backward` needs; no autograd graph."""
        logits = torch.addcmul(self.logit_shift, z, self.logit_scale)
        for block in self.blocks:
            of_block = logits[..., block]
            of_block.sub_(of_block.amax(-1, keepdim=True))
        soft = logits.exp_()
        soft = soft.div_(self._block_sums(soft))
        inside = torch.sigmoid(z)
        x = torch.addcmul(self.constant, soft, self.soft_scale).addcmul_(inside, self.span)
        if self.has_free:
            x.addcmul_(z, self.free)
        if self.followers is not None:
            positions, offset, follows = self.followers
            x[..., positions] = offset + x @ follows
        return x, (soft, inside)

    def backward(self, grad: Tensor, state: State) -> Tensor:
        """Carry a derivative by the relaxed rows ``[..., d]`` back to ``z``, in closed form.

        Autograd's graph would cost as much again as the forward.
        """
        soft, inside = state
        if self.followers is not None:
            positions, _, follows = self.followers
            of_followers, grad = grad[..., positions], grad.clone()
            grad[..., positions] = 0
            grad += of_followers @ follows.transpose(-1, -2)
        weighted = soft * (grad * self.soft_scale)
        by_z = torch.addcmul(weighted, soft, self._block_sums(weighted), value=-1).mul_(self.logit_scale)
        by_z.addcmul_(grad * self.span, torch.addcmul(inside, inside, inside, value=-1))
        return by_z.addcmul_(grad, self.free) if self.has_free else by_z


class _Relax(torch.autograd.Function):
    """`Relaxation` as seen by autograd."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, relaxation: Relaxation) -> Tensor:
        x, state = relaxation.forward(z)
        ctx.relaxation = relaxation
        ctx.save_for_backward(*state)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.relaxation.backward(grad, ctx.saved_tensors), None
