"""The table that the rows behind updates come from."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema
from lightleak.data.table import Table
from lightleak.metrics.people.guess import SecretGuess
from lightleak.metrics.people.rows import Floats, Ints, Rows


@dataclass(frozen=True)
class Population:
    """All rows of the table: those that clients hold, and the test rows, which nobody sent.

    Attributes:
        encoder: of the clients.
        sent: rows of the training part; a person is the number of a row.
        others: test rows.
        marginals: what a guess is drawn from; None where the table is not known: ``sent`` are the rows behind the
            updates then, ``others`` is empty, and risks that take the rest of the table are not measured.
        seed: root seed of guesses and of the split of the test rows.
        index: labels of the training rows in the source of the table.
        names: what each row of ``sent`` is called where that is not its number.
    """

    encoder: TableEncoder
    sent: Rows
    others: Rows
    marginals: Marginals | None
    seed: int = 0
    index: pd.Index | None = None
    names: Ints | None = None

    @classmethod
    def of(cls, table: Table, encoder: TableEncoder, marginals: Marginals, seed: int = 0) -> "Population":
        """The rows of a table as the clients' encoder gives them back."""
        sent, others = (
            Rows.of(encoder.project(encoder.encode(frame), clamp=False), encoder.encode_labels(frame))
            for frame in (table.train, table.test)
        )
        return cls(encoder, sent, others, marginals, seed, table.train_index)

    @property
    def schema(self) -> TableSchema:
        """The columns."""
        return self.encoder.schema

    @cached_property
    def deviation(self) -> Floats:
        """``[L]`` standard deviations of the numerical columns that the server knows."""
        return np.asarray(self.encoder.deviation.double().cpu().numpy())

    @cached_property
    def everyone(self) -> Rows:
        """All rows."""
        return Rows.together([self.sent, self.others])

    @cached_property
    def sharing(self) -> Ints:
        """By person: how many other rows of the table are equal in every column and the label."""
        both = self.everyone
        _, of, times = np.unique(
            np.column_stack([both.categories, both.numbers]), axis=0, return_inverse=True, return_counts=True
        )
        return np.asarray(times[of.reshape(-1)] - 1)[: len(self.sent)]

    @cached_property
    def guesses(self) -> dict[str, SecretGuess]:
        """By categorical sensitive column, who guesses it without an update; none without test rows."""
        secrets = self.schema.secrets if len(self.others) > 1 else ()
        return {name: SecretGuess(self.schema, name, self.sent, self.others, self.seed) for name in secrets}

    def text(self, column: str, ids: Ints) -> list[str]:
        """Cells of a feature or of the label of those people, as text."""
        if column == self.schema.label.name:
            return [self.schema.label.categories[code] for code in self.sent.labels[ids]]
        found = self.schema.column(column)
        if found.is_numerical:
            at = self.schema.numerical.index(found)
            # Decoded from float32: what is finer than a millionth of the deviation is rounding.
            decimals = max(0, 5 - math.floor(math.log10(self.deviation[at])))
            return [found.number_text(value) for value in self.sent.numbers[ids, at].round(decimals)]
        return [found.categories[code] for code in self.sent.codes[ids, self.schema.categorical.index(found)]]
