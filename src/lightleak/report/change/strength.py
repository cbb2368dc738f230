"""Whether attacks ran with less than their published settings, so that their figures are too low."""

from collections.abc import Iterable, Mapping
from functools import cache

from lightleak.attacks import ATTACKS
from lightleak.report.change.exposure import Exposure
from lightleak.report.change.settings import flat_settings
from lightleak.report.plain import joined
from lightleak.report.result import Result
from lightleak.report.wording import attack_title

WORK = ("steps", "restarts")
"""Settings of which more is more work, and no less is recovered on average."""


def weakened(exposures: Iterable[Exposure]) -> str:
    """One sentence on leading attacks that ran with fewer steps or restarts than published; empty where none did.

    Settings of a stage of a composed attack count likewise.
    """
    found: dict[str, dict[str, None]] = {}
    for exposure in exposures:
        leading = exposure.leading
        for result in exposure.results:
            fewer = joined(*_fewer(result)) if result.attack in leading else ""
            if fewer:
                found.setdefault(fewer, {})[attack_title(result.attack)] = None
    if not found:
        return ""
    told = "; ".join(f"{' and '.join(titles)} ran with {fewer}" for fewer, titles in found.items())
    return f"{told}: less than published, so the figures are a lower bound, and the published attack may get more."


def _fewer(result: Result) -> list[str]:
    told: dict[str, None] = {}
    for name, usual in _published(result.attack).items():
        given, word = result.options.get(name, ""), name.rpartition(".")[2]
        if word in WORK and given.isdigit() and usual.isdigit() and int(given) < int(usual):
            told[f"{given} {word if given != '1' else word[:-1]} in place of {usual}"] = None
    return list(told)


@cache
def _published(attack: str) -> Mapping[str, str]:
    """Defaults of an attack, which are its published settings; none of one that is not registered here."""
    return flat_settings(ATTACKS.get(attack)().options()) if attack in ATTACKS else {}
