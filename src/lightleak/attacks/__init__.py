"""Attacks on observations; importing this package fills the registry."""

from lightleak.attacks import random_baseline  # noqa: F401  registers the baseline
from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion import declarations  # noqa: F401  registers the family

__all__ = ["ATTACKS", "UpdateAttack"]
