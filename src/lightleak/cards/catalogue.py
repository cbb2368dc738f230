"""Cards, and all that has a name as a file of the package: listing and explaining names then imports no torch.

How a card looks is decided in `terminal` and, for the documentation, in ``docs/site/card_pages.py`` of a checkout.
`catalogue.json` is written by ``python -m lightleak.cards`` from `registries`; a test checks that it is current. Where
the user loads plug-ins, the registries themselves are read.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from typing import Literal

from lightleak.cards.settings import Setting
from lightleak.cards.shipped import Measurement, Paper, bibliography, measurements, read_shipped
from lightleak.core.errors import UsageError
from lightleak.core.former_names import current_name
from lightleak.core.plugins import PLUGINS
from lightleak.core.records import read_record

CATALOGUE = "catalogue.json"

Kind = Literal["attack", "defense", "metric"]

NONE_KNOWN = "None known."
"""Shown where no deviation from the paper is declared."""

NOT_MEASURED = {
    "attack": "Not measured yet.",
    "defense": "Not measured yet.",
    "metric": "Its figures are on the cards of the attacks.",
}
"""Shown where there is no figure."""

WITHOUT_CARD = {
    "datasets": "a dataset; lightleak data describe {} describes it",
    "targets": "a target; lightleak list targets has a line about it",
    "reproductions": "a reproduction; lightleak reproduce {} --plan says what it would run",
}
"""What has a name and no card, and where it is described."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One attack, defense or metric.

    Attributes:
        name: registry name.
        title: name in reports and papers, such as ``Exact + TabLeak``; empty where there is no other than `name`.
        kind: which of the three.
        family: the registry in words, such as ``updates of federated learning``.
        summary: one line.
        explanation: paragraphs of its docstring after the first line.
        citation: the paper; empty if there is none.
        threat_model: what the adversary (or, for a metric, the auditor) sees and knows.
        needs: assumptions and requirements.
        settings: with defaults.
        deviations: from the paper, and why.
    """

    name: str
    title: str = ""
    kind: Kind
    family: str
    summary: str
    explanation: tuple[str, ...]
    citation: str = ""
    threat_model: str = ""
    needs: tuple[str, ...]
    settings: tuple[Setting, ...]
    deviations: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Registry name, with the title in parentheses."""
        return f"{self.name} ({self.title})" if self.title else self.name

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """Its figures in benchmarks/RESULTS.md."""
        figures = measurements()
        return (*figures.get((self.name, ""), ()), *figures.get((self.name, self.family), ()))

    @property
    def papers(self) -> tuple[Paper, ...]:
        """BibTeX entries of the papers that its citation names; empty for an attack or defense from a plug-in."""
        return tuple(paper for paper in bibliography() if self.name in paper.cited_by)


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
