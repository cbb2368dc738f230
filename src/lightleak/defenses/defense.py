"""What every defense has, whatever it acts on."""

from abc import ABC
from dataclasses import asdict
from typing import Any, ClassVar

from lightleak.core.bounds import check_settings
from lightleak.core.facts import Facts

REFERENCE = Facts(deviates=("It is no defense: the reference that every defense is compared with.",))
"""What the card of the registered ``none`` says."""


class Defense(ABC):
    """Base of all defenses: a frozen dataclass whose fields are its settings.

    Types and limits (`lightleak.core.bounds.bounded`) are checked on construction.

    Attributes:
        name: registry name.
        citation: where it is defined.
        words: what it does, with its settings in braces: ``noise of scale {scale:g}``.
        varies: the setting that is its strength; None where it has none.

    Raises:
        UsageError: on construction, for a setting of the wrong type or out of range.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    words: ClassVar[str]
    varies: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        check_settings(self, f"{self.name}: ")

    @property
    def strength(self) -> float | None:
        """The one number that a curve of leakage against cost varies; None where there is none."""
        value: float | None = None if self.varies is None else getattr(self, self.varies)
        return value

    def describe(self) -> str:
        """One line with the strength, such as ``Gaussian noise of scale 0.01``: `words`, unless overridden."""
        return self.words.format(**vars(self))

    def options(self) -> dict[str, Any]:
        """The settings, JSON-ready."""
        return asdict(self)  # type: ignore[call-overload]
