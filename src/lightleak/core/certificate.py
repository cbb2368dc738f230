"""What an attack knows about its own success, without the truth."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

RowStatus = Literal["certified", "likely", "missing"]
Outcome = Literal["exact", "partial", "approximate"]


@dataclass(frozen=True)
class Feasibility:
    """What exact inversion may expect of an update, from shapes, ranks and noise alone: before any work.

    Attributes:
        ranks: rank of the gradient of every hidden layer's weights and bias, the first layer first.
        row_constraints: per hidden layer, equations that the row space puts on every row.
        unit_constraints: per hidden layer, equations that the column space puts on every row.
        noise: estimated deviation of the gradient's elements, beside rounding.
        expected: ``exact`` (every row with a certificate), ``partial`` (some of them) or ``approximate`` (rows are
            optimised jointly; they are certified only where all of them together explain the gradient).
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
    """What stands behind every row of a reconstruction.

    Attributes:
        residual: norm of the observed gradient minus that of the reconstruction, relative to the observed one's.
        status: per row, in the order of the reconstruction: ``certified`` (it passes every test against the
            gradient's row and column spaces and its coefficient is that of one row, or it belongs to a batch that
            explains the whole gradient to rounding, and could have no other cells), ``likely`` (the best explanation
            found, not proven; also rows that occur more than once, of whose numbers only the mean shows) or
            ``missing`` (nothing found: the row is a guess from the prior).
        multiplicity: per row, how many rows of the batch are equal to it, its label aside.
        feasibility: what was expected before any work.
        scale: what the observed gradient was multiplied by, as its client had scaled it down (clipping); the residual
            is that of the product.
    """

    residual: float
    status: tuple[RowStatus, ...]
    multiplicity: tuple[int, ...]
    feasibility: Feasibility
    scale: float = 1.0

    @property
    def certified(self) -> int:
        """Number of certified rows."""
        return sum(s == "certified" for s in self.status)

    @property
    def complete(self) -> bool:
        """Whether every row is certified."""
        return all(s == "certified" for s in self.status)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)
