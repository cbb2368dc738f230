"""What encoded rows stand for: rows of a table. The one place where an attack asks."""

from typing import Protocol

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig, EntropyMethod
from lightleak.attacks.gradient_inversion.tables.entropy import cell_entropy
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.relaxation import Relaxation, State

RANK_DEVIATION = 12**-0.5
"""Standard deviation of a rank, which is even in [0, 1]."""

TOLERANCE = 0.319
"""Tolerance of a number in standard deviations: a quarter of a Gaussian lies within it (TabLeak App. A)."""


class RowRelaxation(Protocol):
    """A differentiable map from unconstrained variables to encoded rows; see `Relaxation`."""

    def forward(self, z: Tensor) -> tuple[Tensor, State]:
        """Rows, and what `backward` needs."""

    def backward(self, grad: Tensor, state: State) -> Tensor:
        """A derivative by rows, carried back to the variables."""


class RowCodec(Protocol):
    """Encoded rows and what they stand for, so that one attack serves tables and images.

    Attributes:
        width: encoded features d.
    """

    width: int

    def relaxation(self, config: EngineConfig, dtype: torch.dtype, device: torch.device) -> RowRelaxation:
        """What the configuration asks for."""

    def project(self, rows: Tensor) -> Tensor:
        """The nearest encoded rows ``[..., n, d]`` that something stands for."""

    def similarity(self, reference: Tensor, candidates: Tensor) -> Tensor:
        """``[..., n, n]``: how alike reference row i ``[..., n, d]`` and candidate row j ``[..., n, d]`` are."""

    def decode(self, rows: Tensor) -> pd.DataFrame:
        """Rows ``[n, d]`` as a table."""

    def uncertainty(self, aligned: Tensor, method: EntropyMethod) -> pd.DataFrame:
        """Entropy of every cell over the matched restarts ``[restarts, n, d]``."""


class TableCodec:
    """Rows of a table.

    Args:
        encoder: schema and statistics, on the device of the work.
    """

    def __init__(self, encoder: TableEncoder) -> None:
        self.encoder, self.width = encoder, encoder.width

    def relaxation(self, config: EngineConfig, dtype: torch.dtype, device: torch.device) -> Relaxation:
        """See `RowCodec`."""
        encoder, unit = self.encoder, torch.ones_like(self.encoder.scale)
        # A quantile encoding's numbers are ranks, whatever their deviation in the table.
        unit[encoder.numerical_positions] = (
            RANK_DEVIATION
            if encoder.encoding == "quantile"
            else encoder.deviation / encoder.scale[encoder.numerical_positions]
        )
        constants = (encoder.shift, encoder.scale, *encoder.encoded_bounds())
        shift, scale, lower, upper, unit = (value.to(device, dtype) for value in (*constants, unit))
        return Relaxation(
            encoder.layout,
            shift,
            scale,
            lower,
            upper,
            config.categorical,
            config.numerical,
            unit,
            logits=config.initialization == "prior",
            temperature_end=config.temperature_end,
        )

    def project(self, rows: Tensor) -> Tensor:
        """See `RowCodec`."""
        return self.encoder.assemble(*self.encoder.project(rows)).to(rows.dtype)

    def similarity(self, reference: Tensor, candidates: Tensor) -> Tensor:
        """See `RowCodec`; the cells on which they agree (TabLeak Eq. 6)."""
        return similarity(self.encoder, reference, candidates)

    def decode(self, rows: Tensor) -> pd.DataFrame:
        """See `RowCodec`."""
        return self.encoder.decode(rows)

    def uncertainty(self, aligned: Tensor, method: EntropyMethod) -> pd.DataFrame:
        """See `RowCodec`."""
        return cell_entropy(self.encoder, aligned, method)


def similarity(encoder: TableEncoder, reference: Tensor, candidates: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """Cells on which two projected rows agree (TabLeak Eq. 6), as a fraction.

    Args:
        encoder: schema and statistics.
        reference: encoded rows ``[n, d]``.
        candidates: encoded rows ``[..., n, d]``.
        tolerance: numbers agree within this many standard deviations.

    Returns:
        ``[..., n, n]``; entry ``[i, j]`` compares reference row ``i`` with candidate row ``j``.
    """
    codes, numbers = encoder.project(reference)
    other_codes, other_numbers = encoder.project(candidates)
    agree = (codes.unsqueeze(-2) == other_codes.unsqueeze(-3)).sum(-1)
    within = (numbers.unsqueeze(-2) - other_numbers.unsqueeze(-3)).abs() <= tolerance * encoder.deviation
    return (agree + within.sum(-1)).double() / len(encoder.schema.columns)


def table_codec(update: ClientUpdate, device: torch.device) -> TableCodec:
    """The codec of an update on rows of a table."""
    return TableCodec(TableEncoder.of(update, device))
