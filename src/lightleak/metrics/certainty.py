"""Does the attacker know what it got right? Entropy against accuracy (TabLeak Sec. 3.2 and 4, App. D.4)."""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from lightleak.core.errors import UsageError
from lightleak.metrics.accuracy import fraction
from lightleak.metrics.batch_mean import BatchMean
from lightleak.metrics.matched_batch import CellKind, MatchedBatch

QUARTER = 0.25
"""Share of the cells at either end of the ranking (TabLeak Table 4)."""

_ROUNDING = 1e-9  # 0.07 of 100 cells are 7, which floating point makes 7.000000000000001

End = Literal["top", "bottom"]


def ranked_accuracy(hits: Tensor, entropy: Tensor, end: End, share: float = QUARTER) -> Tensor:
    """Fraction of right cells among those of lowest (``top``) or highest (``bottom``) entropy (TabLeak Table 4).

    ``ceil(share * cells)`` cells count. Cells whose entropy is that of the last one counted share the places left
    equally: entropies over 30 restarts tie often, and the order of the rows must not decide which of them count.

    Args:
        hits: bool, any shape.
        entropy: the same shape; cells without entropy (NaN) are not ranked.
        end: ``top`` are the cells the attacker is surest of.
        share: share of the ranked cells.

    Returns:
        Float64 scalar; NaN where no cell has an entropy.

    >>> ranked_accuracy(torch.tensor([True, True, False, False]), torch.tensor([0.1, 0.2, 0.2, 0.9]), "top", share=0.5)
    tensor(0.7500, dtype=torch.float64)
    """
    ranked = ~entropy.isnan()
    right, keys = hits[ranked].double(), entropy[ranked].double()
    if len(keys) == 0:
        return torch.tensor(float("nan"), dtype=torch.float64)
    keys = keys if end == "top" else -keys
    places = max(1, math.ceil(share * len(keys) - _ROUNDING))
    last = keys.kthvalue(places).values
    inside, tied = keys < last, keys == last
    left = places - inside.sum()
    return (right[inside].sum() + left * right[tied].mean()) / places


def known_mean(values: Tensor) -> Tensor:
    """Mean of the values that are not NaN, a float64 scalar; NaN of none."""
    return values.double().nanmean()


def kendall_tau(x: Tensor, y: Tensor) -> Tensor:
    """Kendall's rank correlation with its correction for ties, tau-b (Kendall 1938, 1945).

    Args:
        x: ``[n]``.
        y: ``[n]``.

    Returns:
        Float64 scalar in [-1, 1]; NaN where x or y is constant, or n < 2.

    >>> kendall_tau(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.9, 0.5, 0.7]))
    tensor(-0.3333, dtype=torch.float64)
    """
    # Every pair is counted twice, in numerator and denominator alike.
    by_x, by_y = (torch.sign(v.double()[:, None] - v.double()) for v in (x, y))
    return (by_x * by_y).sum() / (by_x.square().sum() * by_y.square().sum()).sqrt()


class QuartileAccuracy(BatchMean):
    """Accuracy of the quarter of a batch's cells that the attacker is surest, or least sure, of; mean over batches.

    TabLeak Tables 4 and 29-32. Categorical and numerical cells are ranked apart, since their entropies have different
    units. The published notebook takes a quarter of the number of *numerical* cells for categorical cells too: on
    Adult (8 categorical, 6 numerical columns) ``share=0.25 * 6 / 8`` reproduces it.

    Args:
        kind: ``categorical`` or ``numerical`` cells.
        end: ``top`` (lowest entropy) or ``bottom`` (highest).
        share: share of the cells of that kind, in (0, 1].
        kwargs: passed to ``torchmetrics.Metric``.

    Raises:
        UsageError: ``share`` is outside (0, 1].
    """

    higher_is_better = True

    def __init__(self, kind: CellKind, end: End, share: float = QUARTER, **kwargs: Any) -> None:
        if not 0 < share <= 1:
            raise UsageError(f"share must be above 0 and at most 1, got {share}")
        super().__init__(kind, end, share, **kwargs)
        self.kind, self.end, self.share = kind, end, share

    def update(self, batch: MatchedBatch) -> None:
        """Count one batch."""
        hits, entropy = (batch.of_kind(cells, self.kind) for cells in (batch.hits, batch.entropy))
        self.add(ranked_accuracy(hits, entropy, self.end, self.share))


class EntropyAccuracyCorrelation(Metric):
    """Kendall's tau between mean entropy and mean accuracy of a batch, over batches (TabLeak Tables 25-28).

    Negative: the attacker sees which batches it recovered well. NaN where every batch is equally accurate (the tables'
    NaN), or with fewer than two batches. Batches without entropy are left out.

    Args:
        kind: ``categorical`` or ``numerical`` cells.
        kwargs: passed to ``torchmetrics.Metric``.
    """

    is_differentiable = False
    full_state_update = False
    higher_is_better = False

    def __init__(self, kind: CellKind, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self._state = f"batches_{kind}"
        self.add_state(self._state, [], dist_reduce_fx="cat")
        # A rank without batches sends an empty tensor of the metric's own type, which must be that of the others.
        self.set_dtype(torch.float64)

    def update(self, batch: MatchedBatch) -> None:
        """Count one batch."""
        entropy = known_mean(batch.of_kind(batch.entropy, self.kind))
        accuracy = fraction(batch.of_kind(batch.hits, self.kind))
        if not bool(entropy.isnan() | accuracy.isnan()):
            getattr(self, self._state).append(torch.stack([entropy, accuracy]).to(self.device))

    def compute(self) -> Tensor:
        """The correlation, a float64 scalar."""
        state = getattr(self, self._state)
        # Flat, as an empty rank sends a vector of length 0: entropy and accuracy in turn.
        flat = torch.cat(state) if isinstance(state, list) and state else state
        pairs = flat.reshape(-1, 2) if isinstance(flat, Tensor) else torch.empty(0, 2)
        return kendall_tau(pairs[:, 0], pairs[:, 1])
