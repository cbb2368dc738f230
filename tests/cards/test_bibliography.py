"""The bibliography names the papers of the citations, and nothing else."""

import re

import pytest

from lightleak.cards import Card, all_cards
from lightleak.cards.shipped import Paper, bibliography

OWN = re.compile(
    r"LightLeak's own$|LightLeak: all rows|LightLeak's own; the measure is that of the thesis|SDMetrics, DataCebo$|$"
)
"""Citations without a paper or with one that they only refer to."""


def field(paper: Paper, name: str) -> str:
    found = re.search(rf"^ *{name} *= {{(.*)}},$", paper.bibtex, re.MULTILINE)
    assert found, (paper.key, name)
    return found[1]


@pytest.mark.parametrize("paper", bibliography(), ids=lambda paper: paper.key)
def test_an_entry_is_well_formed(paper: Paper) -> None:
    assert re.match(rf"@(inproceedings|article|mastersthesis){{{paper.key},\n", paper.bibtex)
    assert paper.bibtex.count("{") == paper.bibtex.count("}") and paper.bibtex.endswith("\n}")
    assert field(paper, "title")
    surname = field(paper, "author").split(",")[0]
    assert paper.key.startswith(surname.lower() + field(paper, "year"))


@pytest.mark.parametrize("card", all_cards(), ids=lambda card: f"{card.kind}-{card.name}")
def test_the_papers_of_a_card_are_those_of_its_citation(card: Card) -> None:
    if not card.papers:
        assert OWN.match(card.citation), card.citation
    for paper in card.papers:
        if not OWN.match(card.citation):
            assert field(paper, "author").split(",")[0] in card.citation
            assert field(paper, "year") in card.citation
    years = re.findall(r"\b(?:19|20)\d\d\b", card.citation)
    assert set(years) <= {field(paper, "year") for paper in card.papers}


def test_every_entry_is_cited_by_names_that_exist() -> None:
    names = {card.name for card in all_cards()}
    for paper in bibliography():
        assert paper.cited_by and set(paper.cited_by) <= names
