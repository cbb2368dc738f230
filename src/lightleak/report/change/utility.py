"""How good the trained network is, and what a change of settings cost of that."""

from dataclasses import dataclass, field

from lightleak.core.records import json_field, read_record
from lightleak.report.intervals import Estimate, difference, proportion
from lightleak.report.read import Run


@dataclass(frozen=True)
class _Scores:
    accuracy: float | None = json_field(key="test/accuracy", low=0, high=1, default=None)
    auroc: float | None = json_field(key="test/auroc", low=0, high=1, default=None)


@dataclass(frozen=True)
class _Trained:
    """What is read of ``training.json``."""

    test: _Scores = field(default_factory=_Scores)
    test_rows: int | None = json_field(low=0, default=None)
    test_majority: float | None = json_field(low=0, high=1, default=None)


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


def utility_of(run: Run) -> Utility | None:
    """Scores of the run's training; None where it trained nothing or has not finished."""
    told = read_record(_Trained, run.trained, f"{run.path}/training.json")
    if told.test.accuracy is None:
        return None
    measured = proportion(told.test.accuracy, told.test_rows) if told.test_rows else Estimate(told.test.accuracy)
    return Utility(measured, told.test.auroc, told.test_majority)


def utility_cost(before: Utility | None, after: Utility | None) -> Cost | None:
    """Difference of the two; None where either is unknown."""
    if before is None or after is None:
        return None
    accuracy = difference(after.accuracy, before.accuracy)
    assert accuracy is not None  # both are known
    auroc = None if before.auroc is None or after.auroc is None else after.auroc - before.auroc
    return Cost(accuracy, auroc, before.has_learnt)
