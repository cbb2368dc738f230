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
        majority: accuracy of always answering the commonest label of the test rows; None where the run does not say.
    """

    accuracy: Estimate
    auroc: float | None
    majority: float | None = None

    @property
    def has_learnt(self) -> bool:
        """Whether it is measurably better than the commonest label; also where that is not known."""
        surely = self.accuracy.mean if self.accuracy.low is None else self.accuracy.low
        return self.majority is None or surely > self.majority


@dataclass(frozen=True)
class Cost:
    """What was given up, after minus before: negative where the network became worse.

    Attributes:
        accuracy: difference of the accuracies.
        auroc: of the areas; None where either is unknown.
        can_be_judged: whether the network had anything to lose: before, it was better than the commonest label.
    """

    accuracy: Estimate
    auroc: float | None
    can_be_judged: bool = True


def utility_of(run: RunFolder) -> Utility | None:
    """Scores of the run's training; None where it trained nothing or has not finished."""
    tested = run.trained.get("test")
    scores = tested if isinstance(tested, Mapping) else {}
    accuracy = number(scores.get("test/accuracy"))
    if accuracy is None or not 0 <= accuracy <= 1:
        return None
    n = whole(run.trained.get("test_rows"))
    measured = proportion(accuracy, n) if n is not None and n > 0 else Estimate(accuracy)
    return Utility(measured, number(scores.get("test/auroc")), number(run.trained.get("test_majority")))


def utility_cost(before: Utility | None, after: Utility | None) -> Cost | None:
    """Difference of the two; None where either is unknown."""
    if before is None or after is None:
        return None
    accuracy = difference(after.accuracy, before.accuracy)
    assert accuracy is not None  # both are known
    auroc = None if before.auroc is None or after.auroc is None else after.auroc - before.auroc
    return Cost(accuracy, auroc, before.has_learnt)
