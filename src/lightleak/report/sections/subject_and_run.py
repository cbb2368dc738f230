"""What several kinds of page share: its names, what was attacked, warnings of the attacks, and the last section.

The last one: time, seeds, settings, versions, how to run it again, what the file contains.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.results import Row
from lightleak.report.blocks import Block, Page, Section
from lightleak.report.format import attack_title, counted
from lightleak.report.page import fill, names_table, text
from lightleak.report.read import Run


def audit_page(runs: Sequence[Run], title: str, sections: Sequence[Section | None], private: str = "") -> Page:
    """Make the page of audits, named by their configs, or by ``title`` and the tables; see `Page` for the others."""
    return Page(title_of(runs, title), subject_of(runs), sections, private)


def subject_section(
    runs: Sequence[Run],
    facts: Iterable[tuple[str, Iterable[str]]],
    *,
    before: Sequence[Block] = (),
    after: Sequence[Block] = (),
) -> Section:
    """Draw what was attacked, and which attacks were left out.

    Args:
        runs: the runs of the report.
        facts: names with values of the rows; of each value, one is shown.
        before: blocks above the facts.
        after: blocks below them.
    """
    reasons = fill("sections", "left_out", left_out(runs))
    if not any(run.rows for run in runs):
        return Section("what", "What was attacked", ("Nothing yet: the run has no results.", reasons))
    found = [(name, words) for name, values in facts if (words := text("; ").join(dict.fromkeys(values)))]
    drawn = (fill("macros", "facts", found),) if found else ()
    return Section("what", "What was attacked", (*before, *drawn, *after, reasons))


def title_of(runs: Sequence[Run], otherwise: str, subject: str = "") -> str:
    """Return the title that all configs share; ``otherwise`` and the subject where they share none."""
    titles = {run.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"{otherwise}: {subject or subject_of(runs)}"


def subject_of(runs: Sequence[Run]) -> str:
    """Names of the tables; of the runs where the rows do not name a table."""
    names = dict.fromkeys(row.dataset for run in runs for row in run.rows if row.dataset)
    return ", ".join(names) or ", ".join(run.name for run in runs)


def left_out(runs: Iterable[Run]) -> Mapping[str, str]:
    """Why attacks were left out, by their titles."""
    return {attack_title(name): str(reason) for run in runs for name, reason in run.left_out.items()}


def warnings_section(
    groups: Iterable[tuple[str, Sequence[Row]]], unit: str, gist: Callable[[str], str] = str, redact: bool = False
) -> Section | None:
    """Draw warnings with the places that they came from; None where there were none.

    Args:
        groups: rows by the name of their place.
        unit: what a row is.
        gist: what equal warnings have in common; the first of them is shown.
        redact: show the gist in its place.
    """
    found: dict[str, tuple[str, Counter[str]]] = {}
    totals: Counter[str] = Counter()
    for place, rows in groups:
        totals[place] += len(rows)
        for row in rows:
            for short, warning in {gist(warning): warning for warning in row.warnings}.items():
                found.setdefault(short, (short if redact else warning, Counter()))[1][place] += 1
    listed = [
        (words, [f"{place} ({count} of {counted(totals[place], unit)})" for place, count in places.items()])
        for words, places in found.values()
    ]
    return Section("warnings", "Warnings of the attacks", (fill("sections", "warnings", listed),)) if found else None


def run_section(
    runs: Sequence[Run],
    rows: Sequence[Row],
    contents: str,
    *,
    unit: tuple[str, str] = ("batch", "batches"),
    title: Callable[[Any], str] = lambda row: attack_title(row.attack),
    is_study: bool = False,
) -> Section:
    """Draw the facts of the runs.

    Args:
        runs: the runs of the report.
        rows: rows of attacks, whose time and settings are listed.
        contents: which private values the file contains, as HTML.
        unit: what a row's time was spent on, one and several.
        title: name of a row's attack.
        is_study: whether the runs are studies, which another command runs again.
    """
    timed = by_key((row for row in rows if row.seconds is not None), title)
    spent = {name: (sum(row.seconds or 0.0 for row in same), len(same)) for name, same in timed.items()}
    slowest = sorted(spent.items(), key=lambda pair: -pair[1][0])
    seeds = list(dict.fromkeys(str(row.seed) for row in rows if row.seed is not None))
    settings = dict.fromkeys(
        (title(row), ", ".join(f"{name} {value}" for name, value in row.settings.items()))
        for row in rows
        if row.settings
    )
    of_attacks = names_table("Settings of each attack", settings) if settings else None
    environments = [names_table("Versions and machine", flatten(run.environment)) for run in runs]
    facts = fill("sections", "run", slowest, unit, seeds, of_attacks, runs, environments, is_study, contents)
    return Section("run", "Time, versions, settings", (facts,))


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested mappings as rows of a table; a list becomes its entries one after the other.

    >>> flatten({"date": "2025-01-01", "versions": {"torch": "2.13.0"}})
    [('date', '2025-01-01'), ('versions torch', '2.13.0')]
    """
    rows = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += flatten(value, f"{name} ")
        elif isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            for number, entry in enumerate(value, 1):
                rows += flatten(entry, f"{name} {number} ")
        else:
            rows.append((name, " ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return rows
