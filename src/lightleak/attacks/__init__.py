"""Attacks on observations; importing this package fills the registry."""

from lightleak.attacks import random_baseline  # noqa: F401  registers the baseline
from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion import (
    declarations,  # noqa: F401  registers the family
    exact_facts,  # noqa: F401  describes the exact ones
)
from lightleak.attacks.gradient_inversion.exact import declarations as exact_declarations  # noqa: F401  likewise
from lightleak.attacks.gradient_inversion.exact.fedavg import declarations as exact_fedavg_declarations  # noqa: F401  likewise
from lightleak.attacks.gradient_inversion.fedavg import declarations as fedavg_declarations  # noqa: F401  likewise

__all__ = ["ATTACKS", "UpdateAttack"]
