"""Attacks on the updates that clients send: what their page shows."""

from collections.abc import Mapping, Sequence
from functools import partial

from lightleak.core.results import FrontierRow, UpdateRow
from lightleak.report import charts
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Cell, Column, Figure, Heading, Page, Section
from lightleak.report.compare import by_key, fixed
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.updates_groups import (
    UpdateGroup,
    at_start,
    attacks,
    compare,
    is_baseline,
    leakage,
    proven_share,
    strongest_first,
)
from lightleak.report.kinds.updates_runs import (
    ERROR,
    METRICS,
    ChangedGroup,
    Measured,
    Utility,
    measured_runs,
    run_title,
)
from lightleak.report.kinds.updates_summary import (
    MOST_NAMED,
    findings,
    from_frontiers,
    reading,
    risk_section,
    summary_section,
)
from lightleak.report.kinds.updates_words import (
    FIXED,
    of_rows,
    parts_title,
    source_phrase,
    varying,
    what_the_server_gets,
)
from lightleak.report.page import figures, fill, table_of, text
from lightleak.report.read import Run
from lightleak.report.sections.certificates import certificates_section, share_of, size_of
from lightleak.report.sections.columns import gains, pair_legend, pairs_by_name
from lightleak.report.sections.people import people_section
from lightleak.report.sections.rows import rows_section, typical_batch
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.subject import subject_of, subject_section, title_of
from lightleak.report.sections.summary import interval_cell
from lightleak.report.sections.tested import evidence_section
from lightleak.report.sections.training import training_section

ACCURACY = "cell_accuracy"

Unit = tuple[str, str]
words = partial(fill, "updates")


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked updates; frontiers given with them say what would help."""
    every, runs = runs, [run for run in runs if run.kind == UpdateRow.KIND]
    helped = from_frontiers([run for run in every if run.kind == FrontierRow.KIND])
    groups = compare(runs)
    main, styles = at_start(groups), _styles(groups)
    strongest = strongest_first(main)
    best = strongest[0] if strongest else None
    unproven = sorted((group for group in attacks(main) if group not in strongest), key=proven_share, reverse=True)
    batch = typical_batch(runs, [*strongest, *unproven])
    unit = ("update", "updates") if any(group.first.on_fedavg for group in main) else ("batch", "batches")
    rows = [row for group in groups for row in group.rows]
    found, answers = findings(runs)
    here = [group for group in attacks(main) if best is None or _place(group) == _place(best)]
    return Page(
        title=title_of(runs, "Leakage report"),
        subject=subject_of(runs),
        private=words("private", redact) if batch or any(run.persons for run in runs) else "",
        sections=[
            summary_section(runs, best, helped),
            risk_section(runs),
            people_section(runs, redact),
            change_section(runs, unit),
            evidence_section(runs, rows, found, answers=answers, unit=unit[0], reading=(reading(runs),)),
            _subject(runs, main, groups),
            _attacks(groups, main, styles, unit, strongest),
            certificates_section(groups, unit),
            training_section(runs, groups, styles),
            _columns(best) if best else None,
            rows_section(batch, unit, redact),
            _certainty(here),
            run_section(runs, rows, words("contents", batch, redact, unit), unit=unit),
        ],
    )


def change_section(runs: Sequence[Run], unit: Unit) -> Section | None:
    """Draw what changed from the reference to every other run; None where there is one run."""
    reference, *others = measured_runs(runs) or (None,)
    if reference is None or not others:
        return None
    blocks: list[Block] = [words("changes", unit)]
    for one in others:
        title = f"{run_title(one.run)} against {run_title(one.reference)}"
        blocks += [Heading(fmt.capital(title)), _settings(one), _utility(one), _leakage(one)]
    return Section("change", "Before and after", tuple(blocks))


def _settings(one: Measured) -> Block:
    if not one.settings:
        return words("no_settings", one.settings)
    columns: list[Column[tuple[str, str, str]]] = [
        Column("Setting", lambda row: text("<code>{}</code>", row[0])),
        Column("Before", lambda row: row[1]),
        Column("After", lambda row: row[2]),
    ]
    return table_of("Settings that changed", columns, [("", one.settings)], css="words-table", box="snug")


_Score = tuple[str, Estimate | float | None, Estimate | float | None, str | Cell]


def _utility(one: Measured) -> Block:
    before, after = one.utilities
    if before is None and after is None:
        return "Neither run trained a network, so what the change costs is not known."
    area = [of.auroc if of else None for of in (before, after)]
    change = None if one.cost is None or area[0] is None or area[1] is None else area[1] - area[0]

    def values(of: Utility | None) -> tuple[Estimate | None, float | None, float | None]:
        return (of.accuracy, of.majority, of.auroc) if of else (None, None, None)

    names = ("Accuracy", "Always the commonest label", "Area under the ROC curve")
    changes = (interval_cell(one.cost, fmt.points), fmt.DASH, fmt.DASH if change is None else fmt.signed(change, 3))
    lines: list[_Score] = list(zip(names, values(before), values(after), changes, strict=True))
    columns: list[Column[_Score]] = [
        Column("Score", lambda line: line[0]),
        Column("Before", lambda line: _score(line[1], line[0])),
        Column("After", lambda line: _score(line[2], line[0])),
        Column("Change", lambda line: line[3]),
    ]
    known = [line for line in lines if line[0] != names[1] or (line[1], line[2]) != (None, None)]
    return table_of("What it cost", columns, [("The trained network, on test rows", known)], css="stack", box="snug")


def _score(value: Estimate | float | None, name: str) -> str | Cell:
    if isinstance(value, Estimate):
        return interval_cell(value)
    return fmt.DASH if value is None else f"{value:.3f}" if name.startswith("Area") else fmt.percent(value)


def _leakage(one: Measured) -> Block:
    if not one.groups:
        return words("nothing_shared")
    known = {name for group in one.groups for name in group.changes}
    columns: list[Column[ChangedGroup]] = [
        Column("Attack", lambda group: group.group.title),
        Column("Rows in batch", lambda group: size_of(group.group)),
        *(Column(title, partial(_change, name)) for name, title in METRICS.items() if name in known),
        Column("Batches", lambda group: f"{group.pairs} pairs" if group.pairs else f"{group.n[0]} and {group.n[1]}"),
    ]
    return table_of(
        "What changed for each attack",
        columns,
        [(fmt.capital(moment), same) for moment, same in by_key(one.groups, lambda group: group.moment).items()],
        css="changes stack",
        line_css=lambda group: "baseline" if is_baseline(group.group) else "",
    )


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


def _styles(groups: Sequence[UpdateGroup]) -> dict[str, charts.Style]:
    """One look for each title of an attack, the same in every chart of a report; the baseline's comes last."""
    titles = dict.fromkeys(group.title for group in attacks(groups))
    guesses = dict.fromkeys((group.title for group in groups if is_baseline(group)), charts.BASELINE_STYLE)
    return {title: charts.series_style(index) for index, title in enumerate(titles)} | guesses


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
        ("What travels", [what_the_server_gets(row) for row in rows]),
        ("Rows behind an update" if on_fedavg else "Rows in a client's batch", list(map(str, sizes)) or ["not stated"]),
        ("When", [source_phrase(row.source) for row in rows]),
        ("Defense", [words("defended", granted.get((row.defense, row.defense_strength), row)) for row in rows]),
    ]
    servers = dict.fromkeys(words("server", group.first) for group in main if group.first.on_fedavg)
    return subject_section(runs, facts, after=(*servers, words("assumed")))


