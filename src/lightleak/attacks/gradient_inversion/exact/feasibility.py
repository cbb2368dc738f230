"""What exact inversion may expect of an update, before any work: how many equations test a row."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.spaces import numerical_rank, unit_scale
from lightleak.core.certificate import Feasibility, Outcome

ENOUGH_TESTS = 8
"""Equations on either side (row and column space) that a hidden layer must leave for every row to be found. Measured on
Adult with hidden layers of 100 units: batches of up to 92 rows are recovered whole, those of 98 and more not
(lightleak's `exact` and the prototype alike)."""


def estimate_feasibility(gradient: Sequence[Tensor], n_rows: int, noise: float = 0.0) -> Feasibility:
    """Count the equations that an observed gradient puts on every row of its batch.

    Units that no row of the batch reaches take part in none.

    Args:
        gradient: ``[G_l gb_l]`` of every layer, float64 ``[out, in + 1]``, the last layer included.
        n_rows: rows behind it.
        noise: deviation of what was added to every element, beside rounding.

    >>> ones, steps = torch.ones(12, dtype=torch.float64), torch.arange(1, 13, dtype=torch.float64)
    >>> of_two_rows = torch.outer(ones, steps) + torch.outer(steps, ones)
    >>> found = estimate_feasibility([of_two_rows, of_two_rows, of_two_rows[:2]], n_rows=2)
    >>> found.ranks, found.unit_constraints, found.expected
    ((2, 2), (10, 10), 'exact')
    """
    hidden = list(gradient[:-1])
    ranks = tuple(_rank(layer, n_rows, noise) for layer in hidden)
    return _feasibility(ranks, [_reached(layer) for layer in hidden], n_rows, noise)


def expected_of_shapes(n_rows: int, hidden: Sequence[int], encoded_width: int) -> Feasibility:
    """What to expect of a batch of distinct rows, from the sizes of a network alone.

    Args:
        n_rows: rows of the batch.
        hidden: units of every hidden layer, the first layer first.
        encoded_width: features of an encoded row.

    >>> [expected_of_shapes(n, (100, 100), 105).expected for n in (32, 92, 96, 128)]
    ['exact', 'exact', 'partial', 'approximate']
    """
    shapes = [(out, into + 1) for out, into in zip(hidden, (encoded_width, *hidden), strict=False)]
    return _feasibility(tuple(min(n_rows, *shape) for shape in shapes), shapes, n_rows, 0.0)


def expected_of_delta(n_rows: int, hidden: Sequence[int], encoded_width: int) -> Feasibility:
    """What to expect of a weight update of a client that trained for a while, from sizes alone.

    Weights move during local training, so the deeper layers' spaces are no longer those of single rows; what holds,
    whatever the epochs and batches, is that the first layer's update lies in the span of the client's rows.

    Args:
        n_rows: rows behind the update, of all its clients.
        hidden: units of every hidden layer, the first layer first.
        encoded_width: features of an encoded row.

    >>> [expected_of_delta(n, (100, 100), 105).expected for n in (32, 100)]
    ['partial', 'approximate']
    """
    found = expected_of_shapes(n_rows, hidden, encoded_width)
    rows = min(found.row_constraints[0], found.unit_constraints[0])
    if rows < ENOUGH_TESTS:
        reason = f"{n_rows} rows fill the first layer's update, so nothing tests a single row"
        return replace(found, expected="approximate", reason=reason)
    reason = f"{found.row_constraints[0]} equations of the first layer's update test every row, while weights moved"
    return replace(found, expected="partial", reason=reason)


def _reached(layer: Tensor) -> tuple[int, int]:
    """Rows and columns that are not zero."""
    return int(layer.any(1).sum()), int(layer.any(0).sum())


def _rank(layer: Tensor, n_rows: int, noise: float) -> int:
    if not bool(layer.any()):
        return 0
    if noise == 0:
        return numerical_rank(torch.linalg.svdvals(layer / unit_scale(layer).unsqueeze(-1)), n_rows)
    # No singular value of a matrix of independent noise is expected above this (Davidson and Szarek 2001).
    edge = noise * (layer.shape[0] ** 0.5 + layer.shape[1] ** 0.5)
    return int((torch.linalg.svdvals(layer) > edge).sum())


def _feasibility(ranks: tuple[int, ...], shapes: Sequence[tuple[int, int]], n_rows: int, noise: float) -> Feasibility:
    row = tuple(into - rank for (_, into), rank in zip(shapes, ranks, strict=True))
    unit = tuple(out - rank for (out, _), rank in zip(shapes, ranks, strict=True))
    expected, reason = _outcome(ranks, row, unit, n_rows, noise)
    return Feasibility(ranks, row, unit, noise, expected, reason)


def _outcome(
    ranks: Sequence[int], row: Sequence[int], unit: Sequence[int], n_rows: int, noise: float
) -> tuple[Outcome, str]:
    """The expected outcome and its reason. Layers from the second on test rows: the first leaves too much open."""
    if noise > 0:
        return "approximate", f"noise of deviation {noise:.2g} hides in which space the rows lie"
    if len(ranks) < 2:
        return "approximate", "rows are tested against the second hidden layer, and this network has one hidden layer"
    if max(ranks) > n_rows:
        return "approximate", f"the gradient has rank {max(ranks)}, more than {n_rows} rows give: it was changed"
    layer = max(range(1, len(ranks)), key=lambda i: min(row[i], unit[i]))
    tests = f"{row[layer]} + {unit[layer]} equations of layer {layer + 1} test every row"
    spare = min(row[layer], unit[layer])
    if spare >= ENOUGH_TESTS:
        return "exact", tests
    if spare > 0:
        return "partial", f"only {tests}; {ENOUGH_TESTS} of each kind are enough"
    return "approximate", f"{n_rows} rows fill every layer after the first, so nothing tests a single row"
