"""Rows that stand out of a gradient's noise, found one at a time: where joint inversion starts.

`exact` tests a row against the row and the column space of a layer's gradient R. Noise blurs both, but what it does to
a row of the batch is known: with ``u = v pinv(R)`` and ``w = pinv(R) d / n``, noise of variance 1 adds ``|u|^2`` to the
square of v on every direction outside of the row space, ``|w|^2`` to that of ``d / n`` outside of the column space, and
``|u|^2 |w|^2`` to that of the coefficient ``v pinv(R) d / n - 1``. Strong rows have short u and w, so that hardly any
wrong row passes; once they are taken out, weaker ones are tested.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.exact.peel.refit import refit_numbers
from lightleak.attacks.gradient_inversion.exact.row_tests.tolerances import COEFFICIENT_TOLERANCE, MANY_TESTS
from lightleak.attacks.gradient_inversion.exact.search.readings import distinct, unlike
from lightleak.attacks.gradient_inversion.exact.search.row_search import RowSearch
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces, spaces_of
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

EDGE = 0.6
"""Singular values above this part of the noise's largest may be rows'. Measured on Adult, 32 rows, GELU, bfloat16, two
batches: 3 and 14 rows found at 1.1, 9 and 21 at 0.85, 24 and 24 at 0.6, 25 and 24 at 0.4."""

CHAINS, MOST_CHAINS, SWEEPS, PATIENCE = 192, 2048, 15, 4
"""Starts of a search, twice as many after one that found nothing; rounds over all columns; and how many searches may
find nothing in a row."""

FLOORS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Floors of `whitened` that searches draw from."""

ROW_EXCESS, UNIT_EXCESS, DEVIATIONS = 3.0, 4.0, 5.0
"""How many times what noise adds may lie outside of the row and of the column space, and its deviations between a
coefficient and 1."""

ROUGHLY = 0.01
"""Part of a row, besides, that may lie outside of either space: a search knows numbers roughly, and those of rows taken
out before leave a trace."""


@dataclass(frozen=True)
class NoisedTests:
    """How candidates fare, in what a row of the batch may leave at most.

    Attributes:
        row: square outside of the row space ``[n]``.
        unit: outside of the column space, for the label whose coefficient is nearest to 1 ``[n]``.
        coefficient: distance of that coefficient from 1 ``[n]``.
        labels: LongTensor ``[n]``.
    """

    row: Tensor
    unit: Tensor
    coefficient: Tensor
    labels: Tensor

    @property
    def passed(self) -> Tensor:
        """Candidates that are taken for rows of the batch, bool ``[n]``."""
        return (self.row < 1) & (self.unit < 1) & (self.coefficient < 1)


def visible_rows(residual: Residual, space: RowDomain, variance: Tensor, generator: torch.Generator) -> JointRows:
    """Rows that pass all tests, in the space's coordinates.

    Args:
        residual: of the gradient, nothing explained yet.
        space: every row of the schema.
        variance: of the error of every element of the searched layer's gradient ``[out, in + 1]``.
        generator: of all random numbers, on the CPU.
    """
    network, layer, encoder = residual.network, residual.network.searched, space.encoder
    codes = residual.x.new_empty(0, len(encoder.schema.categorical), dtype=torch.long)
    cells = codes, residual.x.new_empty(0, len(encoder.schema.numerical))
    fruitless = 0
    while residual.rows_left and fruitless < PATIENCE:
        spaces = noised_spaces(residual.left[layer], variance, residual.rows_left)
        if not spaces.rank or min(spaces.row_null.shape[1], spaces.unit_null.shape[1]) < MANY_TESTS:
            break
        floor = FLOORS[int(torch.randint(len(FLOORS), (), generator=generator))]
        search = RowSearch(network, space, spaces, floor, generator)
        best = search.best(min(MOST_CHAINS, CHAINS * 2**fruitless), SWEEPS)
        tried = space.cells(best.codes, best.numbers)
        tried, x, _ = distinct(tried, space.encode(tried))
        tests = noised_tests(network, layer, spaces, x, residual.n_rows)
        order = tests.row.argsort(stable=True)
        # Rows of equal categories come one at a time: what is left then tells whether there is another.
        chosen = unlike(tried, order[tests.passed[order]], torch.full_like(encoder.deviation, torch.inf))[: spaces.rank]
        if not len(chosen):
            fruitless += 1
            continue
        fruitless = 0
        counts = one_hot(tests.labels[chosen], network.n_classes).to(x)
        residual = residual.with_rows(x[chosen], counts)
        cells = torch.cat([cells[0], tried[0][chosen]]), torch.cat([cells[1], tried[1][chosen]])
        if residual.rows_left:
            left = noised_spaces(residual.left[layer], variance, residual.rows_left)
            residual, cells = refit_numbers(residual, cells, space, {layer: left}, turns=2)
    return JointRows(*space.coordinates(cells), residual.counts.argmax(-1))


def noised_spaces(gradient: Tensor, variance: Tensor, most: int) -> Spaces:
    """Spaces of a noised gradient, units scaled to a mean variance of 1, of the rank that stands out of the noise.

    Args:
        gradient: ``[out, in + 1]``.
        variance: of its elements' errors.
        most: rows behind it.
    """
    scale = variance.mean(1).sqrt()
    noise = torch.randn(variance.shape, generator=torch.Generator().manual_seed(0), dtype=variance.dtype)
    edge = EDGE * torch.linalg.matrix_norm(noise.to(variance) * variance.sqrt() / scale.unsqueeze(-1), 2)
    singular = torch.linalg.svdvals(gradient / scale.unsqueeze(-1))
    return spaces_of(gradient, scale, min(most, int((singular > edge).sum())))


def noised_tests(network: RowNetwork, layer: int, spaces: Spaces, x: Tensor, n_rows: int) -> NoisedTests:
    """Hold rows ``[n, d]`` against spaces of a gradient with noise of variance 1 in the scaled units."""
    activations = network.forward(x)
    v = with_one(activations.hidden[layer])
    every = torch.eye(network.n_classes).to(x).expand(len(x), -1, -1)
    d = network.error_of_rows(layer, activations, every) / spaces.unit_scale / n_rows  # [n, classes, out]
    u, w = v @ spaces.inverse, d @ spaces.inverse.T
    coefficient = (u.unsqueeze(1) * d).sum(-1)
    error, labels = (coefficient - 1).abs().min(1)
    at = torch.arange(len(x), device=x.device), labels
    outside = [_square(v @ spaces.row_null), _square(d[at] @ spaces.unit_null)]
    by_noise = [
        ROW_EXCESS * spaces.row_null.shape[1] * _square(u),
        UNIT_EXCESS * spaces.unit_null.shape[1] * _square(w[at]),
    ]
    roughly = [ROUGHLY**2 * _square(v), ROUGHLY**2 * _square(d[at])]
    row, unit = (o / (n + r) for o, n, r in zip(outside, by_noise, roughly, strict=True))
    deviation = (_square(u) * _square(w[at])).sqrt()
    return NoisedTests(row, unit, error / (COEFFICIENT_TOLERANCE + DEVIATIONS * deviation), labels)


def _square(vectors: Tensor) -> Tensor:
    return vectors.square().sum(-1)
