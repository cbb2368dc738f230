"""Estimated shares against the truth: one chart for each property."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.charts import Style
from lightleak.report.estimate import Estimate
from lightleak.report.vertical.charts import IntervalRow, interval_chart
from lightleak.report.vertical.comparison import Group, Property
from lightleak.report.vertical.result import PropertyResult
from lightleak.report.vertical.tables import group_titles, property_titles
from lightleak.report.vertical.wording import off_by
from lightleak.report.wording import percent

ADVERSARY_STYLES = {"C1": Style("s0", "circle"), "C2": Style("s1", "square")}
OTHER_STYLE = Style("s2", "triangle")
HEADINGS = {"C1": "C1, with the labels", "C2": "C2, without the labels"}


@dataclass(frozen=True)
class SharePanel:
    """The chart of one property."""

    title: str
    drawing: Markup


def share_panels(properties: Sequence[Property]) -> tuple[SharePanel, ...]:
    """One chart for each property with an estimate: a row per attack, C1 above C2, the closest first."""
    titles = property_titles(properties)
    found = []
    for one in properties:
        named = group_titles(one.groups)
        rows: list[IntervalRow] = []
        before = None
        for group in one.groups:
            if group.estimated is None:
                continue
            heading = HEADINGS.get(group.adversary, group.adversary) if group.adversary != before else ""
            rows.append(_row(group, named[group], heading))
            before = group.adversary
        if rows:
            name = f"Estimated share of records with {one.name}, by attack, against the true share"
            found.append(SharePanel(titles[one], interval_chart(name, rows, _truth(one))))
    return tuple(found)


def _row(group: Group, title: str, heading: str) -> IntervalRow:
    value = group.estimated
    assert value is not None
    single = group.results[0]
    if value.n == 1 and single.low is not None and single.high is not None:
        value = Estimate(value.mean, 1, single.low, single.high)
    return IntervalRow(
        label=title,
        value=value,
        singles=tuple((one.estimated, _hover(one)) for one in group.results if one.estimated is not None)
        if len(group.results) > 1
        else (),
        style=ADVERSARY_STYLES.get(group.adversary, OTHER_STYLE),
        note=off_by(group.error.mean) if group.error else "",
        heading=heading,
    )


def _hover(one: PropertyResult) -> str:
    own = "" if one.low is None or one.high is None else f", own interval {100 * one.low:.1f} to {100 * one.high:.1f}"
    true = "" if one.true is None else f", true {percent(one.true)}"
    return f"seed {one.seed}: {percent(one.estimated)}{own}{true}"


def _truth(one: Property) -> tuple[float, float, float] | None:
    known = [result.true for result in one.results if result.true is not None]
    return (sum(known) / len(known), min(known), max(known)) if known else None
