"""What a noised gradient can tell about a batch at most, known before any search.

A batch's gradient is a mean of n terms, one for every row. Under what is believed of rows it has a covariance C, the
terms' own over n, and noise of variance s adds to it. Of all signals of that covariance a Gaussian one tells most, so
that the gradient tells no more than ``1/2 log det (I + C / s)`` nats about the rows. Cells that are believed to be
independent share these nats, and by Pinsker's inequality i nats about a cell raise the chance to get it right by
``sqrt(i / 2)`` at most.

Rows are found up to their order. A guess uses this too, but the order itself is not what the gradient tells: the bound
per cell is taken for the batch, as if rows had places.
"""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.kernels import Kernels
from lightleak.attacks.gradient_inversion.joint.pair_descent import Weighted, cross_products
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

BELIEVED = 1000
"""Rows drawn to estimate the covariance. Where the bound decides, it is small and close to half the trace, which these
rows give to a few percent."""

BATCHES = 32
"""Batches drawn from what is believed, to see how large their gradients are."""

FAR = 10.0
"""An update is no noised gradient of a batch where every drawn batch's gradient is so many times as long as what the
update has above its noise: the rows found would leave more than no rows at all."""

LEAST_GAIN = 0.02
"""Share of the cells that the bound must allow in addition to a guess for a search to be worth its work. Searches
reach a small part of it."""


def nats(problem: JointProblem, labels: Tensor, generator: torch.Generator) -> float:
    """Most that the problem's gradient can tell about its rows, in nats, by what is believed of rows.

    Args:
        problem: with plain kernels, a prior, and its weight twice the variance of the noise.
        labels: how many rows of every class are believed ``[n]``.
        generator: a CPU generator.
    """
    rows = believed_rows(problem, labels, BELIEVED, generator)
    terms = Weighted.of(problem, rows.codes, rows.numbers, rows.labels, torch.float64)
    products = cross_products(terms, terms, Kernels.plain(problem.nodes.depth))
    centered = products - products.mean(0) - products.mean(1, keepdim=True) + products.mean()
    # A row's term is divided by n already: n times its covariance is that of the batch's mean.
    signal = torch.linalg.eigvalsh(centered).clamp_min(0) * problem.n_rows / (BELIEVED - 1)
    return float(0.5 * torch.log1p(signal / (problem.prior_weight / 2)).sum())


def gain_at_most(nats: float, cells: int) -> float:
    """Share of the cells that nats about all of them can add to a guess.

    >>> round(gain_at_most(0.01, 400), 4), gain_at_most(1e9, 400)
    (0.0035, 1.0)
    """
    return min(1.0, (nats / cells / 2) ** 0.5)


def is_hopeless(problem: JointProblem, labels: Tensor, generator: torch.Generator) -> bool:
    """Whether no search can do better than a guess that does not read the update.

    Either the noise leaves less than is worth it, or the update is no noised gradient of believable rows at all:
    clipped to a size far below theirs, say.

    Args:
        problem: see `nats`.
        labels: see `nats`.
        generator: a CPU generator.
    """
    cells = problem.n_rows * len(problem.space.encoder.schema.columns)
    if gain_at_most(nats(problem, labels, generator), cells) < LEAST_GAIN:
        return True
    elements = sum(layer.numel() for layer in problem.target)
    of_noise = elements * problem.prior_weight / 2
    above = max(problem.target_value - of_noise, 2 * (2 * elements) ** 0.5 * problem.prior_weight / 2)
    return _least_square(problem, labels, generator) > FAR**2 * above


def _least_square(problem: JointProblem, labels: Tensor, generator: torch.Generator) -> float:
    """Least squared norm of the gradients of believable batches."""
    squares = []
    for _ in range(BATCHES):
        gradient = problem.gradient(believed_rows(problem, labels, len(labels), generator))
        squares.append(sum(float(layer.square().sum()) for layer in gradient))
    return min(squares)


def believed_rows(problem: JointProblem, labels: Tensor, count: int, generator: torch.Generator) -> JointRows:
    """Rows drawn from the prior; labels as they are, or as often as these among others."""
    assert problem.prior is not None  # a noised problem has one
    codes, numbers = problem.prior.draw(count, generator)
    if count != len(labels):
        labels = labels[torch.randint(len(labels), (count,), generator=generator).to(labels.device)]
    return JointRows(codes, problem.space.clamp(numbers), labels)
