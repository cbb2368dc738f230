"""What a card holds; how it looks is decided in `terminal` and `markdown`."""

from dataclasses import dataclass
from typing import Literal

from lightleak.cards.settings import Setting
from lightleak.cards.shipped import Measurement, Paper, bibliography, measurements

Kind = Literal["attack", "defense", "metric"]

NONE_KNOWN = "None known."
"""Shown where no deviation from the paper is declared."""

NOT_MEASURED = {
    "attack": "Not measured yet.",
    "defense": "Not measured yet.",
    "metric": "Its figures are on the cards of the attacks.",
}
"""Shown where there is no figure."""


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
