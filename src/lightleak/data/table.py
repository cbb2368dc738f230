"""A loaded dataset: a card of facts, a schema, private rows and held-out rows."""

import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field

import numpy as np
import pandas as pd

from lightleak.data.schema import TableSchema


@dataclass(frozen=True)
class DatasetCard:
    """Where a table comes from.

    Attributes:
        name: registry name.
        title: full name.
        urls: official addresses, one per file where it can be downloaded.
        files: file names the loader reads, relative to the dataset's folder.
        sha256: checksums of files we hold; a file without one is loaded unchecked, which the log reports.
        license: terms of use.
        citation: whom to cite.
        notes: preprocessing, and every deviation from the paper with its cause.
    """

    name: str
    title: str
    urls: tuple[str, ...]
    files: tuple[str, ...]
    license: str = ""
    citation: str = ""
    notes: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    licence: InitVar[str | None] = None

    def __post_init__(self, licence: str | None) -> None:
        """Accept the earlier spelling of ``license``, with a note."""
        if licence is not None:
            warnings.warn("DatasetCard(licence=...) is now spelled license=...", DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "license", licence)


@dataclass(frozen=True)
class Table:
    """A loaded dataset; frames hold the feature columns and the label column by name.

    Attributes:
        card: its facts.
        schema: its columns, with the bounds of numerical ones.
        train: private rows.
        test: held-out rows.
        seen_bounds: columns whose bounds are not declared but those of all rows, private ones included.
        train_index: labels of the private rows in the source: the index of a DataFrame, or the lines of a file (from 0,
            below the column names); None where that is not known.
        possible_codes: columns of an inferred schema whose whole numbers may be codes of categories.
        possible_identifiers: likewise, that may number people or records.
        imputed: by column with gaps that were filled from all rows, which cells these are: bool, private rows first.
    """

    card: DatasetCard
    schema: TableSchema
    train: pd.DataFrame
    test: pd.DataFrame
    seen_bounds: tuple[str, ...] = field(default=(), kw_only=True)
    train_index: pd.Index | None = field(default=None, kw_only=True, repr=False, compare=False)
    possible_codes: tuple[str, ...] = field(default=(), kw_only=True)
    possible_identifiers: tuple[str, ...] = field(default=(), kw_only=True)
    imputed: Mapping[str, np.ndarray] = field(default_factory=dict, kw_only=True, repr=False, compare=False)
