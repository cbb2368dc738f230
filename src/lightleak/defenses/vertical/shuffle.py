"""D4: the victim disorders a share of its rows (ProVFL, Sec. VII-D)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.core.seeds import generator
from lightleak.data.vertical import VerticalRows
from lightleak.defenses.vertical.defense import (
    VERTICAL_DEFENSES,
    PreparedRows,
    VerticalDefense,
    check_rows,
)


@VERTICAL_DEFENSES.register("shuffle")
@dataclass(frozen=True)
class ShuffleDefense(VerticalDefense):
    """A random share of the rows swap the victim's columns among them; ids, labels and other columns stay.

    Every chosen row gets another row's columns. Done once, before training, as the paper says. (The published code
    instead disorders the first batches of every epoch, each within itself and anew, with ``random.shuffle`` on a
    tensor, which overwrites rows: some appear twice, others not at all.)

    Attributes:
        ratio: share of the rows, above 0 and at most 1.

    Raises:
        UsageError: a ratio out of range.

    Needs:
        * The victim gives up the truth of the rows it disorders.

    Deviates:
        * Once, before training, as the text says; the published code disorders the first batches of every epoch, and
          overwrites some rows with others.
    """

    name = "shuffle"
    citation = "Bai et al., ProVFL, IEEE TIFS 2025, Sec. VII-D"
    words = "the victim disorders {ratio:.0%} of its rows"
    varies = "ratio"

    ratio: float = bounded(0.2, gt=0, le=1)

    def prepare(self, rows: VerticalRows, has_property: Tensor, victim_party: int, seed: int) -> PreparedRows:
        """See `VerticalDefense`; all rows stay, in order."""
        check_rows(rows, has_property, victim_party)
        n = len(rows.ids)
        order = torch.randperm(n, generator=generator(seed, "defense", self.name))[: round(self.ratio * n)]
        start = sum(rows.widths[:victim_party])
        columns = slice(start, start + rows.widths[victim_party])
        inputs = rows.inputs.clone()
        inputs[order, columns] = rows.inputs[order.roll(1), columns]
        return PreparedRows(replace(rows, inputs=inputs), torch.arange(n), has_property)
