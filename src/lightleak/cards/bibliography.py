"""BibTeX entries of the papers behind attacks, defenses and metrics, from `bibliography.yaml`."""

from dataclasses import dataclass
from functools import cache

from lightleak.cards.shipped import read_shipped_yaml


@dataclass(frozen=True)
class Paper:
    """One entry of the bibliography.

    Attributes:
        key: of the entry, such as ``vero2023tableak``.
        cited_by: registry names whose card cites it.
        bibtex: the entry.
    """

    key: str
    cited_by: tuple[str, ...]
    bibtex: str


@cache
def bibliography() -> tuple[Paper, ...]:
    """Return all entries, in the order of the file."""
    return tuple(
        Paper(key, tuple(entry["cited_by"]), entry["bibtex"].strip())
        for key, entry in read_shipped_yaml("bibliography.yaml").items()
    )


def papers_of(name: str) -> tuple[Paper, ...]:
    """Return the papers that the card of a name cites.

    >>> [paper.key for paper in papers_of("tableak")]
    ['vero2023tableak']
    """
    return tuple(paper for paper in bibliography() if name in paper.cited_by)
