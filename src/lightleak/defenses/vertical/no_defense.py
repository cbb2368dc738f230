"""The reference every defense is compared with."""

from dataclasses import dataclass

from lightleak.core.facts import Facts
from lightleak.defenses.vertical.defense import VERTICAL_DEFENSES, VerticalDefense


@VERTICAL_DEFENSES.register(
    "none",
    Facts(
        deviates=("It is no defense: the reference that every defense is compared with.",),
    ),
)
@dataclass(frozen=True)
class NoDefense(VerticalDefense):
    """Nothing is changed."""

    name = "none"
    citation = ""

    def describe(self) -> str:
        """See `VerticalDefense`."""
        return "no defense"
