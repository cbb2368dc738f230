"""Everything a row of results.json says about one batch, and its cells one by one."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.remembered import Remembered
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.accuracy import fraction
from lightleak.metrics.cells import Cells, table_cells
from lightleak.metrics.certainty import known_mean, ranked_accuracy
from lightleak.metrics.labels import label_count_error
from lightleak.metrics.matched_batch import MatchedBatch
from lightleak.metrics.rmse import mean_column_rmse


def match(reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder) -> MatchedBatch:
    """Compare a reconstruction with the truth.

    The truth is decoded without clamping: a row outside the bounds the attacker knows stays what it is.

    Raises:
        UsageError: truth and encoder, or truth and reconstruction, are not of the same shape.
        DataError: the reconstruction does not fit the schema.
    """
    return MatchedBatch.compare(
        encoder, true_rows(truth, encoder).cells, found_cells(reconstruction, encoder), reconstruction.uncertainty
    )


_FOUND: Remembered[Cells] = Remembered(most=64)


def found_cells(reconstruction: Reconstruction, encoder: TableEncoder) -> Cells:
    """Return the rows of a reconstruction as tensors, made once for all metrics.

    Raises:
        DataError: the reconstruction does not fit the schema.
    """
    return _FOUND.get((reconstruction, encoder), lambda: table_cells(encoder, reconstruction.rows))


@dataclass(frozen=True)
class TrueRows:
    """The private rows in the table's units.

    Attributes:
        cells: category indices and numbers, as `TableEncoder.project` returns them.
        table: the same as a table, of which only the columns of the schema are there.
    """

    cells: tuple[Tensor, Tensor]
    table: pd.DataFrame


_TRUE: Remembered[TrueRows] = Remembered(most=64)


def true_rows(truth: GroundTruth, encoder: TableEncoder) -> TrueRows:
    """Return the private rows, decoded once for all attacks on them.

    Raises:
        UsageError: truth and encoder are not of the same shape.
    """

    def decode() -> TrueRows:
        inputs = _encoded(truth, encoder)
        table = encoder.decode(inputs, clamp=False)
        return TrueRows(encoder.project(inputs, clamp=False), table[list(encoder.schema.names)])

    return _TRUE.get((truth, encoder), decode)


def score(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, batch: MatchedBatch | None = None
) -> dict[str, Any]:
    """Every number of one batch; see the metric of the same meaning for its definition.

    Args:
        reconstruction: what the attack found.
        truth: the rows behind the update.
        encoder: of both.
        batch: `match` of the two, where the caller has it.

    Returns:
        Floats, NaN where the table has no such columns or the attack no entropy:

        * ``cell_accuracy``, ``categorical_accuracy``, ``numerical_accuracy``: fractions;
        * ``exact_match_rate``, ``close_match_rate``: fractions of the rows, numbers to the last digit or within the
          tolerance of TabLeak's Eq. 6;
        * ``top25_categorical``, ``bottom25_categorical``, ``top25_numerical``, ``bottom25_numerical``: fractions;
        * ``rmse``: in standard deviations;
        * ``mean_entropy_categorical`` (normalized, in [0, 1]) and ``mean_entropy_numerical`` (nats, of the number in
          units of its column's deviation);
        * ``label_count_error``: fraction of the labels; NaN for an attack that uses none.

        And ``column_accuracy``: fraction of right cells by column.

    Raises:
        UsageError: truth and encoder, or truth and reconstruction, are not of the same shape.
        DataError: the reconstruction does not fit the schema.
    """
    batch = batch or match(reconstruction, truth, encoder)
    hits = {kind: batch.of_kind(batch.hits, kind) for kind in ("categorical", "numerical")}
    entropy = {kind: batch.of_kind(batch.entropy, kind) for kind in ("categorical", "numerical")}
    values: dict[str, Tensor] = {
        "cell_accuracy": fraction(batch.hits),
        "categorical_accuracy": fraction(hits["categorical"]),
        "numerical_accuracy": fraction(hits["numerical"]),
        "exact_match_rate": fraction(batch.equal.all(-1)),
        "close_match_rate": fraction(batch.hits.all(-1)),
        "rmse": mean_column_rmse(batch.errors / batch.deviation),
    }
    for kind in hits:
        values[f"top25_{kind}"] = ranked_accuracy(hits[kind], entropy[kind], "top")
        values[f"bottom25_{kind}"] = ranked_accuracy(hits[kind], entropy[kind], "bottom")
        values[f"mean_entropy_{kind}"] = known_mean(entropy[kind])
    used = reconstruction.threat_model.labels != "none"
    return {
        **{name: value.item() for name, value in values.items()},
        "label_count_error": label_count_error(reconstruction.labels, truth.labels).item() if used else float("nan"),
        "column_accuracy": dict(zip(encoder.schema.names, batch.hits.double().mean(0).tolist(), strict=True)),
    }


def matched(
    reconstruction: Reconstruction, truth: GroundTruth, encoder: TableEncoder, batch: MatchedBatch | None = None
) -> pd.DataFrame:
    """The cells in long form, for ``reconstructions/*.csv``; arguments as for `score`.

    Returns:
        One line per cell, row by row of the truth: ``row`` (0-based, of the truth), ``column``, ``true``,
        ``reconstructed`` (of the matched row), ``correct`` (within the tolerance of Eq. 6) and ``entropy``.

    Raises:
        UsageError: truth and encoder, or truth and reconstruction, are not of the same shape.
        DataError: the reconstruction does not fit the schema.
    """
    batch = batch or match(reconstruction, truth, encoder)
    names = list(encoder.schema.names)
    n = len(batch.order)
    reconstructed = reconstruction.rows.iloc[batch.order.tolist()]
    return pd.DataFrame(
        {
            "row": [row for row in range(n) for _ in names],
            "column": names * n,
            "true": _row_by_row(true_rows(truth, encoder).table),
            "reconstructed": _row_by_row(reconstructed[names]),
            "correct": batch.hits.flatten().tolist(),
            "entropy": batch.entropy.flatten().tolist(),
        }
    )


def _encoded(truth: GroundTruth, encoder: TableEncoder) -> Tensor:
    if truth.inputs.ndim != 2 or truth.inputs.shape[1] != encoder.width:
        got = tuple(truth.inputs.shape)
        raise UsageError(f"the truth must have shape (n, {encoder.width}), the encoder's width; got {got}")
    return truth.inputs.to(encoder.shift.device)


def _row_by_row(frame: pd.DataFrame) -> pd.Series:
    """Every cell in its own type, so that whole numbers are not written as '39.0'."""
    columns = [frame[name].tolist() for name in frame.columns]
    return pd.Series([cell for row in zip(*columns, strict=True) for cell in row], dtype=object)
