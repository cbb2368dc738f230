"""What the page of a study shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lightleak.report.charts import Bar, bar_chart
from lightleak.report.estimate import Estimate
from lightleak.report.page_head import page_head
from lightleak.report.tuning.charts import (
    COMPLETE,
    MOST_SLICES,
    LegendEntry,
    Plot,
    Slice,
    by_importance,
    history_plot,
    legend,
    objective_pairs,
    pareto_plot,
    slices,
)
from lightleak.report.tuning.headline import headline
from lightleak.report.tuning.result import HeldOut, Objective
from lightleak.report.tuning.run_folder import check_comparable
from lightleak.report.tuning.study import Accounting, TuningRun, account
from lightleak.report.tuning.tables import (
    MOST_BEST,
    MOST_LISTED,
    AttemptRow,
    SpaceRow,
    TrialRow,
    attempt_rows,
    best_rows,
    errors,
    outcome_rows,
    space_rows,
    total_words,
    worker_rows,
)
from lightleak.report.tuning.wording import (
    change_of,
    direction_word,
    interval_of,
    objective_title,
    pruner_words,
    sampler_words,
    short_names,
    shorten,
    value_of,
)
from lightleak.report.wording import duration

TEMPLATE = "tuning.html.j2"
MOST_BARS = 12


@dataclass(frozen=True)
class Titled:
    """A plot under a title, or a table of numbers."""

    title: str
    plot: Plot


@dataclass(frozen=True)
class OfObjective:
    """What is shown for each objective.

    Attributes:
        title: of the objective; empty where there is one alone.
        importance: bars; None where importance is not known.
        left_out: parameters without a bar.
        slices: small plots.
    """

    title: str
    importance: Markup | None
    left_out: int
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Section:
    """Everything shown of one study; ``title`` is empty for the only one."""

    title: str
    run: TuningRun
    plots: tuple[Titled, ...]
    objectives: tuple[OfObjective, ...]
    marks: list[LegendEntry]
    parameters: tuple[str, ...]
    best: tuple[TrialRow, ...]
    not_shown: int
    held_out: tuple[tuple[str, str, str, str], ...]
    done: Accounting
    total: str
    outcomes: list[tuple[str, int, str]]
    errors: list[tuple[str, str]]
    workers: list[tuple[str, int, str]]
    attempts: tuple[AttemptRow, ...]
    space: tuple[SpaceRow, ...]
    facts: list[tuple[str, str]]

    @property
    def has_importance(self) -> bool:
        """Whether any objective has bars."""
        return any(one.importance is not None for one in self.objectives)

    @property
    def has_slices(self) -> bool:
        """Whether any objective has small plots."""
        return any(one.slices for one in self.objectives)


def tuning_context(runs: Sequence[TuningRun], redact: bool = False) -> dict[str, Any]:
    """Everything the template `TEMPLATE` shows; it holds no value of a row, so that ``redact`` changes nothing.

    Raises:
        UsageError: the studies have different objectives.
    """
    check_comparable(runs)
    return {
        **page_head(runs, _title(runs), _subject(runs), redact),
        "headline": headline(runs),
        "is_single": runs[0].is_single,
        "objective_titles": [objective_title(one) for one in runs[0].study.objectives],
        "sections": [_section(run, len(runs) > 1) for run in runs],
        "most_slices": MOST_SLICES,
        "most_listed": MOST_LISTED,
    }


def _title(runs: Sequence[TuningRun]) -> str:
    titles = {run.folder.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"Tuning study: {_subject(runs)}"


def _subject(runs: Sequence[TuningRun]) -> str:
    return "; ".join(dict.fromkeys(run.study.setting or run.folder.name for run in runs))


def _section(run: TuningRun, is_one_of_several: bool) -> Section:
    done, names = account(run.trials, run.study.asked), short_names(run.study.parameters)
    valued = [one for one in run.trials if one.state in ("complete", "pruned")]
    return Section(
        title=run.folder.name if is_one_of_several else "",
        run=run,
        plots=_plots(run),
        objectives=tuple(_of_objective(run, one) for one in run.study.objectives),
        marks=legend(run, valued),
        parameters=tuple(names[one.key] for one in run.study.parameters),
        best=best_rows(run),
        not_shown=max(0, len(run.front) - MOST_BEST),
        held_out=_held_out_rows(run, run.study.held_out) if run.study.held_out is not None else (),
        done=done,
        total=total_words(done),
        outcomes=outcome_rows(done),
        errors=errors(run),
        workers=worker_rows(run.trials),
        attempts=attempt_rows(run, done),
        space=space_rows(run),
        facts=_facts(run),
    )


def _plots(run: TuningRun) -> tuple[Titled, ...]:
    if run.is_single:
        objective = run.study.objectives[0]
        plot = history_plot(f"{objective.words} of {len(run.trials)} trials by their number", run)
        found = [] if plot is None else [Titled(_axis_title(objective), plot)]
        return tuple(found)
    drawn = [
        (upwards, pareto_plot(f"{upwards.words} against {across.words} of each trial", run, across, upwards))
        for across, upwards in objective_pairs(run)
    ]
    return tuple(Titled(_axis_title(upwards), plot) for upwards, plot in drawn if plot is not None)


def _axis_title(objective: Objective) -> str:
    return f"{objective_title(objective)} ({direction_word(objective)} is best)"


def _of_objective(run: TuningRun, objective: Objective) -> OfObjective:
    shares, names = run.study.importance.get(objective.name, {}), short_names(run.study.parameters)
    known = [one for one in by_importance(run, objective) if one.key in shares]
    bars = [Bar(shorten(names[one.key]), Estimate(shares[one.key]), COMPLETE) for one in known[:MOST_BARS]]
    name = f"Share of the differences in {objective.words} that goes with each setting"
    return OfObjective(
        title="" if run.is_single else objective_title(objective),
        importance=bar_chart(name, bars, None) if bars else None,
        left_out=len(known) - len(bars),
        slices=slices(run, objective),
    )


def _held_out_rows(run: TuningRun, held_out: HeldOut) -> tuple[tuple[str, str, str, str], ...]:
    """Which settings, mean, interval, and time."""
    objective = run.study.objective(held_out.metric)
    return (
        (
            "Tuned",
            value_of(objective, held_out.best.mean),
            interval_of(objective, held_out.best),
            duration(held_out.best_seconds),
        ),
        (
            "Defaults",
            value_of(objective, held_out.default.mean),
            interval_of(objective, held_out.default),
            duration(held_out.default_seconds),
        ),
        (
            "Tuned minus defaults, paired",
            change_of(objective, held_out.difference.mean),
            interval_of(objective, held_out.difference, True),
            "",
        ),
    )


def _facts(run: TuningRun) -> list[tuple[str, str]]:
    """How the study was set up; what the file does not say is left out."""
    study = run.study
    aims = "; ".join(f"{'maximise' if one.maximise else 'minimise'} {one.words}" for one in study.objectives)
    held_out = None if study.held_out is None else study.held_out.words
    listed = [
        ("Data and network", study.setting),
        ("Objective" if run.is_single else "Objectives", aims),
        ("Trials asked for", None if study.asked is None else str(study.asked)),
        ("What each trial may spend", study.budget),
        ("How trials are proposed", sampler_words(study.sampler)),
        ("How trials are stopped early", pruner_words(study.pruner)),
        ("Validation data", study.validation),
        ("Held-out data", held_out or "not used yet"),
    ]
    return [(name, value) for name, value in listed if value]
