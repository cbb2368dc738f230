"""Mean, deviation and 95% interval over batches: results.json's ``summary``."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, TypeVar

from scipy.special import stdtrit

from lightleak.core.grouping import by_key

CONFIDENCE = 0.95
Z95 = 1.96
"""Two-sided 95% quantile of the normal distribution."""

N = TypeVar("N")

FACTS = frozenset(
    {
        *("seed", "seed_index", "batch_index", "batch_size", "planned_batch_size", "epoch", "step", "schema_version"),
        *("cpu_seconds", "peak_memory"),
    }
)
"""Numbers of a row that are no metrics: what was attacked, and what that took."""


@dataclass(frozen=True)
class Summary:
    """What several batches say together.

    Attributes:
        mean: arithmetic mean; NaN without values.
        std: sample standard deviation (n - 1); NaN for fewer than two values.
        n: number of values.
        low: lower end of the 95% interval of the mean (Student's t, n - 1 degrees of freedom); NaN for fewer than two.
        high: upper end. Of a fraction near 0 or 1 the interval may reach beyond: it is not clipped.
    """

    mean: float
    std: float
    n: int
    low: float
    high: float

    def to_dict(self) -> dict[str, float | int | None]:
        """JSON-ready form: ``None`` for NaN."""
        return {key: None if math.isnan(value) else value for key, value in asdict(self).items()}


def student(confidence: float, freedom: float) -> float:
    """Return how many standard errors a two-sided interval by Student's t reaches to each side.

    >>> round(student(0.95, 9), 3)
    2.262
    """
    return float(stdtrit(freedom, (1 + confidence) / 2))  # scipy.stats takes a second to import


def wilson(share: N, n: Any) -> tuple[N, N]:
    """Return the ends of Wilson's 95% interval (1927) of a share of n trials, which lie in [0, 1] but for rounding.

    Args:
        share: a number, or a tensor of any shape.
        n: trials, of the same kind.

    >>> [round(end, 3) for end in wilson(0.75, 400)]
    [0.705, 0.79]
    """
    p: Any = share  # arithmetic alone, so that tensors will do
    shrink = 1 + Z95**2 / n
    middle = (p + Z95**2 / (2 * n)) / shrink
    half = Z95 * (p * (1 - p) / n + Z95**2 / (4 * n**2)) ** 0.5 / shrink
    return middle - half, middle + half


def summarize(values: Iterable[float | None]) -> Summary:
    """Summarize the finite values; ``None``, NaN and infinities are batches on which a metric was undefined.

    >>> summarize([0.7, 0.8, 0.9, None]).to_dict()["n"], round(summarize([0.7, 0.8, 0.9]).low, 3)
    (3, 0.552)
    """
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    n, nan = len(known), math.nan
    if n < 2:
        return Summary(known[0] if known else nan, nan, n, nan, nan)
    mean = math.fsum(known) / n
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1))
    half = student(CONFIDENCE, n - 1) * std / math.sqrt(n)
    return Summary(mean, std, n, mean - half, mean + half)


def summarize_by(values: Iterable[tuple[Any, float | None]]) -> Summary:
    """Summarize values by what they were measured on: those that share a key are averaged first and count once.

    Several evaluations of one training say how it came out, not how another one would.

    >>> summarize_by([("seed 0", 0.7), ("seed 0", 0.9), ("seed 1", 0.6)]).to_dict()["n"]
    2
    """
    groups = by_key(values, itemgetter(0)).values()
    return summarize(summarize(value for _, value in of_key).mean for of_key in groups)


def summarize_rows(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], per: str | None = None
) -> list[dict[str, Any]]:
    """Group rows of results.json and summarize every metric of each group.

    Args:
        rows: rows of results.json; a field is a metric if it holds a number in some row and is neither a key nor in
            `FACTS`.
        keys: fields that rows of one group share; one a row lacks counts as ``None``.
        per: rows of a group that share this field are one measurement (`summarize_by`); None: each row is.

    Returns:
        One dict per group, in order of first appearance: the keys, then by metric ``{"mean", "std", "n", "low",
        "high"}``.

    >>> rows = [{"attack": "tableak", "seed": 1, "rmse": 0.5}, {"attack": "tableak", "seed": 1, "rmse": 0.7}]
    >>> summarize_rows(rows, ["attack"])[0]["rmse"]["mean"]
    0.6
    """
    no_metrics = FACTS.union(keys)
    names = dict.fromkeys(
        name for row in rows for name, value in row.items() if name not in no_metrics and _is_number(value)
    )
    groups = by_key(rows, lambda row: json.dumps([row.get(key) for key in keys], sort_keys=True, default=str))
    return [
        {key: group[0].get(key) for key in keys}
        | {
            name: summarize_by(
                (place if per is None else row.get(per), value)
                for place, row in enumerate(group)
                if _is_number(value := row.get(name))
            ).to_dict()
            for name in names
        }
        for group in groups.values()
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
