"""TabLeak's continuous relaxation of a row: softmax over each categorical block, sigmoid into bounds for each number.

The whole encoded vector is treated at once. A block's softmax denominator is a product with a block-diagonal matrix of
ones, kept as its two thin factors: two small matrix products instead of a gather and scatter per column.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightleak.data.layout import EncodedLayout

CategoricalRelaxation = Literal["softmax", "none"]
NumericalRelaxation = Literal["sigmoid", "none"]
State = tuple[Tensor, Tensor]


class Relaxation:
    """A differentiable map from an unconstrained ``z`` to an encoded row ``x`` (TabLeak Eq. 2 and App. B).

    Softmax acts in the raw one-hot space: ``x = (softmax(scale z + shift) - shift) / scale`` per categorical block, and
    ``x = lower + (upper - lower) sigmoid(z)`` per number. ``none`` leaves that kind of column as it is.

    Args:
        layout: where the columns lie.
        shift: ``[d]`` mean removed from the one-hot columns by the encoder.
        scale: ``[d]`` deviation they were divided by.
        lower: ``[d]`` lowest encoded value (read at numerical positions).
        upper: ``[d]`` highest encoded value.
        categorical: relaxation of categorical blocks.
        numerical: relaxation of numbers.
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
    ) -> None:
        soft = torch.zeros(layout.width, dtype=torch.bool, device=shift.device)
        bound = torch.zeros_like(soft)
        member = torch.zeros(layout.width, len(layout.blocks), dtype=shift.dtype, device=shift.device)
        for i, block in enumerate(layout.blocks):
            member[block.slice, i] = 1
            soft[block.slice] = block.categorical and categorical == "softmax"
            bound[block.slice] = not block.categorical and numerical == "sigmoid"
        self.member = member
        # Everything is a sum of masked terms: outside the soft columns the logit is 0, so that exp never overflows on a
        # number, and a term that does not concern a column is multiplied by 0 there.
        zero = torch.zeros_like(scale)
        self.logit_scale, self.logit_shift = torch.where(soft, scale, zero), torch.where(soft, shift, zero)
        self.soft_scale = torch.where(soft, 1 / scale, zero)
        self.span = torch.where(bound, upper - lower, zero)
        self.constant = torch.where(soft, -shift / scale, torch.where(bound, lower, zero))
        self.free = (~(soft | bound)).to(scale.dtype)
        self.has_free = bool(self.free.any())
        self.blocks = [block.slice for block in layout.categorical] if categorical == "softmax" else []

    def __call__(self, z: Tensor) -> Tensor:
        """Relax ``[..., d]`` to ``[..., d]``; autograd differentiates it once."""
        relaxed: Tensor = _Relax.apply(z, self)
        return relaxed

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
        return (x.addcmul_(z, self.free) if self.has_free else x), (soft, inside)

    def backward(self, grad: Tensor, state: State) -> Tensor:
        """Carry a derivative by the relaxed rows ``[..., d]`` back to ``z``, in closed form.

        Autograd's graph would cost as much again as the forward.
        """
        soft, inside = state
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
