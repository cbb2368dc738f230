"""Data files of this package: the papers (`bibliography.yaml`) and the measured figures (`measured.yaml`) of the cards.

A test compares the figures with benchmarks/RESULTS.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast, and `lightleak explain` waits for it."""


def read_shipped(name: str) -> str:
    """Return the text of a file that lies next to this module."""
    return (files("lightleak.cards") / name).read_text("utf-8")


def _read_yaml(name: str) -> Any:
    return yaml.load(read_shipped(name), _LOADER)


@dataclass(frozen=True)
class Paper:
    """One entry of the bibliography.

    Attributes:
        key: of the entry, such as ``vero2023tableak``.
        cited_by: registry names whose card cites it.
        bibtex: the entry.
    """

    key: str
    cited_by: tuple[str, ...]
    bibtex: str


@cache
def bibliography() -> tuple[Paper, ...]:
    """Return all entries, in the order of the file.

    >>> [paper.key for paper in bibliography() if "tableak" in paper.cited_by]
    ['vero2023tableak']
    """
    return tuple(
        Paper(key, tuple(entry["cited_by"]), entry["bibtex"].strip())
        for key, entry in _read_yaml("bibliography.yaml").items()
    )


@dataclass(frozen=True)
class Measurement:
    """One figure of benchmarks/RESULTS.md.

    Attributes:
        what: what was measured, on what, with the number of repetitions.
        figure: as printed there, with its interval or deviation.
        paper: the paper's figure for the same; empty if there is none.
        section: heading of the section, which has the commands.
        date: day of the measurement, ISO 8601.
        version: of LightLeak.
    """

    what: str
    figure: str
    paper: str
    section: str
    date: str
    version: str


@cache
def measurements() -> Mapping[tuple[str, str], tuple[Measurement, ...]]:
    """Return all figures by the name they are about and its family, which is empty where the name is used once."""
    found: dict[tuple[str, str], tuple[Measurement, ...]] = {}
    content = _read_yaml("measured.yaml")
    for section in content["sections"]:
        for entry in section["figures"]:
            measured = Measurement(
                what=", ".join(filter(None, (entry["what"], section["setting"]))),
                figure=f"{entry['figure']} [{entry['interval']}]" if "interval" in entry else entry["figure"],
                paper=entry.get("paper", ""),
                section=section["heading"],
                date=str(section["date"]),
                version=content["version"],
            )
            about = entry["of"], entry.get("family", "")
            found[about] = (*found.get(about, ()), measured)
    return found
