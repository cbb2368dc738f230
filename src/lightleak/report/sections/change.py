"""Before and after: what changed from one run of updates to another."""

from collections.abc import Sequence

from lightleak.report.change.changed import METRICS, SHARES, Change, ChangedGroup
from lightleak.report.change.comparison import Comparison, compare_runs
from lightleak.report.change.utility import Utility
from lightleak.report.compare import by_key
from lightleak.report.format import (
    DASH,
    EQUAL,
    capital,
    interval,
    percent,
    points,
    sign_of,
    signed,
)
from lightleak.report.format import (
    METRICS as TITLES,
)
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.updates_groups import is_baseline
from lightleak.report.page import Block, Cell, Column, Heading, Line, Lines, Paragraph, Section, Table, table_of, text
from lightleak.report.read import Run
from lightleak.report.sections.certificates import size_of


def change_section(runs: Sequence[Run], unit: tuple[str, str]) -> Section | None:
    """Draw every run against the reference; None where there is one run."""
    comparisons = compare_runs(runs)
    if not comparisons:
        return None
    blocks: list[Block] = [
        Paragraph(
            "What changed from one run to the other. Differences are after minus before, in points: of scores on the "
            f"same {unit[1]} where both runs attacked the same rows, which gives narrower intervals than the two "
            "scores have. ▼ and ▲ mark a difference whose 95% interval excludes 0, ○ one that may be chance, = one "
            "that is 0 everywhere. Of shares recovered, less is better for the clients; of the attack's error, more "
            "is."
        )
    ]
    for one in comparisons:
        blocks += [Heading(capital(one.title)), *_settings(one), *_utility(one), *_leakage(one)]
    blocks.append(
        Paragraph(
            "The interval of the accuracy is over the choice of test rows and assumes that the two networks are "
            "independent, which is conservative. Each network was trained once. A dash marks what was not measured in "
            "both runs.",
            "note",
        )
    )
    return Section("change", "Before and after", tuple(blocks))


def _settings(one: Comparison) -> tuple[Block, ...]:
    if one.settings is None:
        return (Paragraph("One of the runs has no readable config.yaml, so which settings changed cannot be listed."),)
    if not one.settings:
        same = "The two runs have the same settings: what differs is chance, another device or another version."
        return (Paragraph(same),)
    columns: list[Column[tuple[str, str, str]]] = [
        Column("Setting", lambda row: text("<code>{}</code>", row[0])),
        Column("Before", lambda row: row[1]),
        Column("After", lambda row: row[2]),
    ]
    return (table_of("Settings that changed", columns, [("", one.settings)], css="words-table", box="snug"),)


def _utility(one: Comparison) -> tuple[Block, ...]:
    before, after = one.utilities
    if before is None and after is None:
        return (Paragraph("Neither run trained a network, so what the change costs is not known."),)
    lines = [_line("Accuracy", before, after, "accuracy", _share(one.cost.accuracy, -1.0) if one.cost else Cell(DASH))]
    if one.knows_majority:
        lines.append(_line("Always the commonest label", before, after, "majority", Cell(DASH)))
    area = Cell(signed(one.cost.auroc, 3) if one.cost and one.cost.auroc is not None else DASH)
    lines.append(_line("Area under the ROC curve", before, after, "auroc", area))
    head = ("The trained network, on test rows", "Before", "After", "Change")
    found: tuple[Block, ...] = (Table("What it cost", head, (Lines(tuple(lines)),), box="snug"),)
    if one.cost is None or one.cost.can_be_judged:
        return found
    judged = (
        "Before the change the network was not measurably better than always answering the commonest label, so its "
        "accuracy does not show what the change costs."
    )
    return (*found, Paragraph(judged))


def _line(title: str, before: Utility | None, after: Utility | None, name: str, change: Cell) -> Line:
    return Line((Cell(title), *(_of(getattr(one, name, None), name) for one in (before, after)), change))


def _of(value: Estimate | float | None, name: str) -> Cell:
    if isinstance(value, Estimate):
        return Cell(percent(value), (interval(value),) if value.has_interval else ())
    return Cell(DASH if value is None else f"{value:.3f}" if name == "auroc" else percent(value))


def _share(value: Estimate, lowest: float) -> Cell:
    return Cell(points(value), (interval(value, lowest),) if value.has_interval else ())


def _leakage(one: Comparison) -> tuple[Block, ...]:
    if not one.groups:
        none = (
            "The two runs share no attack on updates of the same table, size and moment, so their leakage cannot be "
            "compared."
        )
        return (Paragraph(none),)
    columns: list[Column[ChangedGroup]] = [
        Column("Attack", lambda group: group.group.title),
        Column("Rows in batch", lambda group: size_of(group.group)),
        *(_metric(name) for name in METRICS if name in one.metrics),
        Column("Batches", lambda group: f"{group.pairs} pairs" if group.pairs else f"{group.n[0]} and {group.n[1]}"),
    ]
    groups = [(capital(moment), same) for moment, same in by_key(one.groups, lambda group: group.moment).items()]
    table = table_of(
        "What changed for each attack",
        columns,
        groups,
        css="changes stack",
        line_css=lambda group: "baseline" if is_baseline(group.group) else "",
    )
    if one.n_intervals < 2:
        return (table,)
    chance = (
        f"{one.n_intervals} differences have an interval here. About one 95% interval in 20 misses the true "
        f"difference, here about {by_chance(one.n_intervals)}: look at what many lines agree on, and measure again, "
        "with another seed, what a single line seems to say."
    )
    return (table, Paragraph(chance, "note"))


def by_chance(intervals: int) -> int:
    """Intervals of so many that are expected to miss.

    >>> by_chance(50), by_chance(3)
    (2, 1)
    """
    return max(1, round(intervals / 20))


def _metric(name: str) -> Column[ChangedGroup]:
    return Column(TITLES[name], lambda group: _change(group.changes.get(name), name in SHARES))


def _change(change: Change | None, is_share: bool) -> Cell:
    if change is None:
        return Cell(DASH)
    value, ends = change.difference, ""
    if change.verdict == "equal":
        ends = "on every pair"
    elif value.low is not None and value.high is not None:
        ends = interval(value, -1.0) if is_share else f"{signed(value.low)} to {signed(value.high)}"
    means = [percent(one) if is_share else f"{one.mean:.2f}" for one in (change.before, change.after)]
    sign = EQUAL if change.verdict == "equal" else sign_of(value)
    words = points(value) if is_share else signed(value.mean)
    return Cell(f"{sign} {words}", tuple(filter(None, (ends, " → ".join(means)))))
