"""Attacks on the updates that clients send: what their page shows."""

from collections.abc import Sequence

from lightleak.core.results import FrontierRow, UpdateRow
from lightleak.report.blocks import Page, Section
from lightleak.report.compare import fixed
from lightleak.report.kinds import updates_attacks as attacked
from lightleak.report.kinds import updates_summary as summary
from lightleak.report.kinds.updates_change import change_section
from lightleak.report.kinds.updates_groups import UpdateGroup, at_start, attacks, compare, strongest_first
from lightleak.report.kinds.updates_runs import measured_runs
from lightleak.report.kinds.updates_words import FIXED, source_phrase, what_the_server_gets, words
from lightleak.report.read import Run
from lightleak.report.sections.certificates import certificates_section
from lightleak.report.sections.people import people_section
from lightleak.report.sections.rows import rows_section, typical_batch
from lightleak.report.sections.run import run_section, subject_of, subject_section, title_of
from lightleak.report.sections.tested import evidence_section
from lightleak.report.sections.training import training_section


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked updates; frontiers given with them say what would help."""
    every, runs = runs, [run for run in runs if run.kind == UpdateRow.KIND]
    helped = summary.from_frontiers([run for run in every if run.kind == FrontierRow.KIND], runs)
    groups, measured = compare(runs), measured_runs(runs)
    main, styles = at_start(groups), attacked.styles_of(groups)
    strongest = strongest_first(main)
    best = strongest[0] if strongest else None
    others = (group for group in attacks(main) if group not in strongest)
    batch = typical_batch(runs, [*strongest, *sorted(others, key=lambda group: group.proven_share, reverse=True)])
    unit = ("update", "updates") if any(group.first.on_fedavg for group in main) else ("batch", "batches")
    rows = [row for group in groups for row in group.rows]
    told = [one for one in measured if one.lines]
    found, answers = summary.findings(told, groups)
    here = [group for group in attacks(main) if best is None or _place(group) == _place(best)]
    return Page(
        title=title_of(runs, "Leakage report"),
        subject=subject_of(runs),
        private=words("private", redact) if batch or any(run.persons for run in runs) else "",
        sections=[
            summary.summary_section(runs, told, best, helped),
            summary.risk_section(told),
            people_section(runs),
            change_section(measured, unit),
            evidence_section(runs, rows, found, answers=answers, unit=unit[0], reading=words("reading_updates", told)),
            _subject(runs, main, groups),
            attacked.attacks_section(groups, main, styles, unit, strongest),
            certificates_section(groups, unit),
            training_section(runs, groups, styles),
            attacked.columns_section(best) if best else None,
            rows_section(batch, unit, redact),
            attacked.confidence_section(here),
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
        ("What travels", [what_the_server_gets(row) for row in rows]),
        ("Rows behind an update" if on_fedavg else "Rows in a client's batch", list(map(str, sizes)) or ["not stated"]),
        ("When", [source_phrase(row.source) for row in rows]),
        ("Defense", [words("defended", granted.get((row.defense, row.defense_strength), row)) for row in rows]),
    ]
    servers = dict.fromkeys(words("server", group.first) for group in main if group.first.on_fedavg)
    return subject_section(runs, facts, after=(*servers, words("assumed")))
