"""What a config names: attacks and defences, made and checked with their place in the config."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lightleak.attacks.property_inference import PROPERTY_ATTACKS, PropertyAttack
from lightleak.attacks.property_inference.shadow_models import ShadowModels
from lightleak.core.errors import UsageError
from lightleak.defenses.vertical import VerticalDefense, make_defense

T = TypeVar("T")


def attack_named(label: str, options: Mapping[str, Any]) -> PropertyAttack:
    """The attack that a label of the config names, or that its setting ``attack`` names.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    settings = dict(options)
    name = settings.pop("attack", label)
    if name == ShadowModels.name:
        raise UsageError(
            f"attacks.{label}: sm_pia names one of two fractions and estimates none; the command that plays "
            "its game is lightleak reproduce provfl-table7"
        )
    return _placed(f"attacks.{label}", lambda: PROPERTY_ATTACKS.get(name)(**settings))


def defense_named(label: str, options: Mapping[str, Any]) -> VerticalDefense:
    """The defence that a label of the config names, or that its setting ``defense`` names; errors likewise."""
    return _placed(f"defenses.{label}", lambda: make_defense(label, options))


def _placed(where: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except (UsageError, TypeError) as error:  # a factory with named arguments refuses others by TypeError
        raise UsageError(f"{where}: {error}") from error
