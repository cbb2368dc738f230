"""Whether attacks ran with less than their published settings, so that their figures are too low."""

from collections.abc import Iterable

from lightleak.report.budget import fewer
from lightleak.report.change.exposure import Exposure
from lightleak.report.plain import joined
from lightleak.report.wording import attack_title


def weakened(exposures: Iterable[Exposure]) -> str:
    """One sentence on leading attacks that ran with fewer steps or restarts than published; empty where none did.

    Settings of a stage of a composed attack count likewise.
    """
    found: dict[str, dict[str, None]] = {}
    for exposure in exposures:
        leading = exposure.leading
        for result in exposure.results:
            lacking = joined(*fewer(result.attack, result.options)) if result.attack in leading else ""
            if lacking:
                found.setdefault(lacking, {})[attack_title(result.attack)] = None
    if not found:
        return ""
    told = "; ".join(f"{' and '.join(titles)} ran with {lacking}" for lacking, titles in found.items())
    return f"{told}: less than published, so the figures are a lower bound, and the published attack may get more."
