"""Pseudo-labels of public rows: what the target takes them for, and the rows of each class that it is surest of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.errors import ObservationError, UsageError


@dataclass(frozen=True)
class PseudoLabelConfig(AttackSettings):
    """How public rows are chosen (thesis Sec. 4.2; Sec. 6.7.1 for the minimum and the dynamic choice).

    Attributes:
        top_n: rows kept of each class (top-n of Table 5.4).
        minimum: a class that fewer rows are taken for is excluded. The thesis sets none; two of its hundred classes
            had no row at all.
        dynamic: keep more than ``top_n`` rows where there are more, so that less public data is thrown away.
        largest_ratio: with ``dynamic``, no class keeps more than this many times the rows of the smallest one, or
            ``top_n`` where that is more. The default is what ``top_n`` and ``minimum`` allow by themselves.
        least_confidence: rows whose probability of their class is below it are not kept.
    """

    owner: ClassVar[str] = "the choice of public rows"

    top_n: int = bounded(100, ge=1)
    minimum: int = bounded(10, ge=1)
    dynamic: bool = False
    largest_ratio: float = bounded(10.0, ge=1)
    least_confidence: float = bounded(0.0, ge=0, lt=1)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        super().__post_init__()
        if self.minimum > self.top_n:
            raise UsageError(f"minimum must be at most top_n ({self.top_n}), got {self.minimum}")


@dataclass(frozen=True)
class PseudoLabels:
    """The chosen public rows, class after class, the surest first. Classes keep the indices that the target gives them.

    Attributes:
        rows: LongTensor ``[m]``, positions in the public table.
        labels: LongTensor ``[m]``, the class each is taken for.
        confidence: float64 ``[m]``, its probability.
        available: LongTensor ``[n_classes]``, rows whose largest logit is the class's.
        used: LongTensor ``[n_classes]``, rows kept.
        excluded: classes without enough rows, by index, with the reason.
    """

    rows: Tensor
    labels: Tensor
    confidence: Tensor
    available: Tensor
    used: Tensor
    excluded: Mapping[int, str]

    @property
    def classes(self) -> tuple[int, ...]:
        """Indices of the classes that can be attacked, ascending."""
        return tuple(index for index in range(len(self.used)) if index not in self.excluded)

    def summary(self) -> list[dict[str, Any]]:
        """One JSON-ready entry per class: ``class``, ``public_rows``, ``used`` and ``excluded``."""
        pairs = zip(self.available.tolist(), self.used.tolist(), strict=True)
        return [
            {"class": index, "public_rows": available, "used": used, "excluded": self.excluded.get(index)}
            for index, (available, used) in enumerate(pairs)
        ]


def pseudo_label(logits: Tensor, config: PseudoLabelConfig | None = None) -> PseudoLabels:
    """Give each row the class of its largest logit and keep the surest rows of every class (thesis Sec. 4.2).

    Rows of equal confidence keep their order.

    Args:
        logits: the target's, ``[n, n_classes]``, of the public rows.
        config: what is kept.

    Raises:
        ObservationError: the logits are no finite matrix, or no class has enough rows.

    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    >>> chosen = pseudo_label(logits, PseudoLabelConfig(top_n=1, minimum=1))
    >>> chosen.rows.tolist(), chosen.labels.tolist(), sorted(chosen.excluded)
    ([2, 1], [0, 1], [2])
    """
    config = config or PseudoLabelConfig()
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ObservationError(f"logits must be [rows, at least 2 classes], got {list(logits.shape)}")
    if not torch.isfinite(logits).all():
        bad = int((~torch.isfinite(logits).all(1)).sum())
        raise ObservationError(f"logits of public rows must be finite, got NaN or infinity in {bad} of {len(logits)}")
    labels, odds = _surest_class(logits.double())
    n_classes = logits.shape[1]
    available = torch.bincount(labels, minlength=n_classes)
    candidates = torch.nonzero(odds.sigmoid() >= config.least_confidence).squeeze(1)
    order = candidates[odds[candidates].argsort(descending=True, stable=True)]
    order = order[labels[order].argsort(stable=True)]
    eligible = torch.bincount(labels[order], minlength=n_classes)
    quota = _quota(eligible, config)
    starts = eligible.cumsum(0) - eligible
    rank = torch.arange(len(order), device=logits.device) - starts[labels[order]]
    rows = order[rank < quota[labels[order]]]
    return PseudoLabels(rows, labels[rows], odds[rows].sigmoid(), available, quota, _excluded(eligible, config))


def _surest_class(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Class of the largest logit and its log-odds, which order rows as probabilities do but never round to 1."""
    top, labels = logits.max(1)
    odds = top - logits.scatter(1, labels.unsqueeze(1), float("-inf")).logsumexp(1)
    # The last bit of exp depends on where a row lies in memory; without rounding, equal rows would not be equal.
    return labels, odds.round(decimals=9)


def _quota(eligible: Tensor, config: PseudoLabelConfig) -> Tensor:
    """Rows to keep of each class."""
    enough = eligible >= config.minimum
    if not enough.any():
        raise ObservationError(
            f"no class can be attacked: none is the target's choice for {config.minimum} public rows "
            f"(the most has {int(eligible.max())}); lower minimum or hold more public rows"
        )
    limit = config.top_n
    if config.dynamic:
        limit = max(limit, int(config.largest_ratio * int(eligible[enough].min())))
    return eligible.clamp(max=limit) * enough


def _excluded(eligible: Tensor, config: PseudoLabelConfig) -> dict[int, str]:
    sure = f" with a probability of at least {config.least_confidence:g}" if config.least_confidence else ""
    return {
        index: f"{count} public rows are taken for it{sure}; at least {config.minimum} are needed"
        for index, count in enumerate(eligible.tolist())
        if count < config.minimum
    }
