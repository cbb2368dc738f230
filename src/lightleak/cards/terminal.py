"""A card in a terminal."""

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from lightleak.cards.catalogue import NONE_KNOWN, NOT_MEASURED, Card


def print_card(card: Card, console: Console) -> None:
    """Print a card; nothing in its texts is interpreted as markup."""
    console.print(f"[bold]{escape(card.heading)}[/bold]  {card.kind}, {escape(card.family)}", highlight=False)
    console.print(escape(_sentence(card.summary)), highlight=False)
    for paragraph in card.explanation:
        _block(console, paragraph)
    _heading(console, "Paper")
    _block(console, card.citation or "None.")
    _heading(console, "What the adversary sees and knows" if card.kind == "attack" else "Threat model")
    _block(console, card.threat_model)
    _points(console, "Needs", card.needs)
    _heading(console, "Settings")
    _settings(console, card)
    _points(console, "Differs from the paper", card.deviations or (NONE_KNOWN,))
    _heading(console, "Measured (benchmarks/RESULTS.md)")
    _measured(console, card)
    _bibtex(console, card)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{escape(text)}[/bold]", highlight=False)


def _block(console: Console, text: str) -> None:
    console.print(Padding(escape(text), (0, 0, 0, 2)), highlight=False)


def _points(console: Console, heading: str, points: tuple[str, ...]) -> None:
    if points:
        _heading(console, heading)
    for point in points:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(" -", escape(point))
        console.print(grid, highlight=False)


def _settings(console: Console, card: Card) -> None:
    if not card.settings:
        _block(console, "None.")
        return
    grid = Table("setting", "default", "meaning", box=None, header_style="italic", padding=(0, 1, 0, 1))
    for setting in card.settings:
        grid.add_row(escape(setting.name), escape(setting.default), escape(setting.meaning))
    console.print(grid, highlight=False)


def _measured(console: Console, card: Card) -> None:
    if not card.measured:
        _block(console, NOT_MEASURED[card.kind])
        return
    grid = Table("what", "ours", "paper", "day, version", box=None, header_style="italic", padding=(0, 1, 0, 1))
    for one in card.measured:
        grid.add_row(escape(one.what), escape(one.figure), escape(one.paper), f"{one.date}, {one.version}")
    console.print(grid, highlight=False)


def _bibtex(console: Console, card: Card) -> None:
    """Print the entries neither indented nor wrapped, so that they can be copied."""
    if card.papers:
        _heading(console, "BibTeX")
    for paper in card.papers:
        console.print(paper.bibtex, markup=False, highlight=False, soft_wrap=True)
