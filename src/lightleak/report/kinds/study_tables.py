"""The tables of a study: the best trials and the defaults, the space that was searched, what became of every trial."""

from collections.abc import Iterable
from functools import partial

from lightleak.core.grouping import by_key
from lightleak.core.results import TrialRow
from lightleak.report.blocks import Block, Cell, Column, Details, Table
from lightleak.report.format import DASH, counted, duration, joined
from lightleak.report.kinds.study_trials import Parameter, Search, reported
from lightleak.report.kinds.study_words import number_words, parameter_value
from lightleak.report.page import cells_table, fill, folded, line_of, table_of
from lightleak.report.plot.svg import shorten

MOST_BEST = 15

SAMPLERS = {
    "tpe": "TPE: it proposes values like those of the better trials so far",
    "random": "random: every trial is drawn from the space, whatever came before",
    "nsgaii": "NSGA-II: an evolutionary search that keeps and recombines the front",
    "gp": "Gaussian process: it proposes what a fitted surface expects to be best",
    "cmaes": "CMA-ES: an evolutionary search along directions that did well",
    "grid": "grid: all combinations of listed values",
}
SAMPLERS["nsga2"] = SAMPLERS["nsgaii"]
PRUNERS = {
    "hyperband": "Hyperband: many trials get a little of the budget, the better of them more",
    "median": "median: a trial that is below the median of earlier ones at the same step is stopped",
    "none": "none: every trial runs to its end",
}
PRUNERS["nop"] = PRUNERS["none"]

MOST_LISTED = 300
"""Rows of the list of all trials; ``trials.parquet`` has them all."""

LONGEST_ERROR = 300

BECAME = {
    "complete": "Complete",
    "pruned": "Pruned: stopped early because it fell behind",
    "failed": "Failed for good",
    "running": "Not finished when this was written",
}


def best_blocks(search: Search) -> tuple[Block, ...]:
    """Draw the best trials and the defaults, and what each of them set."""
    trials = best_trials(search)
    if not trials:
        return ()
    columns = [
        Column("Trial", lambda one: Cell(str(one.trial), tuple(filter(None, (_role(search, one),))))),
        *value_columns(search),
        Column("Time", lambda one: duration(one.seconds)),
        *(Column(search.names[one.key], partial(parameter_cell, one)) for one in search.study.parameters),
    ]
    title = "The best trials and the defaults"
    table = table_of(title, columns, [("", trials)], css="stack trials", line_css=_line_css)
    more = len(search.front) - MOST_BEST
    note = fill("macros", "note", f"{more} more on the front are in the list of every attempt below.")
    return (table, note) if more > 0 else (table,)


def best_trials(search: Search) -> list[TrialRow]:
    """Return the best trials, or the front of several objectives, and the defaults; none before a trial is complete."""
    if not search.measured:
        return []
    leading = (search.ranked if search.is_single else search.front)[:MOST_BEST]
    wanted = (*leading, search.chosen, *(one for one in search.trials if one.is_default))
    return list({one.trial: one for one in wanted if one is not None}.values())


def _line_css(trial: TrialRow) -> str:
    return "reference" if trial.is_default else ""


def _role(search: Search, trial: TrialRow) -> str:
    chosen = ("best" if search.is_single else "knee") if trial is search.chosen else ""
    state = trial.state if trial.state != "complete" else ""
    return joined(chosen, "defaults" if trial.is_default else "", state)


def value_columns(search: Search) -> list[Column[TrialRow]]:
    """Return a column for each objective."""
    return [Column(goal.title, goal.of) for goal in search.study.objectives]


def parameter_cell(parameter: Parameter, trial: TrialRow) -> Cell:
    """Return a value of a trial against the default, with an arrow for a number above or below it.

    >>> trial = TrialRow(trial=0, state="complete", parameters={"steps": 3000})
    >>> parameter_cell(Parameter("steps", "int", default=1500), trial).text
    '3000 ▲'
    """
    if parameter.key not in trial.parameters:
        return Cell(DASH, css="unchanged")
    value, default = trial.parameters[parameter.key], parameter.default
    if not differs(value, default):
        return Cell(parameter_value(value), css="unchanged")
    is_number = parameter.kind != "choice" and value is not None
    return Cell(parameter_value(value) + ((" ▲" if value > default else " ▼") if is_number else ""), css="changed")


def differs(value: object, default: object) -> bool:
    """Return whether a value is another one than the default; false where there is no default.

    >>> differs(1, 1.0), differs(0.1, 0.2), differs(True, 1), differs(3, None)
    (False, True, True, False)
    """
    if default is None:
        return False
    return isinstance(value, bool) != isinstance(default, bool) or bool(value != default)


