"""What an interval says of tuned settings against the defaults."""

from typing import Literal

from lightleak.report.estimate import Estimate
from lightleak.report.tuning.result import Objective

Verdict = Literal["better", "worse", "not distinguishable", "no interval"]


def verdict_of(objective: Objective, difference: Estimate) -> Verdict:
    """Whether tuned minus default excludes 0, and on which side.

    >>> accuracy = Objective("accuracy", True, "accuracy")
    >>> verdict_of(accuracy, Estimate(0.02, 20, 0.01, 0.03)), verdict_of(accuracy, Estimate(0.02, 20, -0.01, 0.05))
    ('better', 'not distinguishable')
    >>> verdict_of(Objective("leakage", False, "leakage"), Estimate(0.02, 20, 0.01, 0.03))
    'worse'
    """
    if difference.low is None or difference.high is None:
        return "no interval"
    if difference.low <= 0 <= difference.high:
        return "not distinguishable"
    return "better" if (difference.low > 0) == objective.maximise else "worse"
