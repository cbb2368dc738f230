"""Settings of a model inversion task (thesis Sec. 4.4.2.1, Table 4.3)."""

from dataclasses import dataclass
from typing import Literal, get_args

from lightleak.core.errors import UsageError

SplitRule = Literal["class", "in_distribution"]
Importance = Literal["impurity", "permutation"]


@dataclass(frozen=True)
class TaskConfig:
    """How a table becomes a task.

    Attributes:
        private_classes: the most frequent classes are private, this many.
        features: encoded columns that are kept: numbers, and booleans that stand for one category each.
        importance: they are chosen by ``impurity`` (mean decrease in impurity of a random forest, as in the thesis) or
            ``permutation`` importance.
        split: ``class``: public rows are those of the other classes; ``in_distribution``: they are of the private
            classes too, and rows of other classes are left out.
        test_fraction: share of the private rows held out.
        judge_fraction: share of the remaining private rows that train a second evaluation model and nothing else, so
            that it shares no row with the target.
        validation_fraction: share of what is left after that for early stopping.
        public_fraction: share of the rows that are public where the split is ``in_distribution``.
        min_frequency: a category becomes a column where at least this share of the rows has it and this share has not.
        group: column with the name of each row's group (patient); None: every row is a group of its own.
        trees: trees of the random forest.
        leaf_rows: smallest number of rows in a leaf of it.

    Raises:
        UsageError: a value that is not allowed, named ``task.<field>``.

    >>> TaskConfig(private_classes=1)
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: task.private_classes must be at least 2, got 1
    """

    private_classes: int = 20
    features: int = 50
    importance: Importance = "impurity"
    split: SplitRule = "class"
    test_fraction: float = 0.05
    judge_fraction: float = 0.25
    validation_fraction: float = 0.2
    public_fraction: float = 0.5
    min_frequency: float = 0.005
    group: str | None = None
    trees: int = 50
    leaf_rows: int = 5

    def __post_init__(self) -> None:
        for name, lowest in (("private_classes", 2), ("features", 1), ("trees", 1), ("leaf_rows", 1)):
            if getattr(self, name) < lowest:
                raise UsageError(f"task.{name} must be at least {lowest}, got {getattr(self, name)}")
        for name, allowed in (("importance", get_args(Importance)), ("split", get_args(SplitRule))):
            if getattr(self, name) not in allowed:
                raise UsageError(f"task.{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in ("test_fraction", "judge_fraction", "validation_fraction", "public_fraction"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise UsageError(f"task.{name} must be above 0 and below 1, got {getattr(self, name)}")
        if not 0.0 <= self.min_frequency < 0.5:
            raise UsageError(f"task.min_frequency must be at least 0 and below 0.5, got {self.min_frequency}")

    @property
    def private_shares(self) -> tuple[float, float, float, float]:
        """Shares of training, validation, test and judge rows among the private ones; they sum to 1."""
        judge = (1.0 - self.test_fraction) * self.judge_fraction
        rest = 1.0 - self.test_fraction - judge
        return rest * (1.0 - self.validation_fraction), rest * self.validation_fraction, self.test_fraction, judge
