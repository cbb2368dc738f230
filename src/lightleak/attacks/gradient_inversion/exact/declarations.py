"""The attacks of this package, by name."""

from typing import Any

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.exact.attack import ExactInversion
from lightleak.attacks.gradient_inversion.exact.audit_max import audit_max
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.exact.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.exact.joint.config import JointConfig


@ATTACKS.register("exact")
def exact(**options: Any) -> ExactInversion:
    """Make exact inversion of FedSGD gradients; raises `UsageError` for an unknown setting."""
    return ExactInversion(ExactConfig().with_options(**options))


@ATTACKS.register("exact_joint")
def exact_joint(**options: Any) -> JointInversion:
    """Make joint inversion of FedSGD gradients; raises `UsageError` for an unknown setting."""
    return JointInversion(JointConfig().with_options(**options))


ATTACKS.register("audit_max")(audit_max)
