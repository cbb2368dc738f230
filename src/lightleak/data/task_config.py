"""Settings of a model inversion task (thesis Sec. 4.4.2.1, Table 4.3)."""

from dataclasses import dataclass
from typing import Literal, get_args

from lightleak.core.bounds import Section, bounded, one_of

SplitRule = Literal["class", "in_distribution"]
Importance = Literal["impurity", "permutation"]


@dataclass(frozen=True)
class TaskConfig(Section, section="task"):
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
        validation_fraction: share of what is left after that for the scores of the models, for permutation importance,
            and to stop boosted trees.
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

    private_classes: int = bounded(20, ge=2)
    features: int = bounded(50, ge=1)
    importance: Importance = one_of("impurity", get_args(Importance))
    split: SplitRule = one_of("class", get_args(SplitRule))
    test_fraction: float = bounded(0.05, gt=0, lt=1)
    judge_fraction: float = bounded(0.25, gt=0, lt=1)
    validation_fraction: float = bounded(0.2, gt=0, lt=1)
    public_fraction: float = bounded(0.5, gt=0, lt=1)
    min_frequency: float = bounded(0.005, ge=0, lt=0.5)
    group: str | None = None
    trees: int = bounded(50, ge=1)
    leaf_rows: int = bounded(5, ge=1)

    @property
    def private_shares(self) -> tuple[float, float, float, float]:
        """Shares of training, validation, test and judge rows among the private ones; they sum to 1."""
        judge = (1.0 - self.test_fraction) * self.judge_fraction
        rest = 1.0 - self.test_fraction - judge
        return rest * (1.0 - self.validation_fraction), rest * self.validation_fraction, self.test_fraction, judge
