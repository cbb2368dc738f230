"""How much of a batch was recovered: cells, whole rows, and how far above guessing."""

from typing import Any

from torch import Tensor

from lightleak.metrics.batch_mean import BatchMean
from lightleak.metrics.matched_batch import CellKind, MatchedBatch


def fraction(right: Tensor) -> Tensor:
    """Share of true entries of a bool tensor, a float64 scalar; NaN of none.

    >>> import torch
    >>> fraction(torch.tensor([[True, False], [True, True]])), fraction(torch.empty(3, 0, dtype=torch.bool))
    (tensor(0.7500, dtype=torch.float64), tensor(nan, dtype=torch.float64))
    """
    return right.double().mean()


class OfKind(BatchMean):
    """A mean over batches of what is read off cells of one kind.

    Args:
        kind: cells of ``all`` columns, of the ``categorical`` or of the ``numerical`` ones.
        kwargs: passed to ``torchmetrics.Metric``.
    """

    higher_is_better = True

    def __init__(self, kind: CellKind = "all", **kwargs: Any) -> None:
        super().__init__(kind, **kwargs)
        self.kind = kind


class CellAccuracy(OfKind):
    """Fraction of right cells after matching (TabLeak Eq. 6 and 7), mean over batches.

    Args:
        kind: cells of ``all`` columns, of the ``categorical`` or of the ``numerical`` ones (TabLeak Fig. 4); rows are
            matched on all columns in each case.
        kwargs: passed to ``torchmetrics.Metric``.

    >>> from lightleak.data.encoder import TableEncoder
    >>> from lightleak.data.schema import Column, TableSchema
    >>> import pandas as pd
    >>> columns = Column.integer("age"), Column.categorical("sex", ["F", "M"])
    >>> schema = TableSchema(columns, Column.categorical("ill", ["0", "1"]))
    >>> truth = pd.DataFrame({"age": [30, 50], "sex": ["F", "M"]})
    >>> guess = pd.DataFrame({"age": [58, 31], "sex": ["M", "F"]})
    >>> accuracy = CellAccuracy()
    >>> accuracy(MatchedBatch.compare(TableEncoder(schema).fit(truth), truth, guess))
    tensor(0.7500, dtype=torch.float64)
    """

    def update(self, batch: MatchedBatch) -> None:
        """Count one batch."""
        self.add(fraction(batch.of_kind(batch.hits, self.kind)))


class CategoricalAccuracy(CellAccuracy):
    """`CellAccuracy` of the categorical columns; NaN for a table without any."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("categorical", **kwargs)


class NumericalAccuracy(CellAccuracy):
    """`CellAccuracy` of the integer and continuous columns; NaN for a table without any."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("numerical", **kwargs)


class ExactMatchRate(BatchMean):
    """Fraction of rows recovered whole, mean over batches. Cell accuracy overstates how many persons are exposed.

    By default every cell of the row must be equal: categories, whole numbers, and continuous numbers within 1e-6
    deviations.

    Args:
        within_tolerance: let numbers be within the tolerance of Eq. 6 instead.
        kwargs: passed to ``torchmetrics.Metric``.
    """

    higher_is_better = True

    def __init__(self, within_tolerance: bool = False, **kwargs: Any) -> None:
        super().__init__(within_tolerance, **kwargs)
        self.within_tolerance = within_tolerance

    def update(self, batch: MatchedBatch) -> None:
        """Count one batch."""
        self.add(fraction((batch.hits if self.within_tolerance else batch.equal).all(-1)))


class LeakageOverBaseline(OfKind):
    """Cell accuracy minus that of a baseline that never saw the update, on the same batches.

    At or below 0 nothing was learned from the update (TabLeak Sec. 4, Baselines). The baseline's rows are matched to
    the truth as the attack's are, so both gain alike from matching.

    Args:
        kind: cells of ``all`` columns, of the ``categorical`` or of the ``numerical`` ones.
        kwargs: passed to ``torchmetrics.Metric``.

    Needs:
        * A baseline that never saw the update, on the same batches.
    """

    def update(self, batch: MatchedBatch, baseline: MatchedBatch) -> None:
        """Count one batch: the attack's reconstruction and the baseline's guess of the same rows."""
        attack, guess = (fraction(one.of_kind(one.hits, self.kind)) for one in (batch, baseline))
        self.add(attack - guess)
