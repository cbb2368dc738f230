"""A tuning study: what was searched, what was best, and whether held-out data confirm it."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from lightleak.core.results import TrialRow
from lightleak.report.blocks import Block, Cell, Column, Details, Heading, Page, Panels, Section, Table
from lightleak.report.charts import EstimateRow, bar_figure
from lightleak.report.compare import by_key
from lightleak.report.format import DASH, counted, duration, joined
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.study_charts import COMPLETE, fronts, history, legend, slices
from lightleak.report.kinds.study_trials import (
    Mean,
    Objective,
    Parameter,
    Search,
    check_comparable,
    number_words,
    parameter_value,
    read_search,
    reported,
)
from lightleak.report.page import figures, fill, folded, table_of
from lightleak.report.plot.chart import shorten
from lightleak.report.read import Run
from lightleak.report.sections.run_facts import run_section

MOST_BARS, MOST_BEST = 12, 15
MOST_LISTED = 300
"""Rows of the list of all trials; ``trials.parquet`` has them all."""

LONGEST_ERROR, LONGEST_NAME = 300, 40
FEW_TRIALS = 100

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
BECAME = {
    "complete": "Complete",
    "pruned": "Pruned: stopped early because it fell behind",
    "failed": "Failed for good",
    "running": "Not finished when this was written",
}
PAIRED, TOGETHER = "Tuned minus defaults, paired", "Together"
"""Lines that sum up the lines above them."""

CONTENTS = (
    "No record and no value of a record: scores of trials, the settings that were tried, and the messages of those "
    "that failed."
)

Trials = Iterable[TrialRow]


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of studies; it holds no value of a row, so that ``redact`` changes nothing.

    Raises:
        UsageError: a study cannot be read, or they have different objectives.
    """
    searches = [read_search(run) for run in runs]
    check_comparable(searches)
    subject = "; ".join(dict.fromkeys(one.study.setting or one.run.name for one in searches))
    titles = {run.title for run in runs}

    def each(name: str, title: str, draw: Callable[[Search], Sequence[Block]], words: str = "") -> Section | None:
        """A section with blocks of each study, under its name where there are several; None where there are none."""
        blocks: list[Block] = []
        for search in searches:
            if drawn := draw(search):
                blocks += [Heading(search.run.name)] if len(searches) > 1 else []
                blocks += drawn
        around = [fill("study", part, words or name) for part in ("before", "after")]
        return Section(name, title, (around[0], *blocks, around[1])) if blocks else None

    front = "" if searches[0].is_single else "front"
    return Page(
        title=(titles.pop() if len(titles) == 1 else None) or f"Tuning study: {subject}",
        subject=subject,
        genre="tuning study",
        sections=[
            Section("summary", "In plain language", (fill("study", "summary", searches),), "summary"),
            each("held-out", "Held-out comparison", _held_out),
            each("trials", "The front" if front else "All trials", fronts if front else _history, front),
            each("best", f"The {'front' if front else 'best trials'} and the defaults", _best),
            each("importance", "What mattered", _importance),
            each("slices", "Setting by setting", _slices),
            each("accounting", "Every trial accounted for", _accounting),
            each("what", "What was searched", _space),
            run_section(runs, (), CONTENTS, is_study=True),
        ],
    )


def _history(search: Search) -> tuple[Block, ...]:
    drawn = history(search)
    return () if drawn is None else (drawn,)


def _held_out(search: Search) -> tuple[Block, ...]:
    held_out = search.study.held_out
    if held_out is None:
        return ()
    goal = search.study.objective(held_out.metric)
    lines = [("Tuned", held_out.best), ("Defaults", held_out.default), (PAIRED, held_out.difference)]
    columns: list[Column[tuple[str, Mean]]] = [
        Column("Settings", lambda line: line[0]),
        Column("Mean", lambda line: (goal.change if line[0] is PAIRED else goal.text)(line[1].mean)),
        Column("95% interval", lambda line: goal.interval(line[1], line[0] is PAIRED)),
        Column("Time each", lambda line: "" if line[0] is PAIRED else duration(line[1].seconds)),
    ]
    table = table_of(
        "Tuned settings against the defaults on held-out data",
        columns,
        [("", lines)],
        css="wrap",
        box="snug",
        line_css=lambda line: "sum" if line[0] is PAIRED else "",
    )
    return table, fill("study", "held_out", goal, held_out)


def _best(search: Search) -> tuple[Block, ...]:
    trials = best_trials(search)
    if not trials:
        return ()
    columns = [
        Column("Trial", lambda one: Cell(str(one.trial), tuple(filter(None, (_role(search, one),))))),
        *_value_columns(search),
        Column("Time", lambda one: duration(one.seconds)),
        *(Column(search.names[one.key], partial(parameter_cell, one)) for one in search.study.parameters),
    ]
    table = table_of(
        "The best trials and the defaults",
        columns,
        [("", trials)],
        css="stack trials",
        line_css=lambda one: "reference" if one.is_default else "",
    )
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


def _role(search: Search, trial: TrialRow) -> str:
    chosen = ("best" if search.is_single else "knee") if trial is search.chosen else ""
    state = trial.state if trial.state != "complete" else ""
    return joined(chosen, "defaults" if trial.is_default else "", state)


def _value_columns(search: Search) -> list[Column[TrialRow]]:
    return [Column(goal.title, partial(_value, goal)) for goal in search.study.objectives]


