"""What a config names, made and checked with its place in the config."""

from collections.abc import Mapping
from typing import Any

from lightleak.attacks.model_inversion import INVERSION_ATTACKS, InversionAttack
from lightleak.core.errors import UsageError


def attack_named(label: str, options: Mapping[str, Any]) -> InversionAttack:
    """The attack that a label of the config names, or that its setting ``attack`` names.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    settings = dict(options)
    name = settings.pop("attack", label)
    try:
        return INVERSION_ATTACKS.get(name)(**settings)
    except (UsageError, TypeError) as error:  # a factory with named arguments refuses others by TypeError
        raise UsageError(f"attacks.{label}: {error}") from error
