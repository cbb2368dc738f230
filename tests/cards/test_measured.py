"""Figures of the cards are those of benchmarks/RESULTS.md, word by word."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightleak.cards import all_cards
from lightleak.cards.shipped import measurements

RESULTS = (Path(__file__).parents[2] / "benchmarks" / "RESULTS.md").read_text("utf-8")
CONTENT = yaml.safe_load((files("lightleak.cards") / "measured.yaml").read_text("utf-8"))
OUTDATED = "benchmarks/RESULTS.md changed: update src/lightleak/cards/measured.yaml to match"


def sections() -> dict[str, tuple[str, str]]:
    """Text below every heading, and the text of it with that of the headings above it."""
    found: dict[str, tuple[str, str]] = {}
    above: dict[int, str] = {}
    for part in re.split(r"^(?=#+ )", RESULTS, flags=re.MULTILINE)[1:]:
        marks, heading = re.match(r"(#+) (.*)", part).groups()  # type: ignore[union-attr]
        above = {level: text for level, text in above.items() if level < len(marks)} | {len(marks): part}
        found[heading] = part, "\n".join(above.values())
    return found


SECTIONS = sections()
FIGURES = [(section, entry) for section in CONTENT["sections"] for entry in section["figures"]]


@pytest.mark.parametrize("section", CONTENT["sections"], ids=lambda section: section["heading"])
def test_a_section_is_there_with_its_day(section: dict[str, Any]) -> None:
    assert section["heading"] in SECTIONS, OUTDATED
    assert str(section["date"]) in SECTIONS[section["heading"]][1], OUTDATED


def test_every_figure_stands_in_its_row_and_the_row_in_its_section() -> None:
    assert len(FIGURES) > 100
    for section, entry in FIGURES:
        assert entry["row"] in SECTIONS[section["heading"]][0], f"{OUTDATED}: {entry['row']}"
        for text in (entry["figure"], entry.get("interval", ""), entry.get("paper", "")):
            assert text in entry["row"], entry


def test_the_version_is_the_one_that_was_measured() -> None:
    assert f"lightleak {CONTENT['version']}" in RESULTS


def test_every_figure_is_about_a_card_and_shown_on_it() -> None:
    shown = [one for card in all_cards() for one in card.measured]
    assert len(shown) == len(FIGURES) == sum(map(len, measurements().values()))
    (tableak,) = [card for card in all_cards() if card.name == "tableak"]
    assert {one.date for one in tableak.measured} == {"2026-11-20"}
    assert all(one.version == CONTENT["version"] for one in shown)


def test_a_day_of_a_parent_section_counts_and_one_of_a_sibling_does_not() -> None:
    assert "2026-11-21" in SECTIONS["Defenses (Table XVI)"][1]
    assert "2026-11-22" not in SECTIONS["Defenses (Table XVI)"][1]
