"""Attacks on the updates that clients send: what their page shows."""

from collections.abc import Mapping, Sequence
from functools import partial

from lightleak.core.grouping import by_key
from lightleak.core.results import FrontierRow, UpdateRow
from lightleak.report import charts
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Cell, Column, Figure, Heading, Page, Section
from lightleak.report.charts import most_gained, pair_legend, pairs_by_name
from lightleak.report.compare import fixed
from lightleak.report.intervals import bounded
from lightleak.report.kinds import updates_runs as compared
from lightleak.report.kinds import updates_summary as summary
from lightleak.report.kinds.updates_groups import Groups, UpdateGroup, at_start, attacks, compare, strongest_first
from lightleak.report.kinds.updates_words import FIXED, of_rows, parts_title, source_phrase, travels, varying, words
from lightleak.report.page import cells_table, figures, table_of, text
from lightleak.report.read import Run
from lightleak.report.sections.certificates import certificates_section
from lightleak.report.sections.people import people_section
from lightleak.report.sections.rows import rows_section, typical_batch
from lightleak.report.sections.run import run_section, subject_of, subject_section, title_of
from lightleak.report.sections.summary import interval_cell
from lightleak.report.sections.tested import evidence_section
from lightleak.report.sections.training import training_section


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked updates; frontiers given with them say what would help."""
    every, runs = runs, [run for run in runs if run.kind == UpdateRow.KIND]
    helped = summary.from_frontiers([run for run in every if run.kind == FrontierRow.KIND], runs)
    groups, measured = compare(runs), compared.measured_runs(runs)
    main, styles = at_start(groups), styles_of(groups)
    strongest = strongest_first(main)
    best = strongest[0] if strongest else None
    others = (group for group in attacks(main) if group not in strongest)
    batch = typical_batch(runs, [*strongest, *sorted(others, key=lambda group: group.proven_share, reverse=True)])
    unit = ("update", "updates") if any(group.first.on_fedavg for group in main) else ("batch", "batches")
    rows = [row for group in groups for row in group.rows]
    with_results = [one for one in measured if one.lines]
    found, answers = summary.findings(with_results, groups)
    here = [group for group in attacks(main) if best is None or _place(group) == _place(best)]
    return Page(
        title=title_of(runs, "Leakage report"),
        subject=subject_of(runs),
        private=words("private", redact) if batch or any(run.persons for run in runs) else "",
        sections=[
            summary.summary_section(runs, with_results, best, helped),
            summary.risk_section(with_results),
            people_section(runs),
            change_section(measured, unit),
            evidence_section(
                runs, rows, found, answers=answers, unit=unit[0], reading=words("reading_updates", with_results)
            ),
            _subject(runs, main, groups),
            attacks_section(groups, main, styles, unit, strongest),
            certificates_section(groups, unit),
            training_section(runs, groups, styles),
            columns_section(best) if best else None,
            rows_section(batch, unit, redact),
            confidence_section(here),
            run_section(runs, rows, words("contents", batch, redact, unit), unit=unit),
        ],
    )


def _place(group: UpdateGroup) -> tuple[object, ...]:
    return fixed(group.first, (*FIXED, "size"))


def _subject(runs: Sequence[Run], main: Sequence[UpdateGroup], groups: Sequence[UpdateGroup]) -> Section:
    rows = [group.first for group in attacks(main) or main]
    # The rows of the training hold the privacy that was granted.
    granted = {(g.first.defense, g.first.defense_strength): g.first for g in groups if g.first.epsilon is not None}
    on_fedavg = any(row.on_fedavg for row in rows)
    sizes = sorted({group.first.size for group in main if group.first.size is not None})
    facts: list[tuple[str, list[str]]] = [
        ("Dataset", [row.dataset or "not stated" for row in rows]),
        ("Target network", [row.target or "not stated" for row in rows]),
        ("What travels", [travels(row) for row in rows]),
        ("Rows behind an update" if on_fedavg else "Rows in a client's batch", list(map(str, sizes)) or ["not stated"]),
        ("When", [source_phrase(row.source) for row in rows]),
        ("Defense", [words("defended", granted.get((row.defense, row.defense_strength), row)) for row in rows]),
    ]
    servers = dict.fromkeys(words("server", group.first) for group in main if group.first.on_fedavg)
    return subject_section(runs, facts, after=(*servers, words("assumed")))


ACCURACY = "cell_accuracy"


def styles_of(groups: Sequence[UpdateGroup]) -> dict[str, charts.Style]:
    """Return one look for each title of an attack, the same in every chart of a report; the baseline's comes last."""
    titles = dict.fromkeys(group.title for group in attacks(groups))
    guesses = dict.fromkeys((group.title for group in groups if group.is_baseline), charts.BASELINE_STYLE)
    return {title: charts.series_style(index) for index, title in enumerate(titles)} | guesses


