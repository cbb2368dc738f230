"""What attacks warned of, and where."""

from collections.abc import Iterable

from lightleak.report.page import Bullets, Section, text


def warnings_section(warnings: Iterable[tuple[str, list[str]]]) -> Section | None:
    """Draw warnings with the places that they came from; None where there were none."""
    items = tuple(text("{}{}", warning, _places(places)) for warning, places in warnings)
    return Section("warnings", "Warnings of the attacks", (Bullets(items),)) if items else None


def _places(places: list[str]) -> str:
    if len(places) == 1:
        return text('<br><span class="note">{}</span>', places[0])
    folded = '<details class="plain"><summary>{} places</summary><p class="note">{}</p></details>'
    return text(folded, len(places), "; ".join(places))
