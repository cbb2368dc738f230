"""What became of every trial of a study: how many ended how, what failed, who ran what, and a list of all attempts."""

from collections.abc import Iterable

from lightleak.core.grouping import by_key
from lightleak.core.results import TrialRow
from lightleak.report.blocks import Block, Cell, Column, Details, Table
from lightleak.report.format import DASH, counted, duration, joined
from lightleak.report.kinds.study_settings import value_columns
from lightleak.report.kinds.study_trials import Search, reported
from lightleak.report.page import cells_table, fill, folded, line_of, table_of
from lightleak.report.plot.chart import shorten

MOST_LISTED = 300
"""Rows of the list of all trials; ``trials.parquet`` has them all."""

LONGEST_ERROR = 300

BECAME = {
    "complete": "Complete",
    "pruned": "Pruned: stopped early because it fell behind",
    "failed": "Failed for good",
    "running": "Not finished when this was written",
}


def accounting_blocks(search: Search) -> tuple[Block, ...]:
    """Draw what became of every trial, with the list of all attempts folded."""
    done = search.accounting
    ran = by_key((one for one in search.trials if one.worker is not None), lambda one: one.worker or "")
    times = ((who, str(len(same)), duration(sum(one.seconds or 0.0 for one in same))) for who, same in ran.items())
    workers = cells_table(
        "Attempts by worker", ("Worker", "Attempts", "Time in them"), [("", sorted(times))], box="snug"
    )
    return (
        outcomes(search),
        *([fill("study", "repeats", done.repeats)] if done.repeats else []),
        *([fill("study", "failed", failed)] if (failed := errors(search.trials)) else []),
        *(folded("Who ran what", workers) if ran else ()),
        *(_attempts(search) if search.trials else ()),
    )


def outcomes(search: Search) -> Table:
    """Draw what became of the trials, how many, and which; the numbers add up to the trials."""
    done = search.accounting
    lines = [
        (words, Cell(str(len(found)), css="count"), numbers(found) if state in ("failed", "running") else "")
        for state, words in BECAME.items()
        for found in [done.counted[state]]
    ]
    asked = "" if search.study.asked is None else f" of {search.study.asked} asked for"
    n, total = len(done.repeats), f"{counted(done.trials, 'trial')}{asked}"
    if n:
        total += f", from {counted(len(search.trials), 'attempt')} of which {counted(n, 'was', 'were')} run again"
    together = line_of("Together", Cell(str(done.trials), css="count"), total, css="sum")
    head = ("What became of it", "Trials", "Which")
    return cells_table("What became of every trial", head, [("", [*lines, together])], css="words-table", box="snug")


def numbers(trials: Iterable[TrialRow], most: int = 12) -> str:
    """Return a few numbers of trials, and how many more there are.

    >>> numbers([TrialRow(trial=i, state="failed") for i in range(20)], most=2)
    'trials 0, 1 and 18 more'
    """
    known = [str(one.trial) for one in trials]
    if not known:
        return ""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{'trial' if len(known) == 1 else 'trials'} {', '.join(known[:most])}{more}"


def errors(trials: Iterable[TrialRow]) -> list[tuple[str, str]]:
    """Return what went wrong, with the trials it happened to."""
    failed = [one for one in trials if one.state == "failed"]
    silent = "it left no message, like a process that is killed"
    found = by_key(failed, lambda one: shorten(one.error or silent, LONGEST_ERROR))
    return [(numbers(same), said) for said, same in found.items()]


def _attempts(search: Search) -> tuple[Block, ...]:
    """Every attempt, the first `MOST_LISTED` of them."""
    columns = [
        Column[TrialRow]("Trial", lambda one: str(one.trial)),
        Column("State", lambda one: one.state),
        *value_columns(search),
        Column("Time", lambda one: duration(one.seconds)),
        Column("Worker", lambda one: one.worker or DASH),
        Column("Note", lambda one: _note(search, one), css="words"),
    ]
    n = len(search.trials)
    first = fill("macros", "note", f"The first {MOST_LISTED} of {n}; trials.parquet has all of them.")
    table = table_of("Every attempt", columns, [("", search.trials[:MOST_LISTED])], box="tall")
    return (Details("Every attempt", (first, table) if n > MOST_LISTED else (table,)),)


def _note(search: Search, trial: TrialRow) -> str:
    followed = dict(search.accounting.repeats).get(trial.trial)
    last = reported(trial) if trial.state == "pruned" else None
    return joined(
        "the defaults" if trial.is_default else "",
        "" if trial.retry_of is None else f"runs trial {trial.retry_of} again",
        "" if followed is None else f"run again as trial {followed}",
        "" if last is None else f"at {search.study.first.text(last[1])} when stopped at step {last[0]:g}",
        by="; ",
    )
