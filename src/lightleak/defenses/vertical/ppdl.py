"""D2: selective noisy gradients (Shokri and Shmatikov, CCS 2015; ProVFL, Sec. VII-B)."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.defenses.draws import exponential, laplace, of_this_process, uniform
from lightleak.defenses.vertical.defense import VERTICAL_DEFENSES, VerticalDefense
from lightleak.targets.split import Transform


@VERTICAL_DEFENSES.register("ppdl")
@dataclass(frozen=True)
class PpdlDefense(VerticalDefense):
    """Few gradient entries travel, chosen by a noisy threshold test, bounded and with noise.

    Each party's n gradient entries of a batch, of which ``c = ratio * n`` are wanted, are visited in random order. An
    entry g is chosen where ``|bound(g)| + Lap(2a) >= threshold + Lap(a)``, ``a = 2 c sensitivity / (8/9 epsilon)``; the
    threshold's noise is drawn anew after every choice. What travels of a chosen entry is ``bound(g + Lap(b))``,
    ``b = 2 c sensitivity / (2/9 epsilon)``, and of all others 0.

    With the published settings a is 640 at ``c = 512`` where entries are bounded by 0.001: the choice is blind to the
    gradients, and what is chosen travels as ``+-bound`` at random.

    Attributes:
        ratio: share of the entries that is to travel (theta_u; r_G in Table XVI).
        epsilon: privacy budget of a batch and party.
        sensitivity: assumed sensitivity of an entry.
        bound: entries are clipped to ``[-bound, bound]`` (gamma).
        threshold: magnitude to pass (tau).
        as_published: where all entries were visited before c were chosen, those not chosen are sent unchanged, exact
            and unbounded, as in the published code. A choice takes 2.77 visits on average (batches of 64 with width 16:
            entries run out in all of them at ratio 0.5, in 1.2% at 0.25). Default: they do not travel.

    Raises:
        UsageError: a setting out of range.

    Needs:
        * With the published settings the choice of entries is blind to the gradients.

    Deviates:
        * Entries that were not chosen do not travel; in the published code, where entries run out, all those are sent
          unchanged (``as_published: true``).
    """

    name = "ppdl"
    citation = "Shokri and Shmatikov, Privacy-preserving deep learning, CCS 2015"
    varies = "ratio"

    ratio: float = bounded(0.25, gt=0, le=1)
    epsilon: float = bounded(1.8, gt=0)
    sensitivity: float = bounded(1.0, gt=0)
    bound: float = bounded(0.001, gt=0)
    threshold: float = bounded(0.0001, gt=0)
    as_published: bool = False

    def transform(self, seed: int) -> Transform:
        """See `VerticalDefense`."""
        return PpdlTransform(self, seed)

    def describe(self) -> str:
        """See `VerticalDefense`."""
        rest = ", the rest unchanged where entries run out" if self.as_published else ""
        return f"{self.ratio:.0%} of the gradients, noisy, at epsilon {self.epsilon:g}{rest}"


class PpdlTransform(Transform):
    """Chooses and perturbs the gradients of one training."""

    def __init__(self, defense: PpdlDefense, seed: int) -> None:
        self.defense = defense
        self.seed = seed

    @cached_property
    def draws(self) -> torch.Generator:
        """Made at the first draw, when the rank of this process is known."""
        return of_this_process(self.seed, "defense", self.defense.name)

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        """What travels of gradients ``[parties, batch, width]``, each party's on its own."""
        return selective_noisy_gradients(gradients.flatten(1), self.defense, self.draws).view_as(gradients)


def selective_noisy_gradients(gradients: Tensor, defense: PpdlDefense, draws: torch.Generator) -> Tensor:
    """What travels of gradients ``[parties, n]``, see `PpdlDefense`."""
    bound, n = defense.bound, gradients.shape[1]
    count = max(1, int(defense.ratio * n))
    budget = 2 * count * defense.sensitivity / defense.epsilon
    chosen = choose(gradients.abs().clamp(max=bound), count, defense.threshold, budget * 9 / 8, draws)
    travels = F.pad(torch.zeros_like(gradients), (0, 1))
    if defense.as_published:
        ran_out = chosen[:, -1:] == n
        travels[:, :n] = gradients * ran_out
    values = F.pad(gradients, (0, 1)).gather(1, chosen)
    noise = laplace(chosen.shape, budget * 9 / 2, gradients, draws)
    return travels.scatter_(1, chosen, (values + noise).clamp_(-bound, bound))[:, :n]


def choose(magnitudes: Tensor, count: int, threshold: float, scale: float, draws: torch.Generator) -> Tensor:
    """Noisy threshold tests on entries in random order until ``count`` of them have passed, without visiting each.

    Under one draw of the threshold an entry of magnitude m passes with probability p(m), at most p(M) with M the
    party's largest. So the visits up to the next entry that would pass with p(M) are geometric; that entry then passes
    with probability p(m) / p(M), and where it does not, the visits continue under the same threshold. Exact in
    distribution, and one round of tensor operations where noise dwarfs the magnitudes.

    Args:
        magnitudes: ``[parties, n]``; every party's entries are chosen on their own.
        count: entries to choose.
        threshold: magnitude to pass.
        scale: Laplace scale of the noise on the threshold; that on a magnitude is twice as large.
        draws: source of all randomness.

    Returns:
        LongTensor ``[parties, count]``: the chosen entries; n at the end of a row whose entries ran out.
    """
    parties, n = magnitudes.shape
    order = torch.stack([torch.randperm(n, generator=draws) for _ in range(parties)]).to(magnitudes.device)
    needed = threshold + laplace((parties, count), scale, magnitudes, draws)
    most = _survival(needed - magnitudes.amax(1, keepdim=True), 2 * scale)
    rate = (-torch.log1p(-most)).clamp(min=torch.finfo(most.dtype).tiny)

    def visits() -> Tensor:
        drawn = torch.ceil(exponential((parties, count), magnitudes, draws) / rate)
        return drawn.clamp(1, n + 1).long()

    steps, luck = visits(), uniform((parties, count), magnitudes, draws)
    while True:
        at = steps.cumsum(1) - 1
        inside = at < n
        entries = order.gather(1, at.clamp(max=n - 1))
        passes = luck * most < _survival(needed - magnitudes.gather(1, entries), 2 * scale)
        failed = inside & ~passes
        if not failed.any():
            return torch.where(inside, entries, n)
        # Visits and luck after the first failure have decided nothing yet: they stand, one wait further on.
        first = failed & (failed.cumsum(1) == 1)
        steps = torch.where(first, steps + visits(), steps)
        luck = torch.where(first, uniform((parties, count), magnitudes, draws), luck)


def _survival(value: Tensor, scale: float) -> Tensor:
    """Probability that Laplace noise of ``scale`` is at least ``value``."""
    tail = 0.5 * torch.exp(-value.abs() / scale)
    return torch.where(value > 0, tail, 1 - tail)
