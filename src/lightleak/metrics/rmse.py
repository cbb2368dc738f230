"""Root mean squared error of the numerical columns (TabLeak App. C.4)."""

from typing import Any

from torch import Tensor

from lightleak.metrics.batch_mean import BatchMean
from lightleak.metrics.matched_batch import MatchedBatch


def mean_column_rmse(errors: Tensor) -> Tensor:
    """Root mean squared error of each column, averaged over columns (TabLeak Eq. 8).

    Args:
        errors: ``[n, L]`` reconstructed minus true.

    Returns:
        Float64 scalar; NaN without columns.

    >>> import torch
    >>> mean_column_rmse(torch.tensor([[3.0, 0.0], [3.0, 2.0]])).item()
    2.2071...
    """
    return errors.double().square().mean(0).sqrt().mean()


class NumericalRMSE(BatchMean):
    """Root mean squared error of matched numbers, in deviations of each column (TabLeak Eq. 8); mean over batches.

    The paper and its code do not say in which units Fig. 11 is drawn. In raw units the widest column decides alone (the
    tolerances of TabLeak Table 7 are 33,699 for Adult's fnlwgt and 0.8 for its education-num), so errors are divided by
    each column's deviation unless asked otherwise.

    Args:
        standardized: errors in standard deviations of each column rather than in its own units.
        kwargs: passed to ``torchmetrics.Metric``.

    Deviates:
        * Errors are divided by each column's deviation, as the paper does not say its units and raw ones let the widest
          column decide alone (``standardized: false``).
    """

    higher_is_better = False

    def __init__(self, standardized: bool = True, **kwargs: Any) -> None:
        super().__init__(standardized, **kwargs)
        self.standardized = standardized

    def update(self, batch: MatchedBatch) -> None:
        """Count one batch."""
        self.add(mean_column_rmse(batch.errors / batch.deviation if self.standardized else batch.errors))
