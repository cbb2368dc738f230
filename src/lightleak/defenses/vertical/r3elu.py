r"""D3: randomized responses in both directions, R3eLU (Mao et al., ESORICS 2023, arXiv:2304.09515).

Of a record's N values v the K of largest magnitude stay, clipped to magnitude C; the others become 0. With
``h = (epsilon / 2) / K``, ``q = e^h / (1 + e^h)`` and ``b = 2 K C / (epsilon / 2)``, value i responds with probability
``p_i = 1/2 + |v_i| / max|v| * (q - 1/2)``, and what travels is

* forward (Algorithm 1): ``relu(v_i + Lap(b))`` where it responds, 0 where it does not;
* backward (Algorithm 2): ``v_i + Lap(b)`` where it responds, ``Lap(b)`` where it does not.

What travels of one record in one step and direction is epsilon-differentially private. Let v and v' be any two records.

*Which values respond.* All p lie in [1/2, q], and outside the K kept values p = 1/2. Let ``u = log((1 + e^h) / 2)``
and ``d = h - u = log(2 q)``; then ``d <= u <= h``. Of a value that is kept in v only, v makes no answer more likely
than v' does by a factor above ``e^d`` (it responds); of one kept in v' only, by none above ``e^u`` (it is silent); of
one kept in both, by none above ``e^u``; of all others, by none. With j kept in both that is
``(K - j) (d + u) + j u <= K h = epsilon / 2`` in the exponent.

*The noise.* Two vectors of K values of magnitude at most C are at most 2 K C apart in L1, signs included, and silencing
values brings them no further apart. So, given who responds, Laplace noise of scale b changes densities by a factor of
at most ``e^(epsilon / 2)``; relu afterwards changes nothing. Together that is ``e^epsilon``.

This is the mechanism with one budget for all values; the paper's allocation by the values' importance is not here. The
budget is that of one record, party, direction and step: T epochs spend up to T times as much in each direction. It
holds for real numbers; floating-point noise is not hardened against an adversary who reads its last bits.

Neither ProVFL's text nor its code says which K, C and budget its Table XVI used. Noise of scale 2 K C / (epsilon / 2)
at K = 8 drowns values of at most C: a budget of 10 per record leaves an AUC of 0.5. The table's AUC rises with epsilon,
as it does here where epsilon is the budget of every kept value (``per="value"``) and C is near the values' size.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.defenses.draws import laplace, of_this_process, uniform
from lightleak.defenses.vertical.defense import VERTICAL_DEFENSES, VerticalDefense
from lightleak.targets.split import Transform

Budget = Literal["record", "value"]
Use = Literal["forward", "test", "backward"]


@VERTICAL_DEFENSES.register("r3elu")
@dataclass(frozen=True)
class R3eluDefense(VerticalDefense):
    """Send outputs and gradients as randomized responses (R3eLU).

    The definition stands at the head of this module.

    Attributes:
        epsilon: budget of one step and direction, halved between responses and noise.
        per: ``record``: a record spends epsilon. ``value``: it spends epsilon for each of its K kept values.
        kept: K; default: half the width, as in the paper.
        output_bound: C of outputs.
        gradient_bound: C of gradients, in units of the gradient of the record's own loss (the batch's size times that
            of the mean loss).
        at_test: outputs are randomized when the model is tested, too.

    Raises:
        UsageError: a setting out of range.

    Needs:
        * The budget is spent anew by every record, party, direction and step.

    Deviates:
        * One budget for all values; the paper's allocation by their importance is left out.
        * ProVFL does not say which K, C and budget its Table XVI used; ``per: value`` comes near its accuracy.
    """

    name = "r3elu"
    citation = "Mao et al., Secure split learning, ESORICS 2023, arXiv:2304.09515"
    words = "randomized outputs and gradients at epsilon {epsilon:g} per {per}"
    varies = "epsilon"

    epsilon: float = bounded(4.0, gt=0)
    per: Budget = "record"
    kept: int | None = bounded(None, ge=1)
    output_bound: float = bounded(10.0, gt=0)
    gradient_bound: float = bounded(10.0, gt=0)
    at_test: bool = True

    def transform(self, seed: int) -> Transform:
        """See `VerticalDefense`."""
        return R3eluTransform(self, seed)


class R3eluTransform(Transform):
    """Randomizes both directions of one training; testing draws from a generator of its own."""

    def __init__(self, defense: R3eluDefense, seed: int) -> None:
        self.defense = defense
        self.seed = seed
        self._made: dict[Use, torch.Generator] = {}

    def draws(self, use: Use) -> torch.Generator:
        """The generator for one use, made at its first draw, when the rank of this process is known."""
        if use not in self._made:
            self._made[use] = of_this_process(self.seed, "defense", self.defense.name, use)
        return self._made[use]

    def outputs(self, outputs: Tensor, training: bool) -> Tensor:
        """Randomized outputs ``[parties, batch, width]``, differentiable in those that responded."""
        if not (training or self.defense.at_test):
            return outputs
        draws = self.draws("forward" if training else "test")
        values, responds, noise = self._randomize(outputs, self.defense.output_bound, draws)
        return torch.relu(values + noise) * responds

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        """Randomized gradients ``[parties, batch, width]``."""
        bound = self.defense.gradient_bound / gradients.shape[1]
        values, responds, noise = self._randomize(gradients, bound, self.draws("backward"))
        return values * responds + noise

    def _randomize(self, values: Tensor, bound: float, draws: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        width = values.shape[-1]
        kept = min(self.defense.kept or max(1, width // 2), width)
        epsilon = self.defense.epsilon * (kept if self.defense.per == "value" else 1)
        return randomize(values, epsilon, kept, bound, draws)


def randomize(
    values: Tensor, epsilon: float, kept: int, bound: float, draws: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Clipped values, which of them respond, and noise for them, each ``[.., width]`` (see `R3eluDefense`)."""
    clipped = clip_largest(values, kept, bound)
    magnitudes = clipped.detach().abs()
    responds = uniform(values.shape, values, draws) < response_probability(magnitudes, epsilon / 2, kept)
    noise = laplace(values.shape, 2 * kept * bound / (epsilon / 2), values, draws)
    return clipped, responds, noise


def clip_largest(values: Tensor, kept: int, bound: float) -> Tensor:
    """The ``kept`` values of largest magnitude in every row ``[.., width]``, clipped to ``[-bound, bound]``; others 0.

    >>> clip_largest(torch.tensor([0.5, -3.0, 0.1]), 2, 1.0).tolist()
    [0.5, -1.0, 0.0]
    """
    largest = values.detach().abs().topk(kept, dim=-1).indices
    stays = torch.zeros_like(values, dtype=torch.bool).scatter_(-1, largest, True)
    return values.clamp(-bound, bound) * stays


def response_probability(magnitudes: Tensor, epsilon: float, kept: int) -> Tensor:
    """Probability that each value ``[.., width]`` responds: 1/2 for 0, most for a row's largest."""
    highest = 1 / (1 + math.exp(-epsilon / kept))
    share = magnitudes / magnitudes.amax(-1, keepdim=True).clamp(min=torch.finfo(magnitudes.dtype).tiny)
    return 0.5 + share * (highest - 0.5)
