"""D5: the victim withdraws aligned rows that have the property (ProVFL, Sec. VII-E)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.core.errors import DataError
from lightleak.core.seeds import generator
from lightleak.data.vertical import VerticalRows
from lightleak.defenses.vertical.defense import (
    VERTICAL_DEFENSES,
    PreparedRows,
    VerticalDefense,
    check_rows,
)


@VERTICAL_DEFENSES.register("withdraw")
@dataclass(frozen=True)
class WithdrawDefense(VerticalDefense):
    """A share of the rows that have the property leave the training, for all parties.

    Attributes:
        ratio: share of the rows with the property, above 0 and below 1; rounded down to whole rows.
        as_published: withdraw the first of them instead of random ones, and train on all other rows with the property
            before those without it, so that nearly every batch is of one kind. Default: the rows keep their order.

    Raises:
        UsageError: a setting out of range.

    Needs:
        * Rows that are withdrawn are lost to all parties.

    Deviates:
        * Random rows are withdrawn and the others keep their order; the published code withdraws the first and sorts by
          the property (``as_published: true``).
    """

    name = "withdraw"
    citation = "Bai et al., ProVFL, IEEE TIFS 2025, Sec. VII-E"
    varies = "ratio"

    ratio: float = bounded(0.5, gt=0, lt=1)
    as_published: bool = False

    def prepare(self, rows: VerticalRows, has_property: Tensor, victim_party: int, seed: int) -> PreparedRows:
        """See `VerticalDefense`.

        Raises:
            DataError: no row has the property.
        """
        check_rows(rows, has_property, victim_party)
        having = has_property.nonzero().squeeze(1)
        if not len(having):
            raise DataError(f"withdraw: none of the {len(rows.ids)} training rows has the property")
        if not self.as_published:
            having = having[torch.randperm(len(having), generator=generator(seed, "defense", self.name))]
        remaining = having[int(self.ratio * len(having)) :]
        source = torch.cat([remaining, (~has_property).nonzero().squeeze(1)])
        if not self.as_published:
            source = source.sort().values
        left = VerticalRows(rows.inputs[source], rows.labels[source], rows.ids[source], rows.widths)
        return PreparedRows(left, source, has_property[source])

    def share_before(self, share: float) -> float:
        """See `VerticalDefense`: of a share p, (1 - ratio) p / (1 - ratio p) is left.

        >>> round(WithdrawDefense(0.5).share_before(0.5), 3)  # 200 of 300 rows, of which 100 are withdrawn
        0.667
        """
        return share / (1 - self.ratio + self.ratio * share)

    def describe(self) -> str:
        """See `VerticalDefense`."""
        order = ", sorted by the property" if self.as_published else ""
        return f"the victim withdraws {self.ratio:.0%} of the rows with the property{order}"
