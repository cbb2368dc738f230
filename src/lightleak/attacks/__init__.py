"""Attacks on observations; importing this package fills the registry."""

from lightleak.attacks import random_baseline  # noqa: F401  registers the baseline
from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion import declarations  # noqa: F401  registers the family
from lightleak.attacks.gradient_inversion.exact import declarations as exact_declarations  # noqa: F401  likewise
from lightleak.attacks.gradient_inversion.fedavg import declarations as fedavg_declarations  # noqa: F401  likewise

__all__ = ["ATTACKS", "UpdateAttack"]
