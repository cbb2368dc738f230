"""Attacks and defenses that the config of a vertical audit names."""

from collections.abc import Mapping
from typing import Any

from lightleak.attacks.property_inference import PROPERTY_ATTACKS, PropertyAttack
from lightleak.attacks.property_inference.shadow_models import ShadowModels
from lightleak.core.errors import UsageError
from lightleak.defenses.vertical import VerticalDefense, make_defense
from lightleak.experiments.choices import name_and_settings, placed


def attack_named(label: str, options: Mapping[str, Any]) -> PropertyAttack:
    """The attack that a label of the config names, or that its setting ``attack`` names.

    Raises:
        UsageError: an unknown attack or setting, or a value of the wrong type or range.
    """
    name, settings = name_and_settings(label, options)
    if name == ShadowModels.name:
        raise UsageError(
            f"attacks.{label}: sm_pia names one of two fractions and estimates none; the command that plays "
            "its game is lightleak reproduce provfl-table7"
        )
    return placed(f"attacks.{label}", lambda: PROPERTY_ATTACKS.get(name)(**settings))


def defense_named(label: str, options: Mapping[str, Any]) -> VerticalDefense:
    """The defense that a label of the config names, or that its setting ``defense`` names; errors likewise."""
    return placed(f"defenses.{label}", lambda: make_defense(label, options))
