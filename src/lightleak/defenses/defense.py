"""What every defense has, whatever it acts on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts

REFERENCE = Facts(deviates=("It is no defense: the reference that every defense is compared with.",))
"""What the card of the registered ``none`` says."""


@dataclass(frozen=True)
class Limits:
    """The range of a number among a defense's settings; ``open_low`` and ``open_high`` exclude its ends."""

    low: float = 0.0
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def check(self, setting: str, value: object) -> None:
        """Raise `UsageError` unless ``value`` is a finite number within the range."""
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if usable and self._contains(value):  # type: ignore[arg-type]
            return
        lower = f"{'above' if self.open_low else 'of at least'} {self.low:g}"
        upper = "" if self.high == math.inf else f" and {'below' if self.open_high else 'at most'} {self.high:g}"
        raise UsageError(f"{setting} must be a finite number {lower}{upper}, got {value!r}")

    def _contains(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)


POSITIVE = Limits(open_low=True)


class Defense(ABC):
    """Base of all defenses: a frozen dataclass whose fields are its settings, checked on construction.

    Attributes:
        name: registry name.
        citation: where it is defined.
        varies: the setting that is its strength; None where it has none.
        limits: range of each setting that is a number.
        flags: settings that are true or false.

    Raises:
        UsageError: on construction, for a setting out of range.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    varies: ClassVar[str | None] = None
    limits: ClassVar[Mapping[str, Limits]] = {}
    flags: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for setting, limits in self.limits.items():
            limits.check(f"{self.name}: {setting}", getattr(self, setting))
        for setting in self.flags:
            if not isinstance(value := getattr(self, setting), bool):
                raise UsageError(f"{self.name}: {setting} must be true or false, got {value!r}")

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
