"""Facts, downloads and codebook of a dataset, read from the YAML file next to its loader."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lightleak.core.yaml_text import read_yaml_file
from lightleak.data.datasets.registry import Download
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import reading
from lightleak.data.table import DatasetCard


@dataclass(frozen=True)
class Description:
    """The content of a dataset's YAML file.

    Attributes:
        card: the facts; addresses and files are those of the downloads unless the file lists others.
        downloads: official files that need no login.
        codebook: ``columns``, ``label`` and ``sensitive`` as in a schema file, with two short forms: a column without
            ``kind`` is categorical, and ``codes`` (code to meaning) stands for the categories that the codes mean.
    """

    card: DatasetCard
    downloads: tuple[Download, ...]
    codebook: Mapping[str, Any]

    @cached_property
    def schema(self) -> TableSchema:
        """Columns in the order of the codebook, label and sensitive columns."""
        columns = tuple(map(_column, self.codebook["columns"]))
        return TableSchema(columns, _column(self.codebook["label"]), tuple(self.codebook["sensitive"]))

    def read_bare(self, path: Path, **options: Any) -> pd.DataFrame:
        """Rows of a file without a header, where ``?`` is missing and a label may end in a full stop.

        Args:
            path: of the file.
            options: further ones of ``pandas.read_csv``.

        Raises:
            DataError: it cannot be read.
        """
        label = self.schema.label.name
        names = [*self.schema.names, label]
        with reading(path):
            frame = pd.read_csv(
                path, names=names, skipinitialspace=True, keep_default_na=False, na_values="?", **options
            )
        return frame.assign(**{label: frame[label].str.rstrip(".")})

    @cached_property
    def codes(self) -> dict[str, dict[str, str]]:
        """Code to meaning for every column whose cells are codes in the file."""
        return {entry["name"]: entry["codes"] for entry in self.codebook["columns"] if "codes" in entry}


def describe(name: str) -> Description:
    """Read the YAML file of a dataset.

    Args:
        name: name of the dataset; its file is named alike, with underscores for hyphens.
    """
    found = read_yaml_file(Path(__file__).with_name(f"{name.replace('-', '_')}.yaml"), words=True)
    downloads = tuple(
        Download(entry["url"], entry["file"], tuple(entry.get("members", ()))) for entry in found.pop("downloads", ())
    )
    codebook = {key: found.pop(key) for key in ("columns", "label", "sensitive") if key in found}
    files = [file for download in downloads for file in download.provides]
    urls = tuple(found.pop("urls", [download.url for download in downloads]))
    card = DatasetCard(name, urls=urls, files=tuple(found.pop("files", files)), **found)
    return Description(card, downloads, codebook)


def _column(entry: Mapping[str, Any]) -> Column:
    codes = {"categories": list(entry["codes"].values())} if "codes" in entry else {}
    return Column.from_dict({"kind": "categorical", **codes, **{k: v for k, v in entry.items() if k != "codes"}})
