"""Base class of the settings of attacks: types checked on construction, copies with changes, a JSON-ready form."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from lightleak.core.bounds import check_settings
from lightleak.core.errors import UsageError
from lightleak.core.former_names import note_once

Made = TypeVar("Made")

RENAMED_SETTINGS = {"initialisation": "initialization", "query_relabelled": "query_relabeled"}
"""Old names of settings, accepted with a note."""

RENAMED_VALUES = {("objective", "mended"): "corrected"}
"""Old values of settings, likewise."""


@dataclass(frozen=True)
class AttackSettings:
    """Settings of an attack: fields of a subclass, limits declared with them (`lightleak.core.bounds.bounded`).

    Annotations are enforced, lists become tuples.

    Attributes:
        owner: what messages call the attack.

    Raises:
        UsageError: a value of the wrong type, or out of range.
    """

    owner: ClassVar[str] = "the attack"

    def __post_init__(self) -> None:
        check_settings(self)

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
        return cls(**cls._known(options))

    @classmethod
    def read(cls, given: Mapping[str, Any] | Self | None, where: str) -> Self:
        """Make the settings from plain values; messages begin with ``where``.

        Raises:
            UsageError: no mapping, no setting of a name, or a value out of range.
        """
        if isinstance(given, cls):
            return given
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(f"{where} must be a mapping of settings, got {given!r}")
        try:
            return cls.of(**(given or {}))
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error

    def with_options(self, **options: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        return replace(self, **self._known(options))

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Remove the settings of this class from ``options`` and return them."""
        renamed = {old for old, new in RENAMED_SETTINGS.items() if new in cls.names()}
        return {name: options.pop(name) for name in list(options) if name in renamed.union(cls.names())}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        known = self.names()
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name in known
        }

    def widths(self, *names: str) -> None:
        """Raise `UsageError` for one of these settings that does not hold at least one width of at least 1."""
        for name in names:
            if not (value := getattr(self, name)) or min(value) < 1:
                raise UsageError(f"{name} must be widths of at least 1, such as [256, 256], got {list(value)}")

    @classmethod
    def _known(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The options under their new names, all of which must be settings."""
        options = _with_new_names(options)
        known = cls.names()
        if unknown := sorted(set(options) - set(known)):
            raise UsageError(f"{cls.owner} has no setting {', '.join(unknown)}; settings: {', '.join(known)}")
        return options


def factory(make: Callable[[Any], Made], defaults: AttackSettings) -> Callable[..., Made]:
    """Return what a registry calls with the settings to change; it raises `UsageError` for an unknown one.

    Args:
        make: from settings to the attack.
        defaults: the settings of the attack under its registry name.
    """
    return lambda **options: make(defaults.with_options(**options))


def _with_new_names(options: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in options.items():
        new = RENAMED_SETTINGS.get(name, name)
        if new != name:
            note_once(name, new)
        if isinstance(value, str) and (new, value) in RENAMED_VALUES:
            note_once(f"{new}: {value}", f"{new}: {RENAMED_VALUES[new, value]}")
            value = RENAMED_VALUES[new, value]
        found[new] = value
    return found
