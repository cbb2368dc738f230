"""The opening of the reports that are not yet converted; the last conversion removes this file."""

from dataclasses import dataclass

from lightleak.report.page import Tile

__all__ = ["Headline", "Tile"]


@dataclass(frozen=True)
class Headline:
    """The opening of a report.

    Attributes:
        sentence: the main finding.
        verdict: lines on what that is worth, and on what was not shown.
        tiles: the numbers of the sentence.
        selection: how what is named was chosen among what was measured.
        limits: what the numbers do not show.
    """

    sentence: str
    verdict: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    selection: str = ""
    limits: tuple[str, ...] = ()
