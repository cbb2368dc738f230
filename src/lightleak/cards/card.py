"""What a card holds; how it looks is decided in `terminal` and `markdown`."""

from dataclasses import dataclass
from typing import Literal

from lightleak.cards.settings import Setting

Kind = Literal["attack", "defence", "metric"]

NONE_KNOWN = "None is known."
"""What stands where no deviation from the paper is declared."""

NOT_MEASURED = {
    "attack": "Nothing was measured of it yet.",
    "defence": "Nothing was measured of it yet.",
    "metric": "Its figures stand on the cards of the attacks.",
}
"""What stands where there is no figure."""


@dataclass(frozen=True)
class Measurement:
    """One figure of benchmarks/RESULTS.md.

    Attributes:
        what: what was measured, on what, with the number of repetitions.
        figure: as it is printed there, with its interval or deviation.
        paper: the paper's figure for the same; empty where there is none.
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


@dataclass(frozen=True)
class Card:
    """One attack, defence or metric.

    Attributes:
        name: registry name.
        kind: which of the three.
        family: the registry in words, such as ``updates of federated learning``.
        summary: one line.
        explanation: paragraphs of its docstring beyond the first line.
        citation: the paper; empty for what has none.
        threat_model: what the adversary, or who computes a metric, sees and knows.
        needs: assumptions and requirements.
        settings: with defaults.
        deviations: from the paper, and why.
        measured: its figures.
    """

    name: str
    kind: Kind
    family: str
    summary: str
    explanation: tuple[str, ...]
    citation: str
    threat_model: str
    needs: tuple[str, ...]
    settings: tuple[Setting, ...]
    deviations: tuple[str, ...]
    measured: tuple[Measurement, ...]