def attacks_section(
    groups: Groups, main: Groups, styles: Mapping[str, charts.Style], unit: tuple[str, str], strongest: Groups
) -> Section | None:
    """Draw the attacks next to guessing, with charts; None where nothing was attacked.

    Args:
        groups: everything that was attacked.
        main: what of it is compared here.
        styles: look by title of an attack.
        unit: what an attack was run on, one and several.
        strongest: of `main` the attacks with a measured accuracy, most leakage first.
    """
    if not main:
        return None
    scenarios = _scenarios(main)
    apart = varying(same[0].first for same in scenarios)
    drawn = [figure for same in scenarios if (figure := _chart(same, styles, apart))]
    restored = any(group.first.labels == "restored" for group in main)
    best = strongest[0] if strongest else None
    table = table_of(
        "Attacks compared",
        [column for column in _COLUMNS if restored or column.title != "Wrong labels"],
        [(parts_title(same[0].first, apart), same) for same in scenarios],
        css="stack dense" if any(group.values("certified_share") for same in scenarios for group in same) else "stack",
        line_css=lambda group: "baseline" if group.is_baseline else "best" if group is best else "",
    )
    pictures = (words("charted", unit), *figures(drawn)) if drawn else ()
    wide = bounded(best.values(ACCURACY), comparisons=len(strongest)) if best else None
    selected = words("selected", len(attacks(groups)), len(strongest), wide)
    return Section("attacks", "Attacks compared", (selected, *pictures, table, words("compared", unit)))


_COLUMNS: tuple[Column[UpdateGroup], ...] = (
    Column("Attack", lambda group: group.title),
    Column("Rows in batch", lambda group: group.size),
    Column("Cells recovered (95% interval)", lambda group: group.share_with_interval(ACCURACY)),
    Column("Over guessing, points (95% interval)", lambda group: fmt.with_interval(group.leakage, fmt.points)),
    Column("Categories", lambda group: group.share("categorical_accuracy")),
    Column("Numbers", lambda group: group.share("numerical_accuracy")),
    Column("Whole rows", lambda group: group.share("close_match_rate"), optional=True),
    Column("Whole rows exact", lambda group: group.share("exact_match_rate")),
    Column("Rows proven", lambda group: group.share("certified_share"), optional=True),
    Column("Wrong labels", lambda group: group.share("label_count_error"), optional=True),
    Column("Batches", lambda group: str(len(group.values(ACCURACY)) or len(group.rows))),
    Column("Seconds", lambda group: fmt.duration(group.mean("seconds"))),
)


def _scenarios(groups: Sequence[UpdateGroup]) -> list[list[UpdateGroup]]:
    """All attacks of one setting, each with the guessing that it is measured against."""
    found = by_key(attacks(groups), lambda group: fixed(group.first, FIXED))
    for members in found.values():
        baselines = {id(one.baseline): one.baseline for one in members if one.baseline}
        members += baselines.values()
    listed = {id(group) for members in found.values() for group in members}
    for group in groups:  # guessing of which no attack has finished yet
        if id(group) not in listed:
            found.setdefault(fixed(group.first, FIXED), []).append(group)
    return [sorted(members, key=_reading_order) for members in found.values()]


def _reading_order(group: UpdateGroup) -> tuple[int, bool, float]:
    accuracy = group.mean(ACCURACY)
    return group.first.size or 0, group.is_baseline, -accuracy.mean if accuracy else 0.0


def _chart(groups: Sequence[UpdateGroup], styles: Mapping[str, charts.Style], apart: Sequence[str]) -> Figure | None:
    """Bars of one batch size, lines over several; None where no accuracy is known."""
    known = [(group, value) for group in groups if (value := group.mean(ACCURACY)) is not None]
    if not known:
        return None
    title = parts_title(next((g.first for g in groups if not g.is_baseline), groups[0].first), apart)
    sizes = sorted({group.first.size for group, _ in known if group.first.size is not None})
    if len(sizes) <= 1:
        guess = next((value for group, value in known if group.is_baseline), None)
        bars = [charts.EstimateRow(group.title, value, styles[group.title]) for group, value in known]
        name = "Share of cells recovered by each attack, with 95% intervals"
        return charts.bar_figure(name, bars, guess, title)
    # Batch sizes stand at even distances: they are usually powers of two.
    of_title = by_key(known, lambda pair: pair[0].title)
    series = [
        charts.Series(name, tuple((sizes.index(g.first.size), v) for g, v in of_title[name] if g.first.size), style)
        for name, style in styles.items()
        if name in of_title
    ]
    axis = "rows behind the update" if groups[0].first.on_fedavg else "rows in the client's batch"
    name = f"Share of cells recovered by each attack over the {axis}, with 95% intervals"
    x = charts.spaced_axis([(index, str(size)) for index, size in enumerate(sizes)], axis, margin=0.08)
    return charts.line_figure(name, series, x, title)


