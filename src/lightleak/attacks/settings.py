"""Base class of the settings of attacks: types checked on construction, copies with changes, a JSON-ready form."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class AttackSettings:
    """Settings of an attack. A subclass declares them as fields; annotations are enforced.

    Attributes:
        owner: what messages call the attack.

    Raises:
        UsageError: a value of the wrong type.
    """

    owner: ClassVar[str] = "the attack"

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for name in self.names():
            _check(name, getattr(self, name), hints[name])

    @classmethod
    def names(cls) -> list[str]:
        """Names of the settings, in their order."""
        return [field.name for field in fields(cls) if field.init]

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Make the settings from options.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        cls._refuse_unknown(options)
        return cls(**options)

    def with_options(self, **options: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        self._refuse_unknown(options)
        return replace(self, **options)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        known = self.names()
        return {name: value for name, value in asdict(self).items() if name in known}

    def at_least(self, least: float, *names: str) -> None:
        """Raise `UsageError` for one of these settings that is below ``least``; None passes."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"{name} must be at least {least}, got {value}")

    def above_zero(self, *names: str) -> None:
        """Raise `UsageError` for one of these settings that is not above 0; None passes."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0, got {value}")

    @classmethod
    def _refuse_unknown(cls, options: dict[str, Any]) -> None:
        known = cls.names()
        if unknown := sorted(set(options) - set(known)):
            raise UsageError(f"{cls.owner} has no setting {', '.join(unknown)}; settings: {', '.join(known)}")


def _check(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of the declared type, before it fails in the middle of a run."""
    if any(get_origin(part) is Literal and value in get_args(part) for part in get_args(hint)):
        return
    words = get_args(hint) if get_origin(hint) is Literal else ()
    if words and value not in words:
        raise UsageError(f"{name} must be one of {', '.join(words)}, got {value!r}")
    if hint is bool and not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, got {value!r}")
    if value is None and type(None) in get_args(hint):
        return
    if (hint is int or int in get_args(hint)) and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"{name} must be a whole number, got {value!r}")
    if hint is float or float in get_args(hint):
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not usable:
            raise UsageError(f"{name} must be a finite number, got {value!r}")
