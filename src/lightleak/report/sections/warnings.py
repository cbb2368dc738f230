"""What attacks warned of, and where."""

from collections.abc import Iterable

from lightleak.report.page import Section, fill


def warnings_section(warnings: Iterable[tuple[str, list[str]]]) -> Section | None:
    """Draw warnings with the places that they came from; None where there were none."""
    found = list(warnings)
    return Section("warnings", "Warnings of the attacks", (fill("sections", "warnings", found),)) if found else None
