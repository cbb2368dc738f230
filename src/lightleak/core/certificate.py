"""What an attack knows about its own success, without the truth."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

RowStatus = Literal["certified", "likely", "missing"]
Outcome = Literal["exact", "partial", "approximate"]

NUMBERS_WITHIN = 0.01
"""Deviations of its column within which a number with certified digits lies of the true value. Whole numbers whose
deviation is below 50 are then the true ones. The one tolerance of certificates: attacks certify by it, documents state
it, and benchmarks count wrong certificates by it."""


@dataclass(frozen=True)
class Feasibility:
    """What exact inversion may expect of an update, from shapes, ranks and noise alone: before any work.

    Attributes:
        ranks: rank of the gradient of every hidden layer's weights and bias, the first layer first.
        row_constraints: per hidden layer, equations that the row space puts on every row.
        unit_constraints: per hidden layer, equations that the column space puts on every row.
        noise: estimated deviation of the gradient's elements, in addition to rounding.
        expected: ``exact`` (every row with a certificate), ``partial`` (some of them) or ``approximate`` (rows are
            optimized jointly; they are certified only where all of them together explain the gradient).
        reason: why, in words.
    """

    ranks: tuple[int, ...]
    row_constraints: tuple[int, ...]
    unit_constraints: tuple[int, ...]
    noise: float
    expected: Outcome
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


@dataclass(frozen=True)
class Certificate:
    """What stands behind every row of a reconstruction: two facts, its cells and its digits.

    Attributes:
        residual: norm of the observed gradient minus that of the reconstruction, relative to the observed one's.
        status: per row, in the order of the reconstruction: ``certified`` (its categories, its label and how often it
            occurs are proven: no other row could pass the same tests), ``likely`` (the best explanation found, not
            proven) or ``missing`` (nothing found: the row is a guess from the prior). In a table without categories a
            row is certified only with its numbers, the normalized ones where ``normalized_proven`` is given.
        digits: per row, whether its numbers are proven as well: each lies within `NUMBERS_WITHIN` of the true one.
            False for rows that occur more than once, of whose numbers only the mean shows.
        multiplicity: per row, how many rows of the batch are equal to it, its label aside.
        feasibility: what was expected before any work.
        scale: what the observed gradient was multiplied by, as its client had scaled it down (clipping); the residual
            is that of the product. Of a weight update it is known to 5 to 15 %, and 1 up to a factor of 1.2.
        labels_proven: the labels of certified rows are proven, as their categories are; not where clients drop units,
            on which labels depend.
        assumed_statistics: by numerical column that BatchNorm normalized by statistics that the attacker does not know,
            the mean and the deviation in the table's units that were put in their place; per client the true mean
            may be another, and the true deviation where ``feasibility`` says so. No digits are certified then.
        normalized_proven: per row, whether its normalized numbers are certified; empty without such columns.

    Raises:
        ValueError: digits or normalized_proven of another number of rows, or digits of a row whose cells are not
            certified.
    """

    residual: float
    status: tuple[RowStatus, ...]
    digits: tuple[bool, ...]
    multiplicity: tuple[int, ...]
    feasibility: Feasibility
    scale: float = 1.0
    labels_proven: bool = True
    assumed_statistics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    normalized_proven: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if len(self.digits) != len(self.status):
            raise ValueError(f"digits must be given for {len(self.status)} rows, got {len(self.digits)}")
        if self.assumed_statistics and len(self.normalized_proven) != len(self.status):
            n, got = len(self.status), len(self.normalized_proven)
            raise ValueError(f"normalized_proven must be given for {n} rows, got {got}")
        if any(sure and status != "certified" for sure, status in zip(self.digits, self.status, strict=True)):
            raise ValueError("digits can be certified only of rows whose cells are")

    @property
    def certified(self) -> int:
        """Number of rows whose categories and label are certified."""
        return sum(s == "certified" for s in self.status)

    @property
    def certified_digits(self) -> int:
        """Number of rows whose numbers are certified as well."""
        return sum(self.digits)

    @property
    def complete(self) -> bool:
        """Whether the categories and label of every row are certified."""
        return self.certified == len(self.status)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)
