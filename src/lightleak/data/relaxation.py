"""TabLeak's continuous relaxation of a row: softmax over each categorical block, sigmoid into bounds for each number.

The whole encoded vector is treated at once. A block's softmax denominator is a product with a block-diagonal matrix of
ones, which costs one small matrix product instead of a gather and scatter per column, and leaves numbers untouched.
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
        same_block = torch.eye(layout.width, dtype=shift.dtype, device=shift.device)
        for block in layout.blocks:
            if block.categorical and categorical == "softmax":
                soft[block.slice] = True
                same_block[block.slice, block.slice] = 1
            bound[block.slice] = not block.categorical and numerical == "sigmoid"
        self.soft, self.same_block = soft, same_block
        self.free = ~(soft | bound)
        self.has_free = bool(self.free.any())
        self.blocks = [block.slice for block in layout.categorical] if categorical == "softmax" else []
        # Outside the soft columns the logit is 0, so that exp never overflows on a number.
        self.logit_scale = torch.where(soft, scale, torch.zeros_like(scale))
        self.logit_shift = torch.where(soft, shift, torch.zeros_like(shift))
        self.inverse_scale = 1 / scale
        self.lower, self.span = lower, upper - lower

    def __call__(self, z: Tensor) -> Tensor:
        """Relax ``[..., d]`` to ``[..., d]``; differentiable once by autograd."""
        relaxed: Tensor = _Relax.apply(z, self)  # type: ignore[no-untyped-call]
        return relaxed

    def forward(self, z: Tensor) -> tuple[Tensor, State]:
        """Relaxed rows and what `backward` needs; no autograd graph."""
        logits = torch.addcmul(self.logit_shift, z, self.logit_scale)
        for block in self.blocks:
            logits[..., block] -= logits[..., block].amax(-1, keepdim=True)
        soft = logits.exp_()
        soft = soft.div_(soft @ self.same_block)
        inside = torch.sigmoid(z)
        x = torch.where(self.soft, (soft - self.logit_shift) * self.inverse_scale, torch.addcmul(self.lower, inside, self.span))
        if self.has_free:
            x = torch.where(self.free, z, x)
        return x, (soft, inside)

    def backward(self, grad: Tensor, state: State) -> Tensor:
        """Carry a derivative by the relaxed rows back to ``z``, in closed form: autograd's graph would cost as much again."""
        soft, inside = state
        weighted = soft * (grad * self.inverse_scale)
        through_softmax = torch.addcmul(weighted, soft, weighted @ self.same_block, value=-1).mul_(self.logit_scale)
        through_sigmoid = (grad * self.span).mul_(torch.addcmul(inside, inside, inside, value=-1))
        out = torch.where(self.soft, through_softmax, through_sigmoid)
        return torch.where(self.free, grad, out) if self.has_free else out


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
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.relaxation.backward(grad, ctx.saved_tensors), None
