"""Measured figures by name, from a data file; a test compares it with benchmarks/RESULTS.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lightleak.cards.shipped import read_shipped_yaml


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
    found: dict[tuple[str, str], list[Measurement]] = {}
    content = read_shipped_yaml("measured.yaml")
    for section in content["sections"]:
        for entry in section["figures"]:
            about = entry["of"], entry.get("family", "")
            found.setdefault(about, []).append(_measurement(section, entry, content["version"]))
    return {about: tuple(figures) for about, figures in found.items()}


def _measurement(section: Mapping[str, Any], entry: Mapping[str, Any], version: str) -> Measurement:
    return Measurement(
        what=", ".join(filter(None, (entry["what"], section["setting"]))),
        figure=f"{entry['figure']} [{entry['interval']}]" if "interval" in entry else entry["figure"],
        paper=entry.get("paper", ""),
        section=section["heading"],
        date=str(section["date"]),
        version=version,
    )
