"""The last section: time, seeds, settings, versions, how to run it again, and what the file contains."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.results import Row
from lightleak.report.blocks import Section
from lightleak.report.format import attack_title
from lightleak.report.page import fill, names_table
from lightleak.report.read import Run


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
    facts = fill(
        "sections",
        "run",
        spent=slowest,
        unit=unit,
        seeds=seeds,
        settings=names_table("Settings of each attack", settings) if settings else None,
        runs=runs,
        environments=[
            names_table("Versions and machine", flatten(run.environment)) if run.environment else None for run in runs
        ],
        is_study=is_study,
        contents=contents,
    )
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
