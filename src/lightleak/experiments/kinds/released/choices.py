"""Attacks that the config of a released-model audit names."""

from collections.abc import Mapping
from typing import Any

from lightleak.attacks.model_inversion import INVERSION_ATTACKS, InversionAttack
from lightleak.experiments.choices import name_and_settings, placed


def attack_named(label: str, options: Mapping[str, Any]) -> InversionAttack:
    """The attack that a label of the config names, or that its setting ``attack`` names.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    name, settings = name_and_settings(label, options)
    return placed(f"attacks.{label}", lambda: INVERSION_ATTACKS.get(name)(**settings))
