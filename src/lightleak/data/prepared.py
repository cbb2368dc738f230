"""`PreparedTable`: a user's table with its fitted encoder."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from torch import Tensor

from lightleak.core.arguments import require_kind
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema
from lightleak.data.table import Table


@dataclass(frozen=True)
class PreparedTable:
    """A table and its fitted encoder, as returned by `lightleak.prepare`.

    Attributes:
        table: its schema, training rows and test rows.
        encoder: fitted on the training rows.
    """

    table: Table
    encoder: TableEncoder

    @property
    def width(self) -> int:
        """Encoded features of a row: the inputs of a network."""
        return self.encoder.width

    @property
    def n_classes(self) -> int:
        """Classes of the label: the logits of a network."""
        return self.table.schema.n_classes

    @property
    def schema(self) -> TableSchema:
        """The columns."""
        return self.table.schema

    @cached_property
    def marginals(self) -> Marginals:
        """Frequencies of the test rows, which belong to no client; the baseline guesses from them."""
        return Marginals.of(self.table.schema, self.table.test)

    def encode(self, frame: pd.DataFrame | None = None) -> tuple[Tensor, Tensor]:
        """Inputs ``[n, width]`` float32 and labels ``[n]`` int64 of a table, or of the training rows.

        Raises:
            DataError: rows that the schema does not describe.
            UsageError: no DataFrame.
        """
        rows = self.table.train if frame is None else frame
        require_kind("frame", rows, pd.DataFrame, "a DataFrame with the table's columns, or None for its training rows")
        return self.encoder.encode(rows), self.encoder.encode_labels(rows)
