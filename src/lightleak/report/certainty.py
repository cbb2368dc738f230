"""Whether the attacker's own confidence tells it which cells to believe (TabLeak Sec. 3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.charts import Pair, pair_chart
from lightleak.report.comparison import Group
from lightleak.report.wording import points

KINDS = ("categorical", "numerical")


@dataclass(frozen=True)
class Certainty:
    """Accuracy of the least and the most confident quarter of one kind of cells, by attack."""

    kind: str
    pairs: tuple[Pair, ...]
    drawing: Markup


def certainty(groups: Sequence[Group]) -> tuple[Certainty, ...]:
    """One chart for each kind of column; none where no attack estimates its confidence.

    Args:
        groups: attacks of one setting and batch size.
    """
    found = []
    for kind in KINDS:
        pairs = tuple(pair for group in groups if (pair := _pair(group, kind)) is not None)
        if pairs:
            name = f"Share of right {kind} cells in the least and the most confident quarter, by attack"
            drawing = pair_chart(name, pairs, "least confident quarter", "most confident quarter", stacked=True)
            found.append(Certainty(kind, pairs, drawing))
    return tuple(found)


def _pair(group: Group, kind: str) -> Pair | None:
    bottom, top = (group.metrics.get(f"{end}25_{kind}") for end in ("bottom", "top"))
    if bottom is None or top is None or group.is_baseline:
        return None
    return Pair(group.title, bottom.mean, top.mean, points(top.mean - bottom.mean))
