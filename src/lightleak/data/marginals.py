"""One-way marginals of a table: what an attacker without any update could guess from (TabLeak Sec. 4, Random)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lightleak.data.schema import ColumnKind, TableSchema

BINS = 100  # TabLeak Sec. 4: continuous features are discretised uniformly in 100 bins


@dataclass(frozen=True)
class Marginals:
    """Values and probabilities per column.

    Attributes:
        values: per column the categories, or the lower edges of the bins.
        probabilities: per column their frequencies, summing to 1.
    """

    values: Mapping[str, tuple[Any, ...]]
    probabilities: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, schema: TableSchema, frame: pd.DataFrame, bins: int = BINS) -> "Marginals":
        """Count ``frame``, which should be rows disjoint from the clients' (DESIGN.md, threat model).

        Numbers are cut into at most ``bins`` equal bins, whole numbers of a narrower range into one bin a value; a bin
        stands for its lower edge, as in the reference implementation.
        """
        frame = schema.validate(frame, require_label=False)
        values: dict[str, tuple[Any, ...]] = {}
        probabilities: dict[str, tuple[float, ...]] = {}
        for column in schema.columns:
            cells = frame[column.name]
            if column.is_numerical:
                low, high = float(cells.min()), float(cells.max())
                whole = column.kind is ColumnKind.INTEGER
                n = min(bins, int(high - low) + 1) if whole else bins
                # One bin a value: the last edge lies one past the highest value, so that each bin holds exactly one.
                top = high + 1 if whole and n < bins else high
                counts, edges = np.histogram(cells, bins=n, range=(low, top) if top > low else (low, low + 1))
                values[column.name] = tuple(float(edge) for edge in edges[:-1])
            else:
                counts = cells.value_counts().reindex(list(column.categories), fill_value=0).to_numpy()
                values[column.name] = column.categories
            probabilities[column.name] = tuple((counts / counts.sum()).tolist())
        return cls(values, probabilities)

    def sample(self, schema: TableSchema, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Draw ``n`` rows, every cell independently."""
        drawn = {
            name: rng.choice(np.asarray(self.values[name], dtype=object), size=n, p=_normalised(self.probabilities[name]))
            for name in schema.names
        }
        return pd.DataFrame(
            {
                c.name: drawn[c.name]
                if not c.is_numerical
                else drawn[c.name].astype("float64").round().astype("int64")
                if c.kind is ColumnKind.INTEGER
                else drawn[c.name].astype("float64")
                for c in schema.columns
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {name: [list(self.values[name]), list(self.probabilities[name])] for name in self.values}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "Marginals":
        """Inverse of `to_dict`."""
        return cls({k: tuple(v[0]) for k, v in state.items()}, {k: tuple(v[1]) for k, v in state.items()})


def _normalised(probabilities: tuple[float, ...]) -> np.ndarray:
    p = np.asarray(probabilities, dtype="float64")
    return p / p.sum()
