"""The attacks of this package, by name."""

from typing import Any

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.exact.fedavg.attack import ExactFedAvg
from lightleak.attacks.gradient_inversion.exact.fedavg.config import ExactFedAvgConfig


@ATTACKS.register("exact_fedavg")
def exact_fedavg(**options: Any) -> ExactFedAvg:
    """Make exact inversion of weight updates; raises `UsageError` for an unknown setting."""
    return ExactFedAvg(ExactFedAvgConfig().with_options(**options))
