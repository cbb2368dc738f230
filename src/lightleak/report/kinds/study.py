"""A tuning study: what was searched, what was best, and whether held-out data confirm it."""

from collections.abc import Callable, Sequence

from lightleak.report.blocks import Block, Heading, Page, Panels, Section
from lightleak.report.charts import EstimateRow, bar_figure
from lightleak.report.format import duration
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.study_charts import COMPLETE, fronts, history, legend, slices
from lightleak.report.kinds.study_tables import accounting_blocks, best_blocks, space_blocks
from lightleak.report.kinds.study_trials import Search, check_comparable, read_search
from lightleak.report.page import cells_table, figures, fill, line_of
from lightleak.report.plot.svg import shorten
from lightleak.report.read import Run
from lightleak.report.sections.subject_and_run import run_section, title_of

MOST_BARS = 12
LONGEST_NAME = 40
FEW_TRIALS = 100

CONTENTS = (
    "No record and no value of a record: scores of trials, the settings that were tried, and the messages of those "
    "that failed."
)


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of studies; it holds no value of a row, so that ``redact`` changes nothing.

    Raises:
        UsageError: a study cannot be read, or they have different objectives.
    """
    searches = [read_search(run) for run in runs]
    check_comparable(searches)
    subject = "; ".join(dict.fromkeys(one.study.setting or one.run.name for one in searches))

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
        title=title_of(runs, "Tuning study", subject),
        subject=subject,
        genre="tuning study",
        sections=[
            Section("summary", "In plain language", (fill("study", "summary", searches),), "summary"),
            each("held-out", "Held-out comparison", _held_out),
            each("trials", "The front" if front else "All trials", fronts if front else history, front),
            each("best", f"The {'front' if front else 'best trials'} and the defaults", best_blocks),
            each("importance", "What mattered", _importance),
            each("slices", "Setting by setting", _slices),
            each("accounting", "Every trial accounted for", accounting_blocks),
            each("what", "What was searched", space_blocks),
            run_section(runs, (), CONTENTS, is_study=True),
        ],
    )


def _held_out(search: Search) -> tuple[Block, ...]:
    held_out = search.study.held_out
    if held_out is None:
        return ()
    goal, change = search.study.objective(held_out.metric), held_out.difference
    lines = [
        line_of(name, goal.text(one.mean), goal.interval(one), duration(one.seconds))
        for name, one in (("Tuned", held_out.best), ("Defaults", held_out.default))
    ]
    paired = ("Tuned minus defaults, paired", goal.change(change.mean), goal.interval(change, is_change=True), "")
    label = "Tuned settings against the defaults on held-out data"
    head = ("Settings", "Mean", "95% interval", "Time each")
    table = cells_table(label, head, [("", [*lines, line_of(*paired, css="sum")])], css="wrap", box="snug")
    return table, fill("study", "held_out", goal, held_out)


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
