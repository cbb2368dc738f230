"""Before and after: what changed from one run of updates to every other, setting by setting and attack by attack."""

from collections.abc import Sequence
from functools import partial

from lightleak.core.grouping import by_key
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Cell, Column, Heading, Section
from lightleak.report.kinds.updates_runs import ERROR, METRICS, ChangedGroup, Measured, changed_groups, changed_settings
from lightleak.report.kinds.updates_words import words
from lightleak.report.page import cells_table, table_of, text
from lightleak.report.sections.summary import interval_cell


def change_section(runs: Sequence[Measured], unit: tuple[str, str]) -> Section | None:
    """Draw what changed from the reference, which stands first, to every other run; None where there is one run."""
    if len(runs) < 2:
        return None
    blocks: list[Block] = [words("changes", unit)]
    for one in runs[1:]:
        blocks += [Heading(fmt.capital(one.heading)), _settings(one), _utility(one), _leakage(one)]
    return Section("change", "Before and after", tuple(blocks))


def _settings(one: Measured) -> Block:
    changed = changed_settings(one.reference, one.run)
    if not changed:
        return words("no_settings", changed)
    lines = [(text("<code>{}</code>", name), before, after) for name, before, after in changed]
    head = ("Setting", "Before", "After")
    return cells_table("Settings that changed", head, [("", lines)], css="words-table", box="snug")


def _utility(one: Measured) -> Block:
    utilities = one.utilities
    if utilities == (None, None):
        return "Neither run trained a network, so what the change costs is not known."
    accuracies = [of.accuracy if of else None for of in utilities]
    majorities = [of.majority if of else None for of in utilities]
    areas = [of.test.auroc if of else None for of in utilities]
    change = None if one.cost is None or areas[0] is None or areas[1] is None else areas[1] - areas[0]
    cost, ranks = interval_cell(one.cost, fmt.points), fmt.DASH if change is None else fmt.signed(change, 3)
    lines: list[Sequence[str | Cell]] = [("Accuracy", *map(interval_cell, accuracies), cost)]
    if majorities != [None, None]:
        lines.append(("Always the commonest label", *map(fmt.percent, majorities), fmt.DASH))
    lines.append(("Area under the ROC curve", *map(fmt.area, areas), ranks))
    groups = [("The trained network, on test rows", lines)]
    return cells_table("What it cost", ("Score", "Before", "After", "Change"), groups, css="stack", box="snug")


def _leakage(one: Measured) -> Block:
    groups = changed_groups(one.reference, one.run)
    if not groups:
        return words("nothing_shared")
    known = {name for group in groups for name in group.changes}
    columns: list[Column[ChangedGroup]] = [
        Column("Attack", lambda group: group.group.title),
        Column("Rows in batch", lambda group: group.group.size),
        *(Column(title, partial(_change, name)) for name, title in METRICS.items() if name in known),
        Column("Batches", lambda group: f"{group.pairs} pairs" if group.pairs else f"{group.n[0]} and {group.n[1]}"),
    ]
    by_moment = by_key(groups, lambda group: fmt.capital(group.moment)).items()
    name = "What changed for each attack"
    return table_of(name, columns, by_moment, css="changes stack", line_css=lambda one: one.group.css)


def _change(name: str, group: ChangedGroup) -> Cell:
    change = group.changes.get(name)
    if change is None:
        return Cell(fmt.DASH)
    value, is_share = change.difference, name != ERROR
    ends = "on every pair" if change.is_equal else ""
    if not change.is_equal and value.low is not None and value.high is not None:
        ends = fmt.interval(value, -1.0) if is_share else f"{fmt.signed(value.low)} to {fmt.signed(value.high)}"
    means = [fmt.percent(one) if is_share else f"{one.mean:.2f}" for one in (change.before, change.after)]
    said = fmt.points(value) if is_share else fmt.signed(value.mean)
    return Cell(f"{change.sign} {said}", tuple(filter(None, (ends, " → ".join(means)))))
