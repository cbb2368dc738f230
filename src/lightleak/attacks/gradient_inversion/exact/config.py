"""Settings of exact inversion."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self, get_args

from lightleak.attacks.gradient_inversion.tables.row_prior import PriorSource
from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class ExactConfig:
    """How much work exact inversion does before it gives up, and what it may know.

    Attributes:
        chains: starts of a search for rows.
        most_chains: starts of a search after many fruitless ones.
        sweeps: most rounds of a search over all columns.
        patience: fruitless searches in a row after which the rows left are given up.
        enumerate_below: distinct rows left at which enumeration is tried before a search.
        prior: what is believed of cells, see `RowPrior.of`; it steers the search and fills missing rows.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    chains: int = 192
    most_chains: int = 2048
    sweeps: int = 15
    patience: int = 12
    enumerate_below: int = 40
    prior: PriorSource = "auto"

    def __post_init__(self) -> None:
        for name, least in (("chains", 1), ("most_chains", 1), ("sweeps", 1), ("patience", 1), ("enumerate_below", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} must be a whole number, at least {least}, got {value!r}")
        if self.prior not in get_args(PriorSource):
            raise UsageError(f"prior must be one of {', '.join(get_args(PriorSource))}, got {self.prior!r}")

    def with_options(self, **options: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        known = [f.name for f in fields(self)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"exact has no setting {', '.join(unknown)}; settings: {', '.join(known)}")
        return replace(self, **options)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)
