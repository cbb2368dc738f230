"""Joint inversion of pruned updates, by an attacker who knows how they were pruned.

What a client sent is exact. What it left out is zero in the update, but not in the gradient: under magnitude pruning
(top-k compression) it is at most as large as the smallest element sent, and what was cut off at a largest size is at
least as large. So elements that are not known are filled in with what the rows found so far give them, within these
bounds, and the rows are found again: an alternating minimization of the distance to the elements sent and to the
intervals of the others.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.joint.attack import (
    JointInversion,
    certified_rows,
    pose,
)
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.course import Report, Solution, solve_noised
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.labels import starting_labels
from lightleak.attacks.gradient_inversion.joint.noise import ROUNDING
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.encoder import TableEncoder

LeftOut = Literal["smallest", "any"]

UNIFORM = 3**-0.5
"""Deviation of an element that lies anywhere between minus and plus a bound of 1."""


@dataclass(frozen=True)
class PrunedConfig(JointConfig):
    """Settings of the attack on pruned updates; see `JointConfig` for the others.

    Attributes:
        left_out: which elements of a tensor the client left out: the ``smallest``, or ``any`` (random pruning).
        fills: how often elements that were left out are filled in at most, and the rows found again.
        noised_restarts: starts that are pooled each time; rows are found from fresh starts, which leave poor minima.
        noised_rounds: none, as every filling in is a round.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact_pruned"

    left_out: LeftOut = "smallest"
    fills: int = 9
    noised_restarts: int = 2
    noised_rounds: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "fills")


@dataclass(frozen=True)
class Pruned:
    """A gradient of which some elements were left out, or cut off at a largest size.

    Attributes:
        sent: the gradient as it was sent ``[out, in + 1]`` per layer, zero where elements were left out.
        lowest: least value that an element of the gradient may have; the element itself where it was sent whole.
        highest: largest value.
        deviation: root mean square over all elements of how far they may be from what was sent.
    """

    sent: Gradient
    lowest: Gradient
    highest: Gradient
    deviation: float

    @classmethod
    def of(cls, sent: Gradient, left_out: LeftOut) -> "Pruned":
        """Read off the values what was left out: zeros, and the largest size, where several units have it.

        A tensor of zeros was not sent at all. Weights and biases were pruned each on their own.
        """
        lowest, highest, squares = [], [], 0.0
        cut_at = _cut_at(sent)
        for layer in sent:
            size, unknown = layer.abs(), layer.clone().zero_()
            bound = torch.full_like(layer, torch.inf)
            for part in (slice(None, -1), slice(-1, None)):
                is_sent = layer[:, part] != 0
                if bool(is_sent.any()) and left_out == "smallest":
                    bound[:, part] = size[:, part][is_sent].min()
            is_out, is_cut = layer == 0, size == cut_at
            typical = layer.square().mean().sqrt()
            unknown = torch.where(is_out, torch.where(bound.isinf(), typical, UNIFORM * bound), 0.0)
            squares += float((unknown.square() + torch.where(is_cut, size, 0.0).square()).sum())
            lowest.append(torch.where(is_out, -bound, torch.where(is_cut & (layer < 0), -torch.inf, layer)))
            highest.append(torch.where(is_out, bound, torch.where(is_cut & (layer > 0), torch.inf, layer)))
        elements = sum(layer.numel() for layer in sent)
        return cls(sent, tuple(lowest), tuple(highest), (squares / elements) ** 0.5)

    def filled(self, explained: Gradient) -> Gradient:
        """The gradient with what is not known of its elements as rows explain them."""
        each = zip(explained, self.lowest, self.highest, strict=True)
        return tuple(own.clamp(low, high) for own, low, high in each)


def _cut_at(sent: Gradient) -> float:
    """Size at which elements were cut off; infinity if none was.

    The largest size of an element is of one unit alone, or of two classes whose errors are opposite.
    """
    largest = max(layer.abs().max() for layer in sent)
    units = sum(int((layer.abs() == largest).any(1).sum()) for layer in sent)
    return float(largest) if units > MOST_ALIKE else torch.inf


MOST_ALIKE = 2
"""Units that may have the largest size of an element without its having been cut off."""


def _mean_square(layers: list[Tensor]) -> float:
    """Root mean square of all elements."""
    elements = sum(layer.numel() for layer in layers)
    return float((sum(layer.square().sum() for layer in layers) / elements) ** 0.5)


class PrunedInversion(JointInversion):
    """Recover all rows of a FedSGD batch of which a client sent some elements of the gradient only.

    Needs what joint inversion needs, and how the update was pruned. Nothing is certified.
    """

    name = "exact_pruned"
    title = "Exact inversion of pruned updates"
    combines_releases: ClassVar[bool] = False
    config: PrunedConfig

    def check_protocol(self, update: ClientUpdate) -> None:
        """See `JointInversion`; an update without zeros was not pruned."""
        super().check_protocol(update)
        if all(bool(value.all()) for value in update.update.values()):
            raise ObservationError(f"{self.name} inverts pruned updates, and this one has no element of zero")

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        pruned = Pruned.of(observed_gradient(update, encoder.shift.device), self.config.left_out)
        target, noise = pruned.sent, pruned.deviation if self.config.noise is None else self.config.noise
        least = ROUNDING * _mean_square(list(pruned.sent))
        best: tuple[float, JointProblem, Solution] | None = None
        rounds = self.config.fills + 1
        for fill in range(rounds):
            problem = pose(update, encoder, target, max(noise, least), self.config)
            draws = generator(seed, "pruned", fill)
            labels = starting_labels(update, problem.space, draws) if best is None else best[2].rows.labels
            found = solve_noised(
                problem, labels, self.config, draws, derive_seed(seed, "pruned", fill), _part(progress, rounds)
            )
            explained = tuple(t - r for t, r in zip(problem.target, problem.residual(found.rows), strict=True))
            target = pruned.filled(explained)
            noise = _mean_square([t - e for t, e in zip(target, explained, strict=True)])
            is_better = best is None or noise < best[0]
            is_same = best is not None and torch.equal(best[2].rows.codes, found.rows.codes)
            if best is None or is_better:
                best = noise, replace(problem, target=target), found
            if noise <= least or is_same:
                break
        assert best is not None  # there is a round at least
        feasibility = estimate_feasibility(best[1].target, update.facts.n_rows, best[0], row_kind(update, encoder))
        return certified_rows(best[1], update, best[2], feasibility)


def _part(progress: Progress | None, parts: int) -> Report:
    """Report the share done of one of several parts as work done since the last call."""
    done = 0.0

    def report(share: float) -> None:
        nonlocal done
        if progress is not None and share > done:
            progress((share - done) / parts)
        done = max(done, share)

    return report
