"""Model inversion: rows typical of a released model's private classes."""

from lightleak.attacks.model_inversion import declarations, public_rows  # noqa: F401  # they register themselves
from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS, FittedInversion, InversionAttack, Workplace

__all__ = ["INVERSION_ATTACKS", "FittedInversion", "InversionAttack", "Workplace"]
