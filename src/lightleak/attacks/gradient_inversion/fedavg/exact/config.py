"""Settings of the exact inversion of weight updates."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self, get_args

from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import EnumerationLimits
from lightleak.attacks.gradient_inversion.tables.row_prior import PriorSource
from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class ExactFedAvgConfig:
    """How much work is done before it gives up, and what it may know.

    Attributes:
        half_sums: see `EnumerationLimits`.
        pairs: likewise.
        hits: likewise.
        restarts: fits of all layers, where the exact tests leave rows open.
        steps: of the continuous stage of a fit.
        prior: what is believed of cells, see `RowPrior.of`.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    half_sums: int = 200_000
    pairs: int = 40_000_000
    hits: int = 400_000
    restarts: int = 3
    steps: int = 2000
    prior: PriorSource = "auto"
    limits: EnumerationLimits = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("half_sums", "pairs", "hits", "restarts", "steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number, at least 1, got {value!r}")
        if self.prior not in get_args(PriorSource):
            raise UsageError(f"prior must be one of {', '.join(get_args(PriorSource))}, got {self.prior!r}")
        object.__setattr__(self, "limits", EnumerationLimits(self.half_sums, self.pairs, self.hits))

    def with_options(self, **options: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        known = [f.name for f in fields(self) if f.init]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"exact_fedavg has no setting {', '.join(unknown)}; settings: {', '.join(known)}")
        return replace(self, **options)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: value for name, value in asdict(self).items() if name != "limits"}
