"""What exact inversion may expect of an update, before any work: how many equations test a row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.alternatives import SPARE_TESTS
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import numerical_rank, unit_scale
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.core.certificate import Feasibility, Outcome
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind, TableSchema
from lightleak.targets.functional import drops_units

ENOUGH_TESTS = 8
"""Equations on either side (row and column space) that a hidden layer must leave for every row to be found. Measured on
Adult with hidden layers of 100 units: batches of up to 92 rows are recovered whole, those of 98 and more not
(lightleak's `exact` and the prototype alike)."""


CLEAR_SHARE = 0.5
"""Rows behind attention can be distinguished up to this share of the narrowest tested layer's width. With an
FT-Transformer of d = 64 on Adult, at 32 rows, true rows lie within 5e-7 of the clearest layer's row space and all
others beyond 1e-2; at 48 rows both lie at 1e-3 in one of two batches."""


@dataclass(frozen=True)
class RowKind:
    """What decides, besides the sizes of a network, how well its rows are tested.

    Attributes:
        numbers: numerical columns: as many equations on a row go into solving for them.
        possible: different rows that the schema allows; infinite with a continuous column or one without bounds.
        drops_units: clients train with dropout, whose masks nobody else knows.
    """

    numbers: int = 0
    possible: float = inf
    drops_units: bool = False

    @classmethod
    def of(cls, schema: TableSchema, drops_units: bool = False) -> "RowKind":
        """Of a table's rows.

        >>> from lightleak.data.schema import Column
        >>> columns = Column.categorical("sex", ["F", "M"]), Column.integer("age", 18, 90)
        >>> RowKind.of(TableSchema(columns, Column.categorical("ill", ["0", "1"])))
        RowKind(numbers=1, possible=146.0, drops_units=False)
        """
        possible = 1.0
        for column in schema.columns:
            if column.kind is ColumnKind.INTEGER and column.lower is not None and column.upper is not None:
                possible *= column.upper - column.lower + 1
            else:
                possible *= inf if column.is_numerical else column.width
        return cls(len(schema.numerical), float(possible), drops_units)


def row_kind(update: ClientUpdate, encoder: TableEncoder) -> RowKind:
    """Of the rows behind an update."""
    return RowKind.of(encoder.schema, update.training_mode and drops_units(client_network(update)))


ANY_ROW = RowKind()
"""Distinct rows of categories alone."""


def estimate_feasibility(
    gradient: Sequence[Tensor], n_rows: int, noise: float = 0.0, kind: RowKind = ANY_ROW
) -> Feasibility:
    """Count the equations that an observed gradient puts on every row of its batch.

    Units that no row of the batch reaches take part in none.

    Args:
        gradient: ``[G_l gb_l]`` of every layer, float64 ``[out, in + 1]``, the last layer included.
        n_rows: rows behind it.
        noise: deviation of what was added to every element, besides rounding.
        kind: of the rows.

    >>> ones, steps = torch.ones(12, dtype=torch.float64), torch.arange(1, 13, dtype=torch.float64)
    >>> of_two_rows = torch.outer(ones, steps) + torch.outer(steps, ones)
    >>> found = estimate_feasibility([of_two_rows, of_two_rows, of_two_rows[:2]], n_rows=2)
    >>> found.ranks, found.unit_constraints, found.expected
    ((2, 2), (10, 10), 'exact')
    """
    hidden = list(gradient[:-1])
    ranks = tuple(_rank(layer, n_rows, noise) for layer in hidden)
    return _feasibility(ranks, [_reached(layer) for layer in hidden], n_rows, noise, kind)


def expected_of_shapes(n_rows: int, hidden: Sequence[int], encoded_width: int, kind: RowKind = ANY_ROW) -> Feasibility:
    """What to expect of a batch, its rows as distinct as the schema allows, from the sizes of a network alone.

    Args:
        n_rows: rows of the batch.
        hidden: units of every hidden layer, the first layer first.
        encoded_width: features of an encoded row.
        kind: of the rows.

    >>> [expected_of_shapes(n, (100, 100), 105).expected for n in (32, 92, 96, 128)]
    ['exact', 'exact', 'partial', 'approximate']
    >>> [expected_of_shapes(84, (100, 100), 40, RowKind(numbers)).expected for numbers in (6, 14, 20)]
    ['exact', 'exact', 'partial']
    >>> expected_of_shapes(200, (100, 100), 4, RowKind(possible=4)).expected
    'exact'
    """
    shapes = [(out, into + 1) for out, into in zip(hidden, (encoded_width, *hidden), strict=False)]
    return expected_of_layers(n_rows, shapes, kind)


def expected_of_layers(n_rows: int, shapes: Sequence[tuple[int, int]], kind: RowKind = ANY_ROW) -> Feasibility:
    """The same for layers of any network.

    Args:
        n_rows: rows of the batch.
        shapes: outputs, and inputs and a one, of every layer that tests rows, but for the last.
        kind: of the rows.
    """
    distinct = int(min(n_rows, kind.possible))
    return _feasibility(tuple(min(distinct, *shape) for shape in shapes), shapes, n_rows, 0.0, kind)


def expected_behind_tokens(n_rows: int, shapes: Sequence[tuple[int, int]], kind: RowKind = ANY_ROW) -> Feasibility:
    """The same for layers behind attention, which makes the vectors of different rows similar.

    Args:
        n_rows: rows of the batch.
        shapes: see `expected_of_layers`.
        kind: of the rows.

    >>> shapes = [(64, 513), (256, 65), (64, 257)]
    >>> [expected_behind_tokens(n, shapes).expected for n in (32, 48)]
    ['exact', 'partial']
    """
    found, narrowest = expected_of_layers(n_rows, shapes, kind), min(min(shape) for shape in shapes)
    if found.expected != "exact" or min(n_rows, kind.possible) <= CLEAR_SHARE * narrowest:
        return found
    reason = f"{found.reason}, but attention makes rows similar (width {narrowest})"
    return replace(found, expected="partial", reason=reason)


def expected_of_delta(n_rows: int, hidden: Sequence[int], encoded_width: int, kind: RowKind = ANY_ROW) -> Feasibility:
    """What to expect of a weight update of a client that trained for a while, from sizes alone.

    Weights move during local training, so the deeper layers' spaces are no longer those of single rows; what holds,
    whatever the epochs and batches, is that the first layer's update lies in the span of the client's rows.

    Args:
        n_rows: rows behind the update, of all its clients.
        hidden: units of every hidden layer, the first layer first.
        encoded_width: features of an encoded row.
        kind: of the rows.

    >>> [expected_of_delta(n, (100, 100), 105).expected for n in (32, 100)]
    ['partial', 'approximate']
    """
    found = expected_of_shapes(n_rows, hidden, encoded_width, kind)
    rows = min(found.row_constraints[0], found.unit_constraints[0])
    if rows < max(ENOUGH_TESTS, kind.numbers + SPARE_TESTS):
        reason = f"{rows} equations of the first layer's update are too few to test a row of {kind.numbers} numbers"
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


def _feasibility(
    ranks: tuple[int, ...], shapes: Sequence[tuple[int, int]], n_rows: int, noise: float, kind: RowKind
) -> Feasibility:
    row = tuple(into - rank for (_, into), rank in zip(shapes, ranks, strict=True))
    unit = tuple(out - rank for (out, _), rank in zip(shapes, ranks, strict=True))
    expected, reason = _outcome(ranks, row, unit, n_rows, noise, kind)
    return Feasibility(ranks, row, unit, noise, expected, reason)


def _of_one_hidden_layer(rank: int, unit: int, n_rows: int, kind: RowKind) -> tuple[Outcome, str]:
    """The row space then tests a row as far as it has more present categories and numbers than the batch has rows."""
    if unit < ENOUGH_TESTS:
        return "approximate", f"{n_rows} rows fill the one hidden layer, so nothing tests a single row"
    if rank < min(n_rows, kind.possible):
        return "partial", (
            f"the one hidden layer shows {rank} different rows of {n_rows}: the others are equal to them, faint, or "
            "mixed with them"
        )
    return "partial", (
        f"{unit} equations of the one hidden layer's column space test every row, and those of its row space as long "
        "as the rows are fewer than the categories and numbers that they show"
    )


def _outcome(
    ranks: Sequence[int], row: Sequence[int], unit: Sequence[int], n_rows: int, noise: float, kind: RowKind
) -> tuple[Outcome, str]:
    """The expected outcome and its reason. Layers from the second on test rows: the first leaves too much open.

    The column space tests masks and label, the row space and the coefficient also solve for the numbers.
    """
    if noise > 0:
        return "approximate", f"noise of deviation {noise:.2g} hides in which space the rows lie"
    if kind.drops_units:
        served = row[0] >= kind.numbers + SPARE_TESTS and ranks[0] == n_rows
        tests = f"{row[0]} equations of the first layer, in front of it, test every row; labels are not proven"
        return "partial" if served else "approximate", f"clients train with dropout: {tests}"
    if max(ranks) > n_rows:
        return "approximate", f"the gradient has rank {max(ranks)}, more than {n_rows} rows give: it was changed"
    if len(ranks) < 2:
        return _of_one_hidden_layer(ranks[0], unit[0], n_rows, kind)
    enough = max(ENOUGH_TESTS, kind.numbers + SPARE_TESTS - 1)
    most = max(ranks[1:])
    layer = max(
        (i for i in range(1, len(ranks)) if ranks[i] == most),
        key=lambda i: min(row[i] - enough, unit[i] - ENOUGH_TESTS),
    )
    tests = f"{row[layer]} + {unit[layer]} equations of layer {layer + 1} test every row"
    if kind.possible < n_rows:
        tests += f"; at most {kind.possible:.0f} different rows exist, so some occur several times"
    distinct = int(min(n_rows, kind.possible, ranks[layer] + min(row[layer], unit[layer])))
    if row[layer] >= enough and unit[layer] >= ENOUGH_TESTS and ranks[layer] >= distinct:
        return "exact", tests
    if ranks[layer] < distinct and min(row[layer], unit[layer]) > 0:
        seen = f"layer {layer + 1} shows {ranks[layer]} different rows of {n_rows}"
        return "partial", f"{seen}: the others are equal to them, or share all masks and cannot be distinguished"
    if min(row[layer], unit[layer]) <= 0:
        return "approximate", f"{n_rows} rows fill every layer after the first, so nothing tests a single row"
    return "partial", f"only {tests}; {enough} + {ENOUGH_TESTS} are enough for a row of {kind.numbers} numbers"
