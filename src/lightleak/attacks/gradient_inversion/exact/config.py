"""Settings of exact inversion, and what the settings of all attacks with certificates share."""

from dataclasses import dataclass
from typing import ClassVar

from lightleak.attacks.gradient_inversion.tables.row_prior import PriorSource
from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded


@dataclass(frozen=True, kw_only=True)
class ExactSettings(AttackSettings):
    """What the settings of all attacks with certificates share.

    Attributes:
        prior: prior of the cells, see `RowPrior.of`; it guides the search and fills missing rows.

    Raises:
        UsageError: a value of the wrong type.
    """

    prior: PriorSource = "auto"


@dataclass(frozen=True)
class ExactConfig(ExactSettings):
    """How much work exact inversion does before it gives up, and what it may know.

    Attributes:
        chains: starts of a search for rows.
        most_chains: starts of a search after many fruitless ones.
        sweeps: most rounds of a search over all columns.
        patience: fruitless searches in a row after which the rows left are given up.
        enumerate_below: distinct rows left at which enumeration is tried before a search.
        batch_statistics: the server knows mean and variance of every BatchNorm layer on the client's batch; without
            them BatchNorm in train mode may normalize numbers of the table alone, which are then open up to a shift.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact"

    chains: int = bounded(192, ge=1)
    most_chains: int = bounded(2048, ge=1)
    sweeps: int = bounded(15, ge=1)
    patience: int = bounded(12, ge=1)
    enumerate_below: int = bounded(40, ge=0)
    batch_statistics: bool = False