def _attacks(
    groups: Sequence[UpdateGroup],
    main: Sequence[UpdateGroup],
    styles: Mapping[str, charts.Style],
    unit: Unit,
    strongest: Sequence[UpdateGroup],
) -> Section | None:
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
        line_css=lambda group: "baseline" if is_baseline(group) else "best" if group is best else "",
    )
    pictures = (words("charted", unit), *figures(drawn)) if drawn else ()
    wide = bounded(best.values(ACCURACY), comparisons=len(strongest)) if best else None
    selected = words("selected", len(attacks(groups)), len(strongest), wide)
    return Section("attacks", "Attacks compared", (selected, *pictures, table, words("compared", unit)))


_COLUMNS: tuple[Column[UpdateGroup], ...] = (
    Column("Attack", lambda group: group.title),
    Column("Rows in batch", lambda group: size_of(group)),
    Column("Cells recovered (95% interval)", partial(share_of, ACCURACY, with_interval=True)),
    Column("Over guessing, points (95% interval)", lambda group: fmt.with_interval(leakage(group), fmt.points)),
    Column("Categories", partial(share_of, "categorical_accuracy")),
    Column("Numbers", partial(share_of, "numerical_accuracy")),
    Column("Whole rows exact", partial(share_of, "exact_match_rate")),
    Column("Rows proven", partial(share_of, "certified_share"), optional=True),
    Column("Wrong labels", partial(share_of, "label_count_error"), optional=True),
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
    return group.first.size or 0, is_baseline(group), -accuracy.mean if accuracy else 0.0


def _chart(groups: Sequence[UpdateGroup], styles: Mapping[str, charts.Style], apart: Sequence[str]) -> Figure | None:
    """Bars of one batch size, lines over several; None where no accuracy is known."""
    known = [(group, value) for group in groups if (value := group.mean(ACCURACY)) is not None]
    if not known:
        return None
    title = parts_title(next((g.first for g in groups if not is_baseline(g)), groups[0].first), apart)
    sizes = sorted({group.first.size for group, _ in known if group.first.size is not None})
    if len(sizes) <= 1:
        guess = next((value for group, value in known if is_baseline(group)), None)
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


def _columns(group: UpdateGroup) -> Section | None:
    reached = group.means("column_accuracy")
    if not reached:
        return None
    guessed = group.baseline.means("column_accuracy") if group.baseline else {}
    found = gains(reached, guessed)
    most = [name for name in list(found)[:MOST_NAMED] if (found[name] or 0.0) > 0]
    title = ", ".join(filter(None, (group.title, of_rows(group.first))))
    label = f"Share of right cells in each of {len(reached)} columns, guessed and recovered; most leakage first"
    drawn = pairs_by_name(label, reached, guessed, "guessing", "recovered")
    return Section("columns", "By column", (words("columns", title, most, bool(guessed)), *drawn))


def _certainty(groups: Sequence[UpdateGroup]) -> Section | None:
    """Whether the attacker's confidence shows which cells are right (TabLeak Sec. 3.2)."""
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
