"""The points of a frontier: defenses of a config, each at several strengths."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from lightleak.core.errors import UsageError
from lightleak.experiments.federation_config import NO_DEFENSE, DefenseConfig, defense_class, defense_of
from lightleak.experiments.unit import file_name

ActsOn = Literal["update", "steps"]

UNDEFENDED: Mapping[str, Mapping[str, Any]] = {"audit_max": {}}
"""What an update without a defense is attacked by where attacks know the defenses."""


@dataclass(frozen=True)
class Point:
    """One defense at one strength, or no defense.

    Attributes:
        label: name of its curve.
        name: the defense, or ``none``.
        option: the setting that the curve varies; None where it varies none.
        strength: that setting's value.
        settings: all settings of the defense.
        words: one line that says them.
        acts_on: under FedAvg, the ``update`` that a client sends or the gradients of its local ``steps``.
    """

    label: str = NO_DEFENSE
    name: str = NO_DEFENSE
    option: str | None = None
    strength: int | float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    words: str = "no defense"
    acts_on: ActsOn = "update"

    @property
    def id(self) -> str:
        """Unique among the points of a config, and part of a file name.

        >>> Point("gaussian_noise", "gaussian_noise", "scale", 0.01).id
        'gaussian_noise-0.01'
        """
        return file_name(self.label if self.strength is None else f"{self.label}-{self.strength}")

    @property
    def config(self) -> DefenseConfig:
        """The defense as a config names it.

        >>> Point().config.is_none
        True
        """
        return DefenseConfig(self.name, dict(self.settings), self.acts_on)

    @property
    def known_to(self) -> Mapping[str, Mapping[str, Any]]:
        """Attacks that know the defense, with their settings; without one, the strongest attack there is."""
        made = defense_of(self.config)
        return UNDEFENDED if made is None else made.known_to

    def facts(self) -> dict[str, Any]:
        """What a row of results.json says of it; of epsilon and delta the training says."""
        return {
            "defense": self.name,
            "defense_label": self.label,
            "defense_option": self.option,
            "defense_strength": self.strength,
            "defense_words": self.words,
            "epsilon": None,
            "release_epsilon": None,
            "delta": None,
        }


@dataclass(frozen=True)
class Curve:
    """One defense at several strengths.

    Attributes:
        name: the defense.
        strengths: values of the setting that is varied; none for a defense without settings, or to use its defaults.
        options: its other settings.
        option: the setting that is varied; the defense's first where it is left out.
        label: name of the curve, where a defense has several; the defense's name where it is left out.
        acts_on: under FedAvg, whether a client defends the ``update`` it sends or the gradient of every local step
            (``steps``).
    """

    name: str
    strengths: tuple[int | float, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    option: str | None = None
    label: str | None = None
    acts_on: ActsOn = "update"

    @property
    def title(self) -> str:
        """Name of the curve."""
        return self.label or self.name

    def points(self) -> tuple[Point, ...]:
        """One point per strength.

        >>> [point.words for point in Curve("gaussian_noise", (0.1, 1)).points()]
        ['Gaussian noise of scale 0.1', 'Gaussian noise of scale 1']

        Raises:
            UsageError: an unknown defense or setting, a strength out of range or given twice.
        """
        where = f"defenses.{self.title}"
        if NO_DEFENSE in (self.name, self.title):
            raise UsageError(f"{where}: no defense is always measured; leave it out")
        if len(set(self.strengths)) < len(self.strengths):
            raise UsageError(f"{where}: strengths must be distinct, got {', '.join(map(str, self.strengths))}")
        option, found = self._varied(where), []
        for strength in self.strengths or (None,):
            settings = self.options if option is None else {**self.options, option: strength}
            words = self._words(where, settings)
            found.append(Point(self.title, self.name, option, strength, settings, words, self.acts_on))
        return tuple(found)

    def _varied(self, where: str) -> str | None:
        """The setting that the strengths are values of; None where there are no strengths."""
        known = [one.name for one in fields(_placed(where, lambda: defense_class(self.name)))]
        if not self.strengths:
            if self.option is not None:
                raise UsageError(f"{where}: option {self.option!r} needs strengths, the values it takes")
            return None
        if not known:
            raise UsageError(f"{where}: {self.name} has no settings, so it takes no strengths; got {self.strengths}")
        option = self.option or known[0]
        if option not in known:
            raise UsageError(f"{where}: {self.name} has no setting {option!r}; settings: {', '.join(known)}")
        if option in self.options:
            raise UsageError(f"{where}: {option!r} is what the strengths vary; leave it out of options")
        return option

    def _words(self, where: str, settings: Mapping[str, Any]) -> str:
        made = _placed(where, lambda: defense_of(DefenseConfig(self.name, dict(settings))))
        assert made is not None  # `points` has refused ``none``
        return made.describe() + (" on the gradient of every local step" if self.acts_on == "steps" else "")


def _placed(where: str, make: Callable[[], Any]) -> Any:
    """Return what ``make`` makes; its errors name the curve in place of the section ``defense``."""
    try:
        return make()
    except UsageError as error:
        text = str(error).removeprefix("defense.name: ").removeprefix("defense.options: ")
        raise UsageError(f"{where}: {text}") from error
