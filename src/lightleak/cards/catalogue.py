"""The contents of the registries as a file of the package: listing and explaining names then imports no torch.

`catalogue.json` is written by ``python -m lightleak.cards`` from `registries`; a test checks that it is current. Where
the user loads plug-ins, the registries themselves are read.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache

from lightleak.cards.card import Card
from lightleak.cards.shipped import read_shipped
from lightleak.core.errors import UsageError
from lightleak.core.former_names import current_name
from lightleak.core.plugins import PLUGINS
from lightleak.core.records import read_record

CATALOGUE = "catalogue.json"

WITHOUT_CARD = {
    "datasets": "a dataset; lightleak data describe {} describes it",
    "targets": "a target; lightleak list targets has a line about it",
    "reproductions": "a reproduction; lightleak reproduce {} --plan says what it would run",
}
"""What has a name and no card, and where it is described."""


@dataclass(frozen=True)
class DatasetEntry:
    """One public dataset.

    Attributes:
        title: full name.
        license: of the table.
        files: raw files, relative to the dataset's folder; empty where nothing is downloaded.
    """

    title: str
    license: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    """Everything that has a name.

    Attributes:
        cards: attacks, defenses and metrics, by family and name.
        datasets: by name.
        targets: a line about each network.
        exact: what exact inversion can do against each network.
        reproductions: title of each table or figure that can be run.
    """

    cards: tuple[Card, ...]
    datasets: Mapping[str, DatasetEntry]
    targets: Mapping[str, str]
    exact: Mapping[str, str]
    reproductions: Mapping[str, str]

    def to_json(self) -> str:
        """Return the text of the catalogue file."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Catalogue":
        """Read what `to_json` wrote."""
        return read_record(cls, json.loads(text), CATALOGUE)

    def lines(self, what: str) -> list[tuple[str, str]]:
        """Return every name of a kind, as ``lightleak list`` prints them, with a line about it.

        Args:
            what: attacks, defenses, metrics, datasets, targets or reproductions.
        """
        if what == "datasets":
            return [(name, entry.title) for name, entry in self.datasets.items()]
        if what == "targets":
            return [(name, f"{about}; exact inversion: {self.exact[name]}") for name, about in self.targets.items()]
        if what == "reproductions":
            return list(self.reproductions.items())
        of_kind = [card for card in self.cards if f"{card.kind}s" == what]
        if what == "defenses":
            return [(card.name, f"{card.family.partition(':')[0]}: {card.summary}") for card in of_kind]
        return [(card.name, ": ".join(filter(None, (card.title, card.summary)))) for card in of_kind]


@cache
def load_catalogue() -> Catalogue:
    """Return the shipped catalogue or, where the variable `PLUGINS` names plug-ins, what the registries hold."""
    shipped = Catalogue.from_json(read_shipped(CATALOGUE))
    if os.environ.get(PLUGINS):
        from lightleak.cards.registries import read_registries

        return read_registries(shipped.exact)
    return shipped


def all_cards() -> tuple[Card, ...]:
    """Return every card: attacks, defenses, metrics, by family and name."""
    return load_catalogue().cards


def find_cards(name: str) -> tuple[Card, ...]:
    """Return the cards of a name; more than one where two families use it.

    Raises:
        UsageError: a name without a card, or an unknown one; the message says where it is described, or the nearest.
    """
    cards = tuple(card for card in all_cards() if card.name == current_name(name))
    if not cards:
        for what, about in WITHOUT_CARD.items():
            if name in getattr(load_catalogue(), what):
                raise UsageError(f"{name!r} is {about.format(name)}; cards are of attacks, defenses and metrics")
        known = sorted({card.name for card in all_cards()})
        close = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise UsageError(
            f"unknown attack, defense or metric {name!r}; {hint}lightleak list attacks (defenses, metrics) lists them"
        )
    return cards
