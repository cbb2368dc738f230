"""Cards as pages and in a terminal: complete, linked, and nothing of a text taken for markup."""

import io
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lightleak.cards import Card, all_cards, find_cards
from lightleak.cards.terminal import print_card
from lightleak.cli import main

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "site" / "card_pages.py"))
card_page, index_page, page_path = (SCRIPT[name] for name in ("card_page", "index_page", "page_path"))

CARDS = all_cards()
SECTIONS = ["Paper", "Threat model", "Needs", "Settings", "What differs from the paper, and why", "Measured"]


def printed(card: Card) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    print_card(card, console)
    return console.export_text()


@pytest.mark.parametrize("card", CARDS, ids=lambda card: page_path(card, CARDS))
def test_a_page_has_every_section_and_every_table_its_columns(card: Card) -> None:
    page = card_page(card)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    for table in re.findall(r"(?:^\|.*\|$\n?)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert all(f"`{setting.name}`" in page for setting in card.settings)


def test_no_two_cards_share_a_page_and_the_index_links_each() -> None:
    paths = [page_path(card, CARDS) for card in CARDS]
    assert len(set(paths)) == len(CARDS)
    assert sorted(re.findall(r"\]\(([^)]+)\)", index_page(CARDS))) == sorted(paths)


def test_what_looks_like_markup_is_text() -> None:
    odd = replace(
        find_cards("tableak")[0], citation="<script> [bold]A_b*c|d[/bold] `x_y`", threat_model="[red]z[/nothing]"
    )
    page = card_page(odd)
    assert "&lt;script&gt; \\[bold\\]A\\_b\\*c\\|d" in page and "`x_y`" in page
    assert "<script> [bold]A_b*c|d[/bold] `x_y`" in printed(odd)
    assert "[red]z[/nothing]" in printed(odd)


@pytest.mark.parametrize("name", ["tableak", "dp_sgd", "nearer_to_train", "sm_pia"])
def test_a_terminal_shows_what_the_page_shows(name: str) -> None:
    (card,) = find_cards(name)
    shown = " ".join(printed(card).split())
    for text in (card.name, card.family, *(setting.name for setting in card.settings)):
        assert text in shown
    for one in card.measured:
        assert one.figure.split()[0] in shown
    for paper in card.papers:
        assert paper.bibtex in printed(card) and paper.bibtex in card_page(card)


def test_explain_prints_every_card_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "none"]) == 0
    out = capsys.readouterr().out
    assert "defense, updates" in out and "defense, vertical" in out


def test_explain_answers_a_wrong_name_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "tablaek"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "'tableak'" in shown.err and "Traceback" not in shown.err


def test_list_attacks_has_a_line_about_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attacks"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    for card in (card for card in CARDS if card.kind == "attack"):
        assert listed.pop(card.name).endswith(card.summary)
    assert listed == {}


def test_a_title_is_in_the_list_and_in_the_headings(capsys: pytest.CaptureFixture[str]) -> None:
    (card,) = find_cards("random")
    assert card.title == "Guessing"
    assert main(["list", "attacks"]) == 0
    assert re.search(r"^random +Guessing: ", capsys.readouterr().out, re.MULTILINE)
    assert main(["explain", "random"]) == 0
    assert capsys.readouterr().out.startswith("random (Guessing)  attack")
    assert card_page(card).startswith("# random (Guessing)\n")