def columns_section(group: UpdateGroup) -> Section | None:
    """Draw how much of each column an attack recovers; None where that was not measured."""
    reached = group.means("column_accuracy")
    if not reached:
        return None
    guessed = group.baseline.means("column_accuracy") if group.baseline else {}
    title = ", ".join(filter(None, (group.title, of_rows(group.first))))
    label = f"Share of right cells in each of {len(reached)} columns, guessed and recovered; most leakage first"
    drawn = pairs_by_name(label, reached, guessed, "guessing", "recovered")
    said = words("columns", title, most_gained(reached, guessed), bool(guessed))
    return Section("columns", "By column", (said, *drawn))


def confidence_section(groups: Sequence[UpdateGroup]) -> Section | None:
    """Draw whether the attacker's confidence shows which cells are right (TabLeak Sec. 3.2)."""
    panels = []
    start, end = "least confident quarter", "most confident quarter"
    for kind in ("categorical", "numerical"):
        known = [(group, group.mean(f"bottom25_{kind}"), group.mean(f"top25_{kind}")) for group in groups]
        pairs = [
            charts.Pair(group.title, low.mean, high.mean, fmt.points(high.mean - low.mean))
            for group, low, high in known
            if low and high
        ]
        if pairs:
            name = f"Share of right {kind} cells in the least and the most confident quarter, by attack"
            drawing = charts.pair_chart(name, pairs, start, end, stacked=True)
            panels.append(Figure(drawing, f"{fmt.capital(kind)} cells", plot="bars"))
    blocks = (words("confidence"), pair_legend(start, end), *figures(panels))
    return Section("confidence", "The attacker's confidence", blocks) if panels else None


def change_section(runs: Sequence[compared.Measured], unit: tuple[str, str]) -> Section | None:
    """Draw what changed from the reference, which stands first, to every other run; None where there is one run."""
    if len(runs) < 2:
        return None
    blocks: list[Block] = [words("changes", unit)]
    for one in runs[1:]:
        title = f"{compared.run_title(one.run)} against {compared.run_title(one.reference)}"
        blocks += [Heading(fmt.capital(title)), _settings(one), _utility(one), _leakage(one)]
    return Section("change", "Before and after", tuple(blocks))


def _settings(one: compared.Measured) -> Block:
    changed = compared.changed_settings(one.reference, one.run)
    if not changed:
        return words("no_settings", changed)
    lines = [(text("<code>{}</code>", name), before, after) for name, before, after in changed]
    head = ("Setting", "Before", "After")
    return cells_table("Settings that changed", head, [("", lines)], css="words-table", box="snug")


def _utility(one: compared.Measured) -> Block:
    utilities = one.utilities
    if utilities == (None, None):
        return "Neither run trained a network, so what the change costs is not known."
    accuracies = [of.accuracy if of else None for of in utilities]
    majorities = [of.majority if of else None for of in utilities]
    areas = [of.auroc if of else None for of in utilities]
    change = None if one.cost is None or areas[0] is None or areas[1] is None else areas[1] - areas[0]
    cost, ranks = interval_cell(one.cost, fmt.points), fmt.DASH if change is None else fmt.signed(change, 3)
    lines: list[Sequence[str | Cell]] = [("Accuracy", *map(interval_cell, accuracies), cost)]
    if majorities != [None, None]:
        lines.append(("Always the commonest label", *map(fmt.percent, majorities), fmt.DASH))
    lines.append(("Area under the ROC curve", *map(fmt.area, areas), ranks))
    groups = [("The trained network, on test rows", lines)]
    return cells_table("What it cost", ("Score", "Before", "After", "Change"), groups, css="stack", box="snug")


def _leakage(one: compared.Measured) -> Block:
    groups = compared.changed_groups(one.reference, one.run)
    if not groups:
        return words("nothing_shared")
    known = {name for group in groups for name in group.changes}
    columns: list[Column[compared.ChangedGroup]] = [
        Column("Attack", lambda group: group.group.title),
        Column("Rows in batch", lambda group: group.group.size),
        *(Column(title, partial(_change, name)) for name, title in compared.METRICS.items() if name in known),
        Column("Batches", lambda group: f"{group.pairs} pairs" if group.pairs else f"{group.n[0]} and {group.n[1]}"),
    ]
    by_moment = by_key(groups, lambda group: fmt.capital(group.moment)).items()
    name = "What changed for each attack"
    return table_of(name, columns, by_moment, css="changes stack", line_css=_changed_css)


def _changed_css(group: compared.ChangedGroup) -> str:
    return "baseline" if group.group.is_baseline else ""


def _change(name: str, group: compared.ChangedGroup) -> Cell:
    change = group.changes.get(name)
    if change is None:
        return Cell(fmt.DASH)
    value, is_share = change.difference, name != compared.ERROR
    ends = "on every pair" if change.is_equal else ""
    if not change.is_equal and value.low is not None and value.high is not None:
        ends = fmt.interval(value, -1.0) if is_share else f"{fmt.signed(value.low)} to {fmt.signed(value.high)}"
    means = [fmt.percent(one) if is_share else f"{one.mean:.2f}" for one in (change.before, change.after)]
    said = fmt.points(value) if is_share else fmt.signed(value.mean)
    return Cell(f"{change.sign} {said}", tuple(filter(None, (ends, " → ".join(means)))))
