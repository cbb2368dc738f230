"""A card as a page of the documentation, and the page that lists all of them."""

import re
from collections.abc import Sequence

from lightleak.cards.catalogue import NONE_KNOWN, NOT_MEASURED, Card
from lightleak.cards.markdown import as_cell, as_table, prose

RESULTS = "../../measured.md"
"""Page of the measured results, as seen from a card's."""


def page_path(card: Card, cards: Sequence[Card]) -> str:
    """Return the path of a card's page below ``cards/``, with the family in it where a name is used twice."""
    twice = sum(card.name == other.name for other in cards) > 1
    family = "-" + re.sub(r"\W+", "-", card.family.split(":")[0].lower()).strip("-") if twice else ""
    return f"{card.kind}s/{card.name}{family}.md"


def card_page(card: Card) -> str:
    """Return the page of one card."""
    parts = [
        f"# {prose(card.heading)}",
        f"*{card.kind.capitalize()}, {card.family}*",
        prose(_sentence(card.summary)),
        *map(prose, card.explanation),
        "## Paper",
        prose(card.citation) or "None.",
        *_bibtex(card),
        "## Threat model",
        prose(card.threat_model),
        "## Needs",
        _points(card.needs) or "Nothing beyond the threat model.",
        "## Settings",
        _settings(card),
        "## What differs from the paper, and why",
        _points(card.deviations) or NONE_KNOWN,
        "## Measured",
        _measured(card),
    ]
    return "\n\n".join(parts) + "\n"


def index_page(cards: Sequence[Card]) -> str:
    """Return the list of all cards by kind and family, one line each."""
    parts = [
        "# Cards",
        "One page for every attack, defense and metric, made from the code: its paper, what its adversary sees and "
        "knows, its settings, what differs from the paper, and what was measured. `lightleak explain NAME` prints the "
        "same.",
    ]
    for kind in ("attack", "defense", "metric"):
        parts.append(f"## {kind.capitalize()}s")
        of_kind = [card for card in cards if card.kind == kind]
        for family in dict.fromkeys(card.family for card in of_kind):
            rows = [
                (f"[{card.name}]({page_path(card, cards)})", as_cell(_titled(card)))
                for card in of_kind
                if card.family == family
            ]
            parts += [f"### {family[:1].upper()}{family[1:]}", as_table(("name", "what it does"), rows)]
    return "\n\n".join(parts) + "\n"


def _titled(card: Card) -> str:
    summary = _sentence(card.summary)
    return f"{card.title}: {summary}" if card.title else summary


def _bibtex(card: Card) -> list[str]:
    entries = "\n\n".join(paper.bibtex for paper in card.papers)
    return [f"```bibtex\n{entries}\n```"] if entries else []


def _settings(card: Card) -> str:
    if not card.settings:
        return "None."
    rows = []
    for setting in card.settings:
        choices = f" One of {', '.join(f'`{word}`' for word in setting.choices)}." if setting.choices else ""
        rows.append((f"`{setting.name}`", f"`{setting.default}`", as_cell(_sentence(setting.meaning) + choices)))
    return as_table(("setting", "default", "meaning"), rows)


def _measured(card: Card) -> str:
    if not card.measured:
        return NOT_MEASURED[card.kind]
    rows = [
        (as_cell(one.what), as_cell(one.figure), as_cell(one.paper), one.date, one.version, as_cell(one.section))
        for one in card.measured
    ]
    table = as_table(("what", "ours", "paper", "day", "version", "section"), rows)
    return f"{table}\n\nThe commands, and more figures: [Measured results]({RESULTS})."


def _points(points: Sequence[str]) -> str:
    return "\n".join(f"* {prose(point)}" for point in points)


def _sentence(text: str) -> str:
    text = f"{text[:1].upper()}{text[1:]}"
    return text if text.endswith((".", ")")) or not text else f"{text}."
