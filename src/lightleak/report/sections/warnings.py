"""What attacks warned of, and where."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from lightleak.core.results import Row
from lightleak.report.blocks import Section
from lightleak.report.format import counted
from lightleak.report.page import fill


def warnings_section(
    groups: Iterable[tuple[str, Sequence[Row]]], unit: str, gist: Callable[[str], str] = str, redact: bool = False
) -> Section | None:
    """Draw warnings with the places that they came from; None where there were none.

    Args:
        groups: rows by the name of their place.
        unit: what a row is.
        gist: what equal warnings have in common; the first of them is shown.
        redact: show the gist in its place.
    """
    found: dict[str, tuple[str, Counter[str]]] = {}
    totals: Counter[str] = Counter()
    for place, rows in groups:
        totals[place] += len(rows)
        for row in rows:
            for short, warning in {gist(warning): warning for warning in row.warnings}.items():
                found.setdefault(short, (short if redact else warning, Counter()))[1][place] += 1
    listed = [
        (words, [f"{place} ({count} of {counted(totals[place], unit)})" for place, count in places.items()])
        for words, places in found.values()
    ]
    return Section("warnings", "Warnings of the attacks", (fill("sections", "warnings", listed),)) if found else None