def space_blocks(search: Search) -> tuple[Block, ...]:
    """Draw how the study was set up; what the file does not say is left out."""
    study = search.study
    goals = "; ".join(f"{goal.direction} {goal.words}" for goal in study.objectives)
    entries = {
        "Data and network": study.setting,
        "Objective" if search.is_single else "Objectives": goals,
        "Trials asked for": None if study.asked is None else str(study.asked),
        "What each trial may spend": study.budget,
        "How trials are proposed": _known(SAMPLERS, study.sampler),
        "How trials are stopped early": _known(PRUNERS, study.pruner),
        "Validation data": study.validation,
        "Held-out data": study.held_out.words if study.held_out else study.uncompared or "not used yet",
    }
    facts = fill("macros", "facts", [(name, value) for name, value in entries.items() if value])
    return (facts, space_table(search)) if study.parameters else (facts,)


def _known(words: dict[str, str], name: str | None) -> str:
    return words.get((name or "").lower().replace("-", "").replace("_", ""), name or "not stated")


def space_table(search: Search) -> Table:
    """Draw all parameters in the order of the config: what they may be, their default and what is proposed."""
    chosen = search.chosen
    columns: list[Column[Parameter]] = [
        Column("Setting", lambda one: fill("study", "setting", search.names[one.key], one.key)),
        Column("May be", range_words),
        Column("Default", lambda one: DASH if one.default is None else parameter_value(one.default)),
        Column("Proposed", lambda one: DASH if chosen is None else parameter_cell(one, chosen).text.rstrip(" ▲▼")),
        Column("Has a value", lambda one: one.when or "always"),
    ]
    return table_of("The space that was searched", columns, [("", search.study.parameters)], css="words-table")


def range_words(parameter: Parameter) -> str:
    """Return what a parameter may be.

    >>> range_words(Parameter("rate", "float", 0.005, 0.3, True)), range_words(Parameter("on", "choice", of=(True, 3)))
    ('0.005 to 0.3, logarithmic', 'true, 3')
    """
    if parameter.kind == "choice":
        return ", ".join(map(parameter_value, parameter.of)) or "not stated"
    if parameter.low is None or parameter.high is None:
        return "not stated"
    whole, log = "whole numbers" if parameter.kind == "int" else "", "logarithmic" if parameter.log else ""
    return joined(f"{number_words(parameter.low)} to {number_words(parameter.high)}", whole, log)


def accounting_blocks(search: Search) -> tuple[Block, ...]:
    """Draw what became of every trial, with the list of all attempts folded."""
    ran = by_key((one for one in search.trials if one.worker is not None), lambda one: one.worker or "")
    times = ((who, str(len(same)), duration(sum(one.seconds or 0.0 for one in same))) for who, same in ran.items())
    head = ("Worker", "Attempts", "Time in them")
    workers = cells_table("Attempts by worker", head, [("", sorted(times))], box="snug")
    return (
        outcomes(search),
        *([fill("study", "repeats", search.repeats)] if search.repeats else []),
        *([fill("study", "failed", failed)] if (failed := errors(search.trials)) else []),
        *(folded("Who ran what", workers) if ran else ()),
        *(_attempts(search) if search.trials else ()),
    )


def outcomes(search: Search) -> Table:
    """Draw what became of the trials, how many, and which; the numbers add up to the trials."""
    ended = by_key((chain[-1] for chain in search.chains), lambda one: one.state)
    lines = [
        (words, Cell(str(len(found)), css="count"), numbers(found) if state in ("failed", "running") else "")
        for state, words in BECAME.items()
        for found in [ended.get(state, [])]
    ]
    asked = "" if search.study.asked is None else f" of {search.study.asked} asked for"
    n, total = len(search.repeats), f"{counted(len(search.chains), 'trial')}{asked}"
    if n:
        total += f", from {counted(len(search.trials), 'attempt')} of which {counted(n, 'was', 'were')} run again"
    together = line_of("Together", Cell(str(len(search.chains)), css="count"), total, css="sum")
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
    followed = dict(search.repeats).get(trial.trial)
    last = reported(trial) if trial.state == "pruned" else None
    return joined(
        "the defaults" if trial.is_default else "",
        "" if trial.retry_of is None else f"runs trial {trial.retry_of} again",
        "" if followed is None else f"run again as trial {followed}",
        "" if last is None else f"at {search.study.first.text(last[1])} when stopped at step {last[0]:g}",
        by="; ",
    )
