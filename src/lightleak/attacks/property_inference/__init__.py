"""Property inference in vertical federated learning: ProVFL and its rivals; importing this fills the registry."""

from lightleak.attacks.property_inference import (  # noqa: F401  each registers its attacks
    attribute_inference,
    distribution_comparison,
    prior,
    provfl_m,
)
from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS, PropertyAttack

__all__ = ["PROPERTY_ATTACKS", "PropertyAttack"]
