"""The last section: time, seeds, settings, versions, how to run it again, and what the file contains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lightleak.core.results import Row
from lightleak.report.compare import by_key
from lightleak.report.format import attack_title, counted, duration
from lightleak.report.page import Block, Code, Details, Heading, Paragraph, Section, names_table, text
from lightleak.report.read import Run

AGAIN = (
    "To run it again with the versions below, save the settings below as <code>config.yaml</code>:",
    "lightleak audit config.yaml --output again",
    "Numbers are bit-identical at equal seeds, versions, threads and device type, and equal within their intervals "
    "elsewhere.",
)
"""How to run an audit again: what to do, the command, and what will be equal."""


def run_section(
    runs: Sequence[Run],
    rows: Sequence[Row],
    contents: str,
    *,
    unit: tuple[str, str] = ("batch", "batches"),
    title: Callable[[Any], str] = lambda row: attack_title(row.attack),
    time: Sequence[Block] | None = None,
    again: tuple[str, str, str] = AGAIN,
) -> Section:
    """Draw the facts of the runs.

    Args:
        runs: the runs of the report.
        rows: rows of attacks, whose time and settings are listed.
        contents: which private values the file contains, as HTML.
        unit: what a row's time was spent on, one and several.
        title: name of a row's attack.
        time: blocks on time, in place of the sentence made from the rows.
        again: how to run it again, as `AGAIN`.
    """
    blocks: list[Block] = [*(_time(rows, unit, title) if time is None else time)]
    seeds = list(dict.fromkeys(str(row.seed) for row in rows if row.seed is not None))
    if seeds:
        blocks.append(Paragraph(f"{'Seed' if len(seeds) == 1 else 'Seeds'}: {', '.join(seeds)}."))
    if any(run.config is not None for run in runs):
        blocks += [
            Paragraph(text(again[0])),
            Code(again[1]),
            Paragraph(again[2], "note"),
        ]
    if settings := _settings(rows, title):
        blocks.append(Details("Settings of each attack", (names_table("Settings of each attack", settings),)))
    for run in runs:
        blocks += [Heading(run.name)] if len(runs) > 1 else []
        blocks += _of_run(run)
    blocks += [Heading("What this file contains"), Paragraph(contents)]
    return Section("run", "Time, versions, settings", tuple(blocks))


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as rows of a table; a list becomes its entries one after the other.

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


def _of_run(run: Run) -> Iterable[Block]:
    if run.environment:
        table = names_table("Versions and machine", flatten(run.environment))
        yield Details("Versions and machine", (table,))
    if run.config is None:
        yield Paragraph("The run folder contains no config.yaml, so its settings are not listed.", "note")
    else:
        yield Details("Settings (config.yaml)", (Code(run.config),))


def _time(rows: Sequence[Row], unit: tuple[str, str], title: Callable[[Any], str]) -> tuple[Block, ...]:
    spent = {
        name: [row.seconds for row in same if row.seconds is not None]
        for name, same in by_key((row for row in rows if row.seconds is not None), title).items()
    }
    slowest = sorted(spent.items(), key=lambda pair: -sum(pair[1]))
    told = "; ".join(f"{name} {duration(sum(times))} for {counted(len(times), *unit)}" for name, times in slowest)
    return (Paragraph(f"Time spent attacking: {told}."),) if told else ()


def _settings(rows: Sequence[Row], title: Callable[[Any], str]) -> list[tuple[str, str]]:
    """Title of the attack and its settings, each distinct pair once."""
    found = [
        (title(row), ", ".join(f"{name} {value}" for name, value in row.settings.items()))
        for row in rows
        if row.settings
    ]
    return list(dict.fromkeys(found))
