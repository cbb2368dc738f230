"""What differential privacy lets an attack achieve: bounds on the success of guesses, as plain numbers.

The Gaussian bound is the reconstruction robustness of Hayes, Mahloujifar and Balle (Bounding Training Data
Reconstruction in DP-SGD, NeurIPS 2023) for one release, from the Gaussian trade-off function of Dong, Roth and Su
(Gaussian Differential Privacy, JRSS B 2022).
"""

import math

from scipy.special import ndtr, ndtri


def success_bound(noise: float, prior: float, reach: float = 1.0) -> float:
    """Return the largest probability with which any attack on one DP-SGD release guesses right.

    With the row left out, the release does not depend on it, and guesses are right with probability ``prior`` at most.
    An event of probability q there has at most ``Phi(Phi^-1(q) + reach / noise)`` with the row, which is concave in q,
    so that the bound holds for the mean over candidates as well.

    Args:
        noise: noise multiplier; without noise the bound is 1.
        prior: largest probability of a right guess without the release: of k equally likely rows 1 / k.
        reach: largest distance of a candidate's gradient from a common point, in clipping norms. The guarantee knows
            only that all are within 1 of zero.

    >>> [round(success_bound(noise, 0.5), 3) for noise in (0.5, 1, 8)]
    [0.977, 0.841, 0.55]
    """
    return 1.0 if noise == 0 else float(ndtr(ndtri(prior) + reach / noise))


def success_bound_of_epsilon(epsilon: float, delta: float, prior: float) -> float:
    """Return the same bound from epsilon and delta of one release, whatever its mechanism.

    It holds whether neighboring inputs differ in one row more or in one row replaced.

    >>> round(success_bound_of_epsilon(0.1, 0, 0.5), 3), success_bound_of_epsilon(8, 1e-5, 0.5)
    (0.553, 1.0)
    """
    return 1.0 if epsilon >= math.log(1 / prior) else min(math.exp(epsilon) * prior + delta, 1.0)


def most_often_right(epsilon: float, delta: float | None) -> float:
    """How often a guess whether a record was used is right at most, where both are equally likely beforehand.

    Differential privacy bounds the sum of the two rates at which any test is right (Kairouz, Oh and Viswanath 2015,
    Theorem 2.1): (e^epsilon + delta) / (e^epsilon + 1) on average.

    >>> most_often_right(0.0, 0.0), round(most_often_right(1.0, 1e-5), 3)
    (0.5, 0.731)
    """
    odds = math.exp(-max(epsilon, 0.0))
    return min((1 + (delta or 0.0) * odds) / (1 + odds), 1.0)
