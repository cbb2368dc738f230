"""What every defense has, whatever it acts on."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar


class Defense(ABC):
    """Base of all defenses: a frozen dataclass whose fields are its settings, checked on construction.

    Attributes:
        name: registry name.
        citation: where it is defined.
        varies: the setting that is its strength; None where it has none.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    varies: ClassVar[str | None] = None

    @property
    def strength(self) -> float | None:
        """The one number that a curve of leakage against cost varies; None where there is none."""
        value: float | None = None if self.varies is None else getattr(self, self.varies)
        return value

    @abstractmethod
    def describe(self) -> str:
        """One line with the strength, such as ``Gaussian noise of scale 0.01``."""

    def options(self) -> dict[str, Any]:
        """The settings, JSON-ready."""
        return asdict(self)  # type: ignore[call-overload]
