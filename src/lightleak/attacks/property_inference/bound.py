"""How well two fractions can be distinguished at most: Theorem 1 (ProVFL Sec. V-B)."""

import math

from lightleak.core.errors import UsageError


def distinguishing_accuracy_bound(posterior: float, prior: float, gap: float, n_results: int) -> float:
    """Upper bound of the distinguishing accuracy (Eq. 3), in [0.5, 1].

    It grows with the posterior (Corollary 1), is 1/2 where an intermediate result says nothing (``posterior = prior``)
    and 1 where one gives the property away (``posterior = 1``). Below the prior the ratio that Eq. 7 bounds falls under
    one and Eq. 8 no longer bounds the divergence: the theorem says nothing there.

    >>> round(distinguishing_accuracy_bound(0.5002, 0.5, 0.1, 2000), 3)
    0.692

    Args:
        posterior: c, greatest probability of having the property given an intermediate result; at least ``prior``.
        prior: t*, probability of a sample having the property, strictly between 0 and 1.
        gap: q, difference between the two fractions, in [0, 1].
        n_results: N, intermediate results that the adversary sees.

    Raises:
        UsageError: an argument outside its domain.
    """
    if not 0 < prior < 1:
        raise UsageError(f"prior must lie strictly between 0 and 1, got {prior}")
    if not prior <= posterior <= 1:
        raise UsageError(f"posterior must lie between the prior {prior} and 1, where Theorem 1 holds; got {posterior}")
    if not 0 <= gap <= 1:
        raise UsageError(f"gap must lie between 0 and 1, got {gap}")
    if n_results < 1:
        raise UsageError(f"n_results must be at least 1, got {n_results}")
    if gap == 0 or posterior == prior:
        return 0.5
    if posterior == 1:
        return 1.0
    ratio = gap * (posterior - prior) / (prior * (1 - posterior))
    return (1 + math.sqrt(-math.expm1(-n_results * math.log1p(ratio)))) / 2
