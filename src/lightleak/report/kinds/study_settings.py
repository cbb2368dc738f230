"""The settings of a study: those of the best trials and the defaults, and the space that was searched."""

from functools import partial

from lightleak.core.results import TrialRow
from lightleak.report.blocks import Block, Cell, Column, Table
from lightleak.report.format import DASH, duration, joined
from lightleak.report.kinds.study_trials import Parameter, Search
from lightleak.report.kinds.study_words import number_words, parameter_value
from lightleak.report.page import fill, table_of

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
