"""Numbers and their ranks among the values known: the scale of the ``quantile`` encoding."""

import torch
from torch import Tensor


def rank_of(values: Tensor, knots: Tensor) -> Tensor:
    """Rank in [0, 1] of ``values`` ``[...]`` among ascending ``knots`` ``[k]``, linear in between, clamped at the ends.

    >>> rank_of(torch.tensor([0.0, 5.0, 10.0, 30.0]), torch.tensor([0.0, 10.0, 20.0]))
    tensor([0.0000, 0.2500, 0.5000, 1.0000])
    """
    if len(knots) == 1:
        return torch.zeros_like(values)
    inside = values.clamp(knots[0], knots[-1]).contiguous()
    left = (torch.searchsorted(knots, inside, right=True) - 1).clamp_max(len(knots) - 2)
    below, above = knots[left], knots[left + 1]
    return (left + (inside - below) / (above - below)) / (len(knots) - 1)


def value_at(ranks: Tensor, knots: Tensor) -> Tensor:
    """Inverse of `rank_of`; a rank within float32 rounding of a knot's is that knot.

    >>> value_at(torch.tensor([0.0, 0.25, 0.5, 2.0]), torch.tensor([0.0, 10.0, 20.0]))
    tensor([ 0.,  5., 10., 20.])
    """
    place = ranks.clamp(0, 1) * (len(knots) - 1)
    nearest = place.round()
    place = torch.where((place - nearest).abs() <= 2.0**-24 * len(knots), nearest, place)
    left = place.floor().long()
    right = (left + 1).clamp_max(len(knots) - 1)
    return torch.lerp(knots[left], knots[right], place - left)
