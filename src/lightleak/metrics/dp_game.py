"""Guessing games about one row of a DP-SGD release, and the success that the guarantee allows.

A batch's other rows are known, and one row is one of k candidates: different rows, or one row with every value of a
secret column. The server sees the sum of clipped gradients plus Gaussian noise. Whichever candidate is true, what
remains after the known rows are subtracted is Gaussian around its clipped gradient, so the likelihoods are known, and
the candidate of the largest posterior probability is the best possible guess. Where a guess near the truth counts as
well, such as a row whose numbers are within a tolerance, the best guess is the one whose neighborhood is most likely.

The bound on every attack is `lightleak.core.guarantee.success_bound`.
"""

import torch
from scipy.stats import binomtest
from torch import Tensor

ROUNDINGS = 16
"""Units of the last place, relative to the candidates, within which two are as near to a release without noise."""

SMALLEST = 1e-300
"""In place of a prior of zero, whose logarithm without noise would be lost."""


def coordinates(gradients: Tensor) -> Tensor:
    """Return the vectors ``[k, p]`` as points ``[k, min(k, p)]`` with the same distances from one another.

    Noise outside the space that they span is the same for all candidates and changes no likelihood ratio; inside it,
    in an orthonormal basis, it stays Gaussian with the same deviation. A trial costs k numbers in place of p.
    """
    shifted = (gradients - gradients[0]).double()
    return torch.linalg.qr(shifted.T).R.T


def guess(released: Tensor, candidates: Tensor, noise: float, prior: Tensor, hits: Tensor | None = None) -> Tensor:
    """Return the guess that is right with the largest posterior probability for each release, LongTensor ``[n]``.

    Without noise that leaves the nearest candidates, each with its prior probability.

    Args:
        released: what is left of each release without the known rows ``[n, r]``.
        candidates: gradients, or their `coordinates` ``[k, r]``, in clipping norms.
        noise: noise multiplier.
        prior: probabilities of the candidates ``[k]``.
        hits: whether guess j counts as right where candidate i is true, bool ``[k, k]``; only ``i == j`` if left out.
    """
    squares = torch.cdist(released, candidates, compute_mode="donot_use_mm_for_euclid_dist").square()
    prior = prior.to(squares).clamp(min=SMALLEST)
    if noise == 0:
        within = (ROUNDINGS * torch.finfo(squares.dtype).eps) ** 2 * candidates.square().sum(dim=1).max()
        odds = torch.where(squares <= squares.amin(dim=1, keepdim=True) + within, prior, 0.0)
        return (odds if hits is None else odds @ hits.to(squares)).argmax(dim=1)
    odds = noise**2 * prior.log() - squares / 2
    if hits is None:
        return odds.argmax(dim=1)
    return ((odds / noise**2).softmax(dim=1) @ hits.to(squares)).argmax(dim=1)


def play(
    candidates: Tensor,
    noise: float,
    prior: Tensor,
    trials: int,
    draws: torch.Generator,
    hits: Tensor | None = None,
) -> Tensor:
    """Play the game and return which trials were won, BoolTensor ``[trials]``.

    Args:
        candidates: clipped gradients or their `coordinates` ``[k, p]``, in clipping norms.
        noise: noise multiplier.
        prior: probabilities from which the true candidate is drawn ``[k]``.
        trials: how many.
        draws: a CPU generator.
        hits: see `guess`.
    """
    points = candidates if candidates.shape[1] <= len(candidates) else coordinates(candidates)
    truth = torch.multinomial(prior.double(), trials, replacement=True, generator=draws)
    released = points[truth] + noise * torch.randn(trials, points.shape[1], dtype=points.dtype, generator=draws)
    guessed = guess(released, points, noise, prior, hits)
    return guessed == truth if hits is None else hits[truth, guessed]


def best_prior(prior: Tensor, hits: Tensor | None = None) -> float:
    """Return how often the best guess without a release is right; arguments as for `guess`.

    >>> near = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
    >>> best_prior(torch.full((4,), 0.25)), round(best_prior(torch.tensor([0.3, 0.3, 0.4]), near), 3)
    (0.25, 0.6)
    """
    return float(prior.max() if hits is None else (prior @ hits.to(prior)).max())


def exceeds(wins: int, trials: int, bound: float, level: float = 1e-4) -> bool:
    """Return whether more trials were won than a bound on every trial's success explains (exact binomial test).

    Trials may differ in their probabilities: wins of independent trials that all respect the bound are at most
    binomial. A true bound is rejected with probability ``level`` at most.

    >>> exceeds(520, 1000, 0.5), exceeds(600, 1000, 0.5)
    (False, True)
    """
    return bool(binomtest(wins, trials, min(bound, 1.0), alternative="greater").pvalue < level)
