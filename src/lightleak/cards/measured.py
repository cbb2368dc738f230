"""Measured figures by name, from a data file whose figures stand in benchmarks/RESULTS.md (a test compares them)."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from lightleak.cards.card import Measurement


@cache
def measurements() -> Mapping[tuple[str, str], tuple[Measurement, ...]]:
    """All figures by the name they are about and its family, which is empty where the name is used once."""
    found: dict[tuple[str, str], list[Measurement]] = {}
    content = yaml.safe_load((files("lightleak.cards") / "measured.yaml").read_text("utf-8"))
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
