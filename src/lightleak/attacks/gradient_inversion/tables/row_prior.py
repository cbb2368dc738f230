"""What is believed of a cell before any row is known: a share per category, mean and deviation per number."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals

PriorSource = Literal["auto", "marginals", "statistics", "schema"]

SKEWED_WITHIN = 0.5
"""A number whose lower bound lies less than this many deviations below its mean piles up there (capital gain: most rows
have none); candidates then start at the bound."""


@dataclass(frozen=True)
class RowPrior:
    """Independent marginals of the cells.

    Attributes:
        shares: per categorical column, probabilities of its categories ``[width]``, float64.
        mean: of the numerical columns ``[m]``, in the table's units.
        deviation: likewise ``[m]``, above 0.
        source: where this knowledge comes from.
    """

    shares: tuple[Tensor, ...]
    mean: Tensor
    deviation: Tensor
    source: Literal["marginals", "statistics", "schema"]

    @classmethod
    def of(cls, update: ClientUpdate, encoder: TableEncoder, source: PriorSource = "auto") -> "RowPrior":
        """What the server knows.

        Args:
            update: the observation, for its marginals.
            encoder: its encoder, on the device of the work.
            source: ``marginals`` that the observation carries (counted on rows disjoint from the clients'),
                ``statistics`` of a standardizing encoder, or the ``schema`` alone (even shares; numbers even between
                their bounds). ``auto`` takes the first of these that there is.

        Raises:
            UsageError: an unknown source.
            ObservationError: marginals that the observation does not carry, or statistics that the encoding hides.
        """
        if source not in get_args(PriorSource):
            raise UsageError(f"prior must be one of {', '.join(get_args(PriorSource))}, got {source!r}")
        standardized = encoder.encoding == "standardized"
        if source == "auto":
            source = "marginals" if update.marginals is not None else "statistics" if standardized else "schema"
        if source == "marginals":
            if update.marginals is None:
                raise ObservationError("prior 'marginals': the update carries none; use 'statistics' or 'schema'")
            return cls._of_marginals(Marginals.from_dict(update.marginals), encoder)
        if source == "statistics":
            if not standardized:
                raise ObservationError(
                    f"prior 'statistics' needs the encoding 'standardized', got {encoder.encoding!r}; use 'schema'"
                )
            shares = tuple(_normalized(encoder.shift[block.slice]) for block in encoder.layout.categorical)
            return cls(shares, encoder.shift[encoder.numerical_positions], encoder.deviation, "statistics")
        even = tuple(torch.full_like(encoder.shift[b.slice], 1 / b.width) for b in encoder.layout.categorical)
        span = encoder.upper - encoder.lower
        spread = torch.where(span > 0, span / 12**0.5, encoder.deviation)  # a constant has none of its own
        return cls(even, (encoder.lower + encoder.upper) / 2, spread, "schema")

    @classmethod
    def _of_marginals(cls, marginals: Marginals, encoder: TableEncoder) -> "RowPrior":
        marginals.require(encoder.schema)
        shares = []
        for column in encoder.schema.categorical:
            known = dict(zip(marginals.values[column.name], marginals.probabilities[column.name], strict=True))
            shares.append(_normalized(encoder.shift.new_tensor([known.get(c, 0.0) for c in column.categories])))
        means, deviations = [], []
        for column, spread in zip(encoder.schema.numerical, encoder.deviation.tolist(), strict=True):
            values = np.asarray(marginals.values[column.name], dtype="float64")
            weights = np.asarray(marginals.probabilities[column.name], dtype="float64")
            weights = weights / weights.sum()
            mean = float(values @ weights)
            deviation = float(((values - mean) ** 2 @ weights) ** 0.5)
            means.append(mean)
            deviations.append(deviation if deviation > 0 else spread)
        return cls(tuple(shares), encoder.shift.new_tensor(means), encoder.shift.new_tensor(deviations), "marginals")


def _normalized(shares: Tensor) -> Tensor:
    shares = shares.double().clamp_min(0)
    total = shares.sum()
    return shares / total if float(total) > 0 else torch.full_like(shares, 1 / len(shares))
