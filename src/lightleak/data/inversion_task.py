"""The task of a model inversion audit: private classes and rows on one side, public rows on the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lightleak.data.schema import TableSchema


@dataclass(frozen=True)
class InversionTask:
    """Rows of both sides, with the selected features only; no group (patient) has rows in two of the four frames.

    Attributes:
        schema: selected feature columns; the label's categories are the private classes, the most frequent first.
        private_train: rows that target and evaluation model are trained on, with their label.
        private_validation: rows for early stopping, with their label.
        private_test: held-out rows of the private classes, with their label.
        public: rows the attacker holds, without a label column.
        facts: what the split left, JSON-ready: rows and groups per part, rows dropped because their group has rows of
            private classes, importance of the selected features, the rule of the split.
    """

    schema: TableSchema
    private_train: pd.DataFrame
    private_validation: pd.DataFrame
    private_test: pd.DataFrame
    public: pd.DataFrame
    facts: Mapping[str, Any]
