"""The best guess of a secret column by who reads no update: a model of all other columns, trained on test rows."""

from functools import cached_property
from typing import Any

import numpy as np

from lightleak.core.seeds import numpy_generator
from lightleak.data.schema import TableSchema
from lightleak.metrics.people.rows import Floats, Ints, Rows

MOST_CATEGORIES = 255
"""Categories up to which scikit-learn's gradient boosting treats a column as categorical; beyond, as a number."""

MOST_TRAINED = 20_000
"""Rows that the model is trained on; more change its accuracy by less than its interval."""

UNKNOWN = -1
"""No category: nobody asked yet."""


class SecretGuess:
    """Guesses a secret column of people from all others; it is trained once for all attacks, when first asked.

    Args:
        schema: the columns.
        secret: a categorical one, or the label.
        sent: rows of the training part.
        others: at least two test rows; one half trains the model, `strangers` are the other.
        seed: root seed of the split.

    Attributes:
        column: the secret's column of `Rows.categories`.
        strangers: test rows that the model has not seen.
    """

    def __init__(self, schema: TableSchema, secret: str, sent: Rows, others: Rows, seed: int) -> None:
        columns = (*schema.categorical, schema.label)
        self.column = [one.name for one in columns].index(secret)
        self._sizes = [len(one.categories) for one in columns]
        order = numpy_generator(seed, "inference").permutation(len(others))
        half = len(order) // 2
        self.strangers, self._trained_on = others[order[:half]], others[order[half:][:MOST_TRAINED]]
        self._sent, self._guessed = sent, np.full(len(sent), UNKNOWN, dtype=np.int64)

    def of(self, people: Ints) -> Ints:
        """Guesses for people of the training part, ``[n]``."""
        new = people[self._guessed[people] == UNKNOWN]
        self._guessed[new] = self._predict(self._sent[new])
        return self._guessed[people]

    @cached_property
    def of_strangers(self) -> Ints:
        """Guesses for `strangers`."""
        return self._predict(self.strangers)

    def _features(self, rows: Rows) -> Floats:
        return np.column_stack([np.delete(rows.categories, self.column, axis=1), rows.numbers]).astype(float)

    def _predict(self, rows: Rows) -> Ints:
        if self._model is None or not len(rows):
            return np.full(len(rows), self._trained_on.categories[0, self.column])
        return np.asarray(self._model.predict(self._features(rows)))

    @cached_property
    def _model(self) -> Any:
        """The trained classifier; None where the secret is the same in all rows."""
        from sklearn.ensemble import HistGradientBoostingClassifier  # heavy, and used here alone

        rows, secret = self._trained_on, self._trained_on.categories[:, self.column]
        if len(np.unique(secret)) < 2:
            return None
        others = [size <= MOST_CATEGORIES for i, size in enumerate(self._sizes) if i != self.column]
        categorical = [*others, *[False] * rows.numbers.shape[1]]
        model = HistGradientBoostingClassifier(random_state=0, early_stopping=False, categorical_features=categorical)
        return model.fit(self._features(rows), secret)
