"""How good the trained network is, and what a change of settings cost of that."""

from collections.abc import Mapping
from dataclasses import dataclass

from lightleak.report.estimate import Estimate
from lightleak.report.intervals import difference, proportion
from lightleak.report.row_values import number, whole
from lightleak.report.run_folder import RunFolder


@dataclass(frozen=True)
class Utility:
    """Scores of one trained network on the test rows.

    Attributes:
        accuracy: share classified rightly; its interval is over the choice of test rows, not over trainings.
        auroc: area under the ROC curve; None where it was not measured.
    """

    accuracy: Estimate
    auroc: float | None


@dataclass(frozen=True)
class Cost:
    """What was given up, after minus before: negative where the network became worse."""

    accuracy: Estimate
    auroc: float | None


def utility_of(run: RunFolder) -> Utility | None:
    """Scores of the run's training; None where it trained nothing or has not finished."""
    tested = run.trained.get("test")
    scores = tested if isinstance(tested, Mapping) else {}
    accuracy = number(scores.get("test/accuracy"))
    if accuracy is None or not 0 <= accuracy <= 1:
        return None
    n = whole(run.trained.get("test_rows"))
    measured = proportion(accuracy, n) if n is not None and n > 0 else Estimate(accuracy)
    return Utility(measured, number(scores.get("test/auroc")))


def utility_cost(before: Utility | None, after: Utility | None) -> Cost | None:
    """Difference of the two; None where either is unknown."""
    if before is None or after is None:
        return None
    accuracy = difference(after.accuracy, before.accuracy)
    assert accuracy is not None  # both are known
    auroc = None if before.auroc is None or after.auroc is None else after.auroc - before.auroc
    return Cost(accuracy, auroc)
