"""Generator and target share one transform: f_G = f_T, so that f_inv is the identity (thesis Sec. 6.7.5)."""

import pandas as pd
from torch import Tensor

from lightleak.attacks.model_inversion.segments import Segment, Segments
from lightleak.attacks.model_inversion.table_transform import TableTransform
from lightleak.data.encoder import TableEncoder


class SharedTransform(TableTransform):
    """Generator space is the target's input space itself.

    A category is a softmax block, a number a sigmoid into its encoded bounds; what the encoder adds to them (it may
    standardize one-hot columns too) is in the bounds of `segments`.

    >>> from lightleak.data.schema import Column, TableSchema
    >>> schema = TableSchema((Column.integer("age", 0, 100), Column.categorical("sex", ["F", "M"])),
    ...                      label=Column.categorical("ill", ["0", "1"]))
    >>> frame = pd.DataFrame({"age": [30, 130], "sex": ["F", "M"]})
    >>> SharedTransform(TableEncoder(schema, "minmax").fit(frame)).encode(frame)
    tensor([[0.3000, 1.0000, 0.0000],
            [1.0000, 0.0000, 1.0000]])
    """

    def __init__(self, encoder: TableEncoder) -> None:
        """Take the target's encoder.

        Raises:
            DataError: the encoder is not fitted.
        """
        super().__init__()
        encoder.to_state()  # refuses an encoder without statistics
        self.encoder, self.schema = encoder, encoder.schema
        low, high = (bound.tolist() for bound in encoder.encoded_bounds())
        blocks = [
            Segment(block.name, "softmax" if block.categorical else "sigmoid", block.start, block.stop)
            for block in encoder.layout.blocks
        ]
        self.segments = Segments(tuple(blocks), tuple(low), tuple(high))

    def encode(self, frame: pd.DataFrame, seed: int = 0) -> Tensor:
        """See `TableTransform.encode`; numbers beyond the encoder's bounds become the bound. Nothing is drawn."""
        low, high = (bound.float().cpu() for bound in self.encoder.encoded_bounds())
        return self.encoder.encode(frame).clamp(low, high)

    def project(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `TableTransform.project`."""
        self._require_width(h)
        return self.encoder.project(h.to(self.encoder.shift.device))
