"""What is believed of rows before an update: a start, and priors added to the matching loss.

The squared norm and the distance of BatchNorm statistics are GradInversion's (Yin et al. 2021), as TabLeak adapts them
to tables.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.matcher import Annealed, Matcher, Penalty, Statistics
from lightleak.attacks.gradient_inversion.tables.row_prior import SKEWED_WITHIN, RowPrior
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.relaxation import Relaxation

LEAST_SHARE = 1e-4
"""Share that a category counts with at least: one that the marginals never saw may still be in the batch."""

SHARE_OF_LOGIT = 0.5
"""Part of the log shares that a start's logits have: all of it would leave rare categories without any weight."""

NUMBER_NOISE = 0.5
"""Deviation of starting numbers about their mean, in their own deviations."""

BOUND_NOISE = 0.05
"""The same for numbers that start at their lower bound, to one side."""


@dataclass(frozen=True)
class RowBelief:
    """Independent beliefs of cells at their encoded positions, ``[updates, 1, 1, d]`` each.

    Attributes:
        log_share: of categories; 0 at numbers.
        shift: what takes an encoded category back to its probability: ``p = scale x + shift``.
        scale: likewise; 0 at numbers.
        mean: of encoded numbers; 0 at categories.
        deviation: of encoded numbers; infinite at categories.
        lower: least encoded numbers.
        upper: greatest encoded numbers.
        skewed: numbers that pile up at their lower bound.
    """

    log_share: Tensor
    shift: Tensor
    scale: Tensor
    mean: Tensor
    deviation: Tensor
    lower: Tensor
    upper: Tensor
    skewed: Tensor

    @classmethod
    def of(
        cls, updates: Sequence[ClientUpdate], encoder: TableEncoder, device: torch.device, dtype: torch.dtype
    ) -> "RowBelief":
        """From the marginals that each update carries, or what else is known (`RowPrior.of`)."""
        each = [cells_believed(RowPrior.of(update, encoder), encoder) for update in updates]
        return cls.stacked(each, device, dtype)

    @classmethod
    def stacked(cls, each: Sequence[tuple[Tensor, ...]], device: torch.device, dtype: torch.dtype) -> "RowBelief":
        """From what `cells_believed` returns for every update."""
        stacked = [torch.stack(values)[:, None, None].to(device) for values in zip(*each, strict=True)]
        return cls(*(value if value.dtype == torch.bool else value.to(dtype) for value in stacked))

    def start(self, noise: Tensor, relaxation: Relaxation) -> Tensor:
        """Variables near the prior.

        Args:
            noise: standard normal ``[updates, restarts, rows, d]``.
            relaxation: what the variables are of; its softmax takes them as logits.
        """
        number = self.deviation.isfinite()
        spread = torch.where(number, self.deviation, torch.zeros_like(self.deviation))
        near = self.mean + NUMBER_NOISE * spread * noise
        at_bound = self.lower + BOUND_NOISE * spread * noise.abs()
        values = torch.where(self.skewed, at_bound, near).clamp(self.lower, self.upper)
        return relaxation.with_numbers(SHARE_OF_LOGIT * self.log_share + noise, values)

    def penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy to the shares plus half the squared deviations, summed over rows; derivative by ``x``.

        Args:
            x: encoded rows ``[updates, restarts, rows, d]``.
        """
        away = (x - self.mean) / self.deviation
        surprise = self.log_share * torch.addcmul(self.shift, x, self.scale)
        value = (0.5 * away.square() - surprise).sum((-1, -2))
        return value, away / self.deviation - self.log_share * self.scale


class BelievedMatcher:
    """A matcher whose loss has the rows' prior added.

    Args:
        matcher: of the update.
        belief: of rows.
        weight: of the prior per row of the client.
    """

    def __init__(self, matcher: Matcher, belief: RowBelief, weight: float) -> None:
        self.matcher, self.belief, self.weight = matcher, belief, weight

    def at(self, share: float) -> "BelievedMatcher":
        """See `Annealed`."""
        moved = copy.copy(self)
        moved.matcher = self.matcher.at(share) if isinstance(self.matcher, Annealed) else self.matcher
        return moved

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`."""
        (value, by_x), (penalty, by_prior) = self.matcher.value_and_grad(x), self.belief.penalty(x)
        return value + self.weight * penalty, by_x.add(by_prior, alpha=self.weight)


def cells_believed(prior: RowPrior, encoder: TableEncoder, bound: Sequence[int] = ()) -> tuple[Tensor, ...]:
    """The fields of `RowBelief` for one update, float64 ``[d]`` each.

    Args:
        prior: of its cells.
        encoder: of its rows.
        bound: encoded positions of numbers of which nothing is believed.
    """
    at, zero = encoder.numerical_positions, torch.zeros_like(encoder.shift)
    log_share, mean, deviation = zero.clone(), zero.clone(), torch.full_like(zero, torch.inf)
    for block, share in zip(encoder.layout.categorical, prior.shares, strict=True):
        log_share[block.slice] = share.clamp_min(LEAST_SHARE).log()
    mean[at] = (prior.mean - encoder.shift[at]) / encoder.scale[at]
    deviation[at] = prior.deviation / encoder.scale[at]
    mean[list(bound)], deviation[list(bound)] = 0.0, torch.inf
    lower, upper = encoder.encoded_bounds()
    skewed = lower > mean - SKEWED_WITHIN * deviation
    shift, scale = encoder.shift.clone(), encoder.scale.clone()
    shift[at], scale[at] = 0.0, 0.0
    return log_share, shift, scale, mean, deviation, lower, upper, skewed & deviation.isfinite()


def batch_norm_distance(measured: Statistics, true: Statistics) -> Tensor:
    """Squared distance of BatchNorm means and variances, summed over layers and channels.

    Args:
        measured: per layer mean and variance of the candidates, ``[updates, restarts, channels]`` each.
        true: those of the client's batch, ``[updates, channels]`` each.

    Returns:
        ``[updates, restarts]``.
    """
    terms = [
        (found - expected.unsqueeze(1)).square().sum(-1)
        for layer, pair in true.items()
        for found, expected in zip(measured[layer], pair, strict=True)
    ]
    return torch.stack(terms).sum(0)


def inversion_penalty(
    updates: Sequence[ClientUpdate], config: InversionConfig, device: torch.device, dtype: torch.dtype
) -> Penalty | None:
    """The penalty a configuration asks for, or ``None``. A network without BatchNorm has no statistics to match.

    Args:
        updates: observations of one network.
        config: ``l2_prior`` and ``batch_norm_prior``.
        device: where to work.
        dtype: in which precision.
    """
    layers = sorted({name.rsplit(".", 1)[0] for name in updates[0].batch_statistics})
    use_statistics = config.batch_norm_prior > 0 and bool(layers)
    if config.l2_prior == 0 and not use_statistics:
        return None

    def shared(name: str) -> Tensor:
        return torch.stack([u.batch_statistics[name] for u in updates]).to(device, dtype)

    true = {layer: (shared(f"{layer}.mean"), shared(f"{layer}.var")) for layer in layers} if use_statistics else {}

    def penalty(x: Tensor, statistics: Statistics) -> Tensor:
        total = config.l2_prior * x.square().sum((-1, -2))
        return total + config.batch_norm_prior * batch_norm_distance(statistics, true) if true else total

    return penalty
