"""What a template shows of the summary and of the comparison of runs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lightleak.report.change.comparison import compare_runs
from lightleak.report.change.groups import METRICS, Change
from lightleak.report.change.summary import summary
from lightleak.report.estimate import Estimate
from lightleak.report.plain import sign_of as sign_of_difference
from lightleak.report.run_folder import RunFolder

TITLES: Final[Mapping[str, str]] = {
    "cell_accuracy": "Cells",
    "categorical_accuracy": "Categories",
    "numerical_accuracy": "Numbers",
    "exact_match_rate": "Whole rows exact",
    "certified_share": "Rows proven",
    "rmse": "Error (RMSE)",
}
EQUAL = "="
"""Sign of a difference that is 0 on every pair, beside those of `report.plain`."""


def change_context(runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Summary and comparisons; they hold scores and settings, and no value of a row."""
    return {
        "summary": summary(runs),
        "comparisons": compare_runs(runs),
        "metric_titles": {name: TITLES[name] for name in METRICS},
    }


def sign_of(change: Change) -> str:
    """Which way a metric measurably went."""
    return EQUAL if change.verdict == "equal" else sign_of_difference(change.difference)


def signed(value: float, decimals: int = 2) -> str:
    """A signed number; one that rounds to zero has no sign.

    >>> signed(-0.034), signed(0.001), signed(0.0114, 3)
    ('−0.03', '0.00', '+0.011')
    """
    rounded = round(value, decimals) + 0.0
    sign = "" if rounded == 0 else "+" if rounded > 0 else "−"
    return f"{sign}{abs(rounded):.{decimals}f}"


def ends(value: Estimate) -> str:
    """The interval of a number that is no share."""
    return "–" if value.low is None or value.high is None else f"{signed(value.low)} to {signed(value.high)}"


def by_chance(intervals: int) -> int:
    """Intervals of so many that are expected to miss.

    >>> by_chance(50), by_chance(3)
    (2, 1)
    """
    return max(1, round(intervals / 20))


FILTERS = {
    "sign": sign_of,
    "signed": signed,
    "ends": ends,
    "by_chance": by_chance,
}
