"""Attacks on the updates that clients send: what their page shows."""

from collections.abc import Mapping, Sequence

from lightleak.core.grouping import by_key
from lightleak.core.results import FrontierRow, UpdateRow
from lightleak.report import charts
from lightleak.report import format as fmt
from lightleak.report.blocks import Column, Figure, Page, Section
from lightleak.report.compare import attacks, fixed
from lightleak.report.intervals import bounded
from lightleak.report.kinds import updates_summary as summary
from lightleak.report.kinds.updates_change import change_section
from lightleak.report.kinds.updates_groups import UpdateGroup, at_start, compare, strongest_first
from lightleak.report.kinds.updates_runs import measured_runs
from lightleak.report.kinds.updates_words import (
    FIXED,
    of_rows,
    parts_title,
    source_phrase,
    varying,
    what_the_server_gets,
    words,
)
from lightleak.report.page import figures, table_of
from lightleak.report.read import Run
from lightleak.report.sections.certificates import certificates_section
from lightleak.report.sections.people import people_section
from lightleak.report.sections.rows import rows_section, typical_batch
from lightleak.report.sections.subject_and_run import audit_page, run_section, subject_section
from lightleak.report.sections.tested import CLAIMED, evidence_section
from lightleak.report.sections.training import training_section

ACCURACY = "cell_accuracy"


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked updates; frontiers given with them say what would help."""
    every, runs = runs, [run for run in runs if run.kind == UpdateRow.KIND]
    helped = summary.from_frontiers([run for run in every if run.kind == FrontierRow.KIND], runs)
    groups, measured = compare(runs), measured_runs(runs)
    main, styles = at_start(groups), styles_of(groups)
    strongest = strongest_first(main)
    best = strongest[0] if strongest else None
    others = (group for group in attacks(main) if group not in strongest)
    batch = typical_batch(runs, [*strongest, *sorted(others, key=lambda group: group.proven_share, reverse=True)])
    unit = ("update", "updates") if any(group.first.on_fedavg for group in main) else ("batch", "batches")
    rows = [row for group in groups for row in group.rows]
    with_results = [one for one in measured if one.exposed]
    found, answers = summary.findings(with_results, groups)
    here = [group for group in attacks(main) if best is None or _place(group) == _place(best)]
    return audit_page(
        runs,
        "Leakage report",
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
    # The rows of the training hold the privacy that was granted; runs of other lengths were granted another.
    granted = by_key((g.first for g in groups if g.first.epsilon is not None), _defended)
    defended = [one for row in rows for one in granted.get(_defended(row), [row])]
    on_fedavg = any(row.on_fedavg for row in rows)
    sizes = sorted({group.first.size for group in main if group.first.size is not None})
    facts: list[tuple[str, list[str]]] = [
        ("Dataset", [row.dataset or "not stated" for row in rows]),
        ("Target network", [row.target or "not stated" for row in rows]),
        ("What travels", [what_the_server_gets(row) for row in rows]),
        ("Rows behind an update" if on_fedavg else "Rows in a client's batch", list(map(str, sizes)) or ["not stated"]),
        ("When", [source_phrase(row.source) for row in rows]),
        ("Defense", [words("defended", one, CLAIMED.get(one.defense, "")) for one in defended]),
    ]
    servers = dict.fromkeys(words("server", group.first) for group in main if group.first.on_fedavg)
    return subject_section(runs, facts, after=(*servers, words("assumed")))


def _defended(row: UpdateRow) -> tuple[object, ...]:
    return row.defense, row.defense_strength


def styles_of(groups: Sequence[UpdateGroup]) -> dict[str, charts.Style]:
    """Return one look for each title of an attack, the same in every chart of a report; the baseline's comes last."""
    titles = dict.fromkeys(group.title for group in attacks(groups))
    guesses = dict.fromkeys((group.title for group in groups if group.is_baseline), charts.BASELINE_STYLE)
    return {title: charts.series_style(index) for index, title in enumerate(titles)} | guesses


def attacks_section(
    groups: Sequence[UpdateGroup],
    main: Sequence[UpdateGroup],
    styles: Mapping[str, charts.Style],
    unit: tuple[str, str],
    strongest: Sequence[UpdateGroup],
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
        css="stack dense",
        line_css=lambda group: "best" if group is best else group.css,
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
    drawn = charts.pairs_by_name(label, reached, guessed, "guessing", "recovered")
    said = words("columns", title, charts.most_gained(reached, guessed), bool(guessed))
    return Section("columns", "By column", (said, *drawn))


def confidence_section(groups: Sequence[UpdateGroup]) -> Section | None:
    """Draw whether the attacker's confidence shows which cells are right (TabLeak Sec. 3.2)."""
    panels = []
    start, end = "least confident quarter", "most confident quarter"
    for kind in ("categorical", "numerical"):
        known = [(group, group.mean(f"bottom25_{kind}"), group.mean(f"top25_{kind}")) for group in groups]
        pairs = [charts.Pair(group.title, low.mean, high.mean) for group, low, high in known if low and high]
        if pairs:
            name = f"Share of right {kind} cells in the least and the most confident quarter, by attack"
            drawing = charts.pair_chart(name, pairs, start, end, stacked=True)
            panels.append(Figure(drawing, f"{fmt.capital(kind)} cells", plot="bars"))
    blocks = (words("confidence"), charts.pair_legend(start, end), *figures(panels))
    return Section("confidence", "The attacker's confidence", blocks) if panels else None
