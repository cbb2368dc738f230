"""The rows that a weight update leaves possible: absent categories, constants and ties, by the noise of rounding."""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.prior import RowPrior
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.attacks.gradient_inversion.exact.schema_inference import (
    CLEAR_OF_ROUNDING,
    ROUNDING,
    TRACE,
    infer_space,
)
from lightleak.data.encoder import TableEncoder

BEYOND_NOISE = 3.0
"""A column of noise alone has a norm of ``noise sqrt(h)``, which varies little: three times that is no noise."""


def space_within(gradient: Tensor, encoder: TableEncoder, prior: RowPrior, n_rows: int, noise: float) -> RowSpace:
    """`infer_space` with tolerances from known noise.

    The tolerances there follow the rounding of a gradient; here they are those of a gradient of one magnitude whose
    rounding is this noise, because a weight is rounded by its own size, not by that of its update.

    Args:
        gradient: of the first layer ``[h, d + 1]``.
        encoder: on the same device.
        prior: handed on.
        n_rows: rows behind it.
        noise: deviation of the errors in its elements.
    """
    magnitude = BEYOND_NOISE * noise / (CLEAR_OF_ROUNDING * ROUNDING + TRACE)
    return infer_space(gradient, encoder, prior, n_rows, torch.full_like(gradient, magnitude))
