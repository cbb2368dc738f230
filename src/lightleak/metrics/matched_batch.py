"""One attacked batch, matched once; every metric is read off it."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.errors import DataError
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.cells import Cells, Rows, agreement, best_order, categorical_mask, checked_pair, equality

CellKind = Literal["all", "categorical", "numerical"]


@dataclass(frozen=True)
class MatchedBatch:
    """True and reconstructed rows side by side, rows in the order of the truth and columns in that of the schema.

    Attributes:
        order: LongTensor ``[n]``, for each true row the index of its reconstructed row.
        hits: bool ``[n, columns]``, right within the tolerance (TabLeak Eq. 6).
        equal: bool ``[n, columns]``, exactly right (`lightleak.metrics.cells.equality`).
        errors: float64 ``[n, L]``, reconstructed minus true number in the column's own units.
        deviation: float64 ``[L]``, the columns' standard deviations, in the same units.
        entropy: float64 ``[n, columns]``, the attacker's uncertainty (TabLeak Sec. 3.2); NaN where it has none.
        categorical: bool ``[columns]``.

    >>> from lightleak.data.schema import Column, TableSchema
    >>> columns = Column.integer("age"), Column.categorical("sex", ["F", "M"])
    >>> schema = TableSchema(columns, Column.categorical("ill", ["0", "1"]))
    >>> truth = pd.DataFrame({"age": [30, 50], "sex": ["F", "M"]})
    >>> guess = pd.DataFrame({"age": [58, 31], "sex": ["M", "F"]})
    >>> batch = MatchedBatch.compare(TableEncoder(schema).fit(truth), truth, guess)
    >>> batch.errors.tolist(), batch.of_kind(batch.hits, "categorical").tolist()
    ([[1.0], [8.0]], [[True], [True]])
    """

    order: Tensor
    hits: Tensor
    equal: Tensor
    errors: Tensor
    deviation: Tensor
    entropy: Tensor
    categorical: Tensor

    @classmethod
    def compare(
        cls,
        encoder: TableEncoder,
        truth_rows: Rows,
        reconstructed_rows: Rows,
        uncertainty: pd.DataFrame | None = None,
        tolerance: float = TOLERANCE,
    ) -> "MatchedBatch":
        """Match the rows and compare their cells.

        Args:
            encoder: schema and statistics.
            truth_rows: the n private rows in the table's units.
            reconstructed_rows: the n rows of an attack, in any order.
            uncertainty: ``[n, columns]`` entropy of the reconstructed cells, in the order of ``reconstructed_rows``.
            tolerance: numbers count as right within this many standard deviations.

        Raises:
            DataError: a column is missing, holds an unknown category, the truth is not finite, or ``uncertainty`` has
                another shape.
            UsageError: no rows, or not as many reconstructed as true ones.
        """
        truth, reconstructed = checked_pair(encoder, truth_rows, reconstructed_rows)
        order = best_order(encoder, truth, reconstructed, tolerance)
        matched = Cells(reconstructed.codes[order], reconstructed.numbers[order])
        return cls(
            order=order,
            hits=agreement(encoder, truth, matched, tolerance),
            equal=equality(encoder, truth, matched),
            errors=matched.numbers - truth.numbers,
            deviation=encoder.deviation.cpu(),
            entropy=_entropies(encoder, uncertainty, len(order))[order],
            categorical=categorical_mask(encoder),
        )

    def of_kind(self, cells: Tensor, kind: CellKind) -> Tensor:
        """The columns of one kind of a ``[n, columns]`` tensor."""
        if kind == "all":
            return cells
        return cells[:, self.categorical if kind == "categorical" else ~self.categorical]


def _entropies(encoder: TableEncoder, uncertainty: pd.DataFrame | None, n: int) -> Tensor:
    names = list(encoder.schema.names)
    if uncertainty is None:
        return torch.full((n, len(names)), float("nan"), dtype=torch.float64)
    missing = [name for name in names if name not in uncertainty.columns]
    if missing or len(uncertainty) != n:
        raise DataError(
            f"uncertainty must have {n} rows and a column per feature; got {len(uncertainty)} rows, without {missing}"
        )
    return torch.as_tensor(uncertainty[names].to_numpy("float64", copy=True))
