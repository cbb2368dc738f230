"""The attacks of this package, by name."""

from typing import Any

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.exact.attack import ExactInversion
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig


@ATTACKS.register("exact")
def exact(**options: Any) -> ExactInversion:
    """Make exact inversion of FedSGD gradients; raises `UsageError` for an unknown setting."""
    return ExactInversion(ExactConfig().with_options(**options))
