"""Guessing games about one row of a DP-SGD release, and the success that the guarantee allows.

A batch's other rows are known, and one row is one of k candidates: different rows, or one row with every value of a
secret column. The server sees the sum of clipped gradients plus Gaussian noise. Whichever candidate is true, what
remains after the known rows are subtracted is Gaussian around its clipped gradient, so the likelihoods are known, and
the candidate of the largest posterior probability is the best possible guess.

The bound is the reconstruction robustness of Hayes, Mahloujifar and Balle (Bounding Training Data Reconstruction in
DP-SGD, NeurIPS 2023) for one release, from the Gaussian trade-off function of Dong, Roth and Su (Gaussian Differential
Privacy, JRSS B 2022).
"""

import torch
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest
from torch import Tensor

SMALLEST = 1e-300
"""In place of a prior of zero, whose logarithm without noise would be lost."""


def success_bound(noise: float, prior: Tensor, reach: float = 1.0) -> float:
    """Return the largest probability with which any attack guesses the true candidate.

    With the row left out, the release does not depend on the candidate, and guesses hit it with probability
    ``max(prior)`` at most. An event of probability q there has at most ``Phi(Phi^-1(q) + reach / noise)`` with the row,
    which is concave in q, so that the bound holds for the mean over candidates as well.

    Args:
        noise: noise multiplier; without noise the bound is 1.
        prior: probabilities of the candidates ``[k]``.
        reach: largest distance of a candidate's gradient from a common point, in clipping norms. The guarantee knows
            only that all are within 1 of zero.

    >>> [round(success_bound(noise, torch.tensor([0.5, 0.5])), 3) for noise in (0.5, 1, 8)]
    [0.977, 0.841, 0.55]
    """
    return 1.0 if noise == 0 else float(ndtr(ndtri(float(prior.max())) + reach / noise))


def coordinates(gradients: Tensor) -> Tensor:
    """Return the vectors ``[k, p]`` as points ``[k, min(k, p)]`` with the same distances from one another.

    Noise outside the space that they span is the same for all candidates and changes no likelihood ratio; inside it,
    in an orthonormal basis, it stays Gaussian with the same deviation. A trial costs k numbers in place of p.
    """
    shifted = (gradients - gradients[0]).double()
    return torch.linalg.qr(shifted.T).R.T


def guess(released: Tensor, candidates: Tensor, noise: float, prior: Tensor) -> Tensor:
    """Return the candidate of the largest posterior probability for each release, LongTensor ``[n]``.

    Args:
        released: what is left of each release without the known rows ``[n, r]``.
        candidates: gradients, or their `coordinates` ``[k, r]``, in clipping norms.
        noise: noise multiplier.
        prior: probabilities of the candidates ``[k]``.
    """
    squares = torch.cdist(released, candidates, compute_mode="donot_use_mm_for_euclid_dist").square()
    return (squares / 2 - noise**2 * prior.to(squares).clamp(min=SMALLEST).log()).argmin(dim=1)


def play(candidates: Tensor, noise: float, prior: Tensor, trials: int, draws: torch.Generator) -> Tensor:
    """Play the game and return which trials were won, BoolTensor ``[trials]``.

    Args:
        candidates: clipped gradients ``[k, p]``, in clipping norms.
        noise: noise multiplier.
        prior: probabilities from which the true candidate is drawn ``[k]``.
        trials: how many.
        draws: a CPU generator.
    """
    points = coordinates(candidates)
    truth = torch.multinomial(prior.double(), trials, replacement=True, generator=draws)
    released = points[truth] + noise * torch.randn(trials, points.shape[1], dtype=points.dtype, generator=draws)
    return guess(released, points, noise, prior) == truth


def exceeds(wins: int, trials: int, bound: float, level: float = 1e-4) -> bool:
    """Return whether more trials were won than a bound on every trial's success explains (exact binomial test).

    Trials may differ in their probabilities: wins of independent trials that all respect the bound are at most
    binomial. A true bound is rejected with probability ``level`` at most.

    >>> exceeds(520, 1000, 0.5), exceeds(600, 1000, 0.5)
    (False, True)
    """
    return bool(binomtest(wins, trials, min(bound, 1.0), alternative="greater").pvalue < level)
