"""An attack on gradients in one declaration: the engine with settings of its own."""

from typing import Any

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.declarations.gradients import NEEDS, TABLEAK
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.core.facts import Facts

QUICK = InversionConfig(restarts=5, steps=300, learning_rate=0.2, schedule="cosine")


@ATTACKS.register("tableak_quick", Facts("TabLeak with few restarts and a quick schedule", needs=NEEDS))
def tableak_quick(**options: Any) -> GradientInversion:
    """Make the attack; raises `UsageError` for an unknown setting."""
    return GradientInversion("tableak_quick", TABLEAK, QUICK.with_options(**options))