def _value(goal: Objective, trial: TrialRow) -> str:
    return goal.text(trial.values.get(goal.name))


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


def _importance(search: Search) -> tuple[Block, ...]:
    panels = []
    for goal in search.study.objectives:
        shares = search.study.importance.get(goal.name, {})
        known = [one for one in search.by_importance(goal) if one.key in shares]
        bars = [
            EstimateRow(shorten(search.names[one.key], LONGEST_NAME), Estimate(shares[one.key]), COMPLETE)
            for one in known[:MOST_BARS]
        ]
        if bars:
            name = f"Share of the differences in {goal.words} that goes with each setting"
            caption = f"{len(known) - len(bars)} more matter less." if len(known) > len(bars) else ""
            title = "" if search.is_single else goal.title
            panels.append(bar_figure(name, bars, None, title, caption))
    n = len(search.measured)
    return (*figures(panels), fill("study", "importance", n, n < FEW_TRIALS)) if panels else ()


def _slices(search: Search) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for goal in search.study.objectives:
        if drawn := slices(search, goal):
            blocks += [] if search.is_single else [Heading(goal.title)]
            blocks.append(Panels(drawn, "slice-panels"))
    valued = [one for one in search.trials if one.state in ("complete", "pruned")]
    return (legend(search, valued), *blocks) if blocks else ()


def _accounting(search: Search) -> tuple[Block, ...]:
    done, blocks = search.accounting, [outcomes(search)]
    ran = by_key((one for one in search.trials if one.worker is not None), lambda one: one.worker)
    return (
        *blocks,
        *([fill("study", "repeats", done.repeats)] if done.repeats else []),
        *([fill("study", "failed", failed)] if (failed := errors(search.trials)) else []),
        *(folded("Who ran what", workers(ran.values())) if ran else ()),
        *(_attempts(search) if search.trials else ()),
    )


def outcomes(search: Search) -> Table:
    """Draw what became of the trials, how many, and which; the numbers add up to the trials."""
    done = search.accounting
    lines = [
        (words, len(found), numbers(found) if state in ("failed", "running") else "")
        for state, words in BECAME.items()
        for found in [done.counted[state]]
    ]
    asked = "" if search.study.asked is None else f" of {search.study.asked} asked for"
    n, total = len(done.repeats), f"{counted(done.trials, 'trial')}{asked}"
    if n:
        total += f", from {counted(len(search.trials), 'attempt')} of which {counted(n, 'was', 'were')} run again"
    columns: list[Column[tuple[str, int, str]]] = [
        Column("What became of it", lambda line: line[0]),
        Column("Trials", lambda line: str(line[1]), css="count"),
        Column("Which", lambda line: line[2]),
    ]
    return table_of(
        "What became of every trial",
        columns,
        [("", [*lines, (TOGETHER, done.trials, total)])],
        css="words-table",
        box="snug",
        line_css=lambda line: "sum" if line[0] == TOGETHER else "",
    )


def numbers(trials: Trials, most: int = 12) -> str:
    """Return a few numbers of trials, and how many more there are.

    >>> numbers([TrialRow(trial=i, state="failed") for i in range(20)], most=2)
    'trials 0, 1 and 18 more'
    """
    known = [str(one.trial) for one in trials]
    if not known:
        return ""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{'trial' if len(known) == 1 else 'trials'} {', '.join(known[:most])}{more}"


def errors(trials: Trials) -> list[tuple[str, str]]:
    """Return what went wrong, with the trials it happened to."""
    failed = [one for one in trials if one.state == "failed"]
    silent = "it left no message, like a process that is killed"
    found = by_key(failed, lambda one: shorten(one.error or silent, LONGEST_ERROR))
    return [(numbers(same), said) for said, same in found.items()]


def workers(ran: Iterable[Sequence[TrialRow]]) -> Table:
    """Draw which process ran how many attempts, and for how long."""
    columns: list[Column[Sequence[TrialRow]]] = [
        Column("Worker", lambda same: same[0].worker or ""),
        Column("Attempts", lambda same: str(len(same))),
        Column("Time in them", lambda same: duration(sum(one.seconds or 0.0 for one in same))),
    ]
    by_name = sorted(ran, key=lambda same: same[0].worker or "")
    return table_of("Attempts by worker", columns, [("", by_name)], box="snug")


def _attempts(search: Search) -> tuple[Block, ...]:
    """Every attempt, the first `MOST_LISTED` of them."""
    columns = [
        Column[TrialRow]("Trial", lambda one: str(one.trial)),
        Column("State", lambda one: one.state),
        *_value_columns(search),
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


def _space(search: Search) -> tuple[Block, ...]:
    """How the study was set up; what the file does not say is left out."""
    study = search.study
    entries = {
        "Data and network": study.setting,
        "Objective" if search.is_single else "Objectives": "; ".join(
            f"{goal.direction} {goal.words}" for goal in study.objectives
        ),
        "Trials asked for": None if study.asked is None else str(study.asked),
        "What each trial may spend": study.budget,
        "How trials are proposed": _known(SAMPLERS, study.sampler),
        "How trials are stopped early": _known(PRUNERS, study.pruner),
        "Validation data": study.validation,
        "Held-out data": "not used yet" if study.held_out is None else study.held_out.words,
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
