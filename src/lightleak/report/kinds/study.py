"""A tuning study: what was searched, what was best, and whether held-out data confirm it."""

from collections.abc import Callable, Iterable, Sequence

from lightleak.core.results import TrialRow
from lightleak.report.charts import Bar, bar_chart
from lightleak.report.compare import by_key
from lightleak.report.format import DASH, capital, counted, duration, joined, listed
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.study_charts import COMPLETE, MOST_SLICES, fronts, history, legend, slices
from lightleak.report.kinds.study_trials import (
    Accounting,
    HeldOut,
    Mean,
    Objective,
    Parameter,
    Search,
    account,
    check_comparable,
    number_words,
    parameter_value,
    read_search,
    reported,
)
from lightleak.report.page import (
    Block,
    Bullets,
    Cell,
    Column,
    Details,
    Facts,
    Figure,
    Heading,
    Page,
    Panels,
    Paragraph,
    Section,
    Table,
    Tile,
    figures,
    folded,
    table_of,
    text,
)
from lightleak.report.plot.chart import shorten
from lightleak.report.read import Run
from lightleak.report.sections.run_facts import run_section
from lightleak.report.sections.summary import Summary, summary_section

MOST_BARS, MOST_BEST = 12, 15
MOST_LISTED = 300
"""Rows of the list of all trials; ``trials.parquet`` has them all."""

LONGEST_ERROR, LONGEST_NAME = 300, 40
FEW_TRIALS = 100

SAMPLERS = {
    "tpe": "TPE: it proposes values like those of the better trials so far",
    "random": "random: every trial is drawn from the space, whatever came before",
    "nsgaii": "NSGA-II: an evolutionary search that keeps and recombines the front",
    "nsga2": "NSGA-II: an evolutionary search that keeps and recombines the front",
    "gp": "Gaussian process: it proposes what a fitted surface expects to be best",
    "cmaes": "CMA-ES: an evolutionary search along directions that did well",
    "grid": "grid: all combinations of listed values",
}
PRUNERS = {
    "hyperband": "Hyperband: many trials get a little of the budget, the better of them more",
    "median": "median: a trial that is below the median of earlier ones at the same step is stopped",
    "none": "none: every trial runs to its end",
    "nop": "none: every trial runs to its end",
}
BECAME = {
    "complete": "Complete",
    "pruned": "Pruned: stopped early because it fell behind",
    "failed": "Failed for good",
    "running": "Not finished when this was written",
}
LIMITS = (
    "A score on validation data is not what the proposed settings will reach. They were picked because they scored "
    "best there, and part of being the best of many is luck. Only the held-out comparison counts.",
    "It holds for this table, network and budget. What wins here may lose elsewhere, and a larger budget may want "
    "other settings.",
    "That nothing better was found does not mean that there is nothing better: a few dozen trials leave most of a "
    "space unseen.",
)
OF_HELD_OUT = (
    "The interval of the held-out comparison describes other draws of the same table with the same network, not other "
    "tables."
)
OF_FRONT = (
    "The front is drawn from single validation scores: trials that lie close together on it could change places if "
    "they were run again."
)
AGAIN = (
    "To search again with the versions below, save the settings below as <code>config.yaml</code>:",
    "lightleak tune config.yaml --output again",
    "A trial with the same settings gives the same value. Which settings are proposed depends on which trials had "
    "finished before, so that a study with several workers takes another course each time.",
)
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
    return Page(
        title=(titles.pop() if len(titles) == 1 else None) or f"Tuning study: {subject}",
        subject=subject,
        genre="tuning study",
        sections=[
            summary_section(_summary(searches)),
            _each("held-out", "Held-out comparison", searches, _held_out, HELD_OUT),
            _trials(searches),
            _best(searches),
            _each("importance", "What mattered", searches, _importance, IMPORTANCE),
            _each("slices", "Setting by setting", searches, _slices, SLICES),
            _each("accounting", "Every trial accounted for", searches, _accounting),
            _each("what", "What was searched", searches, _space, after=SEARCHED),
            run_section(runs, (), CONTENTS, time=(), again=AGAIN),
        ],
    )


HELD_OUT = (
    "The proposed settings and the defaults were run once more on data that no trial was scored on, both on the same. "
    "This is the comparison that counts: the scores of the search itself are optimistic for what it picked."
)
HISTORY = (
    "Each mark is a trial, scored on validation data, in the order in which they began. The line is the best so far: "
    "where it has long been flat, more trials are unlikely to help."
)
FRONT = (
    "Each mark is a trial, scored on validation data. Ringed trials are on the front: no other is as good in every "
    "objective and better in one. The knee is where giving up a little of one objective stops gaining much of another."
)
IMPORTANCE = (
    "How much of the differences between trials goes with each setting, within the ranges that were searched, not in "
    "general. From few trials it is rough, and two settings that act together share it arbitrarily."
)
SLICES = (
    f"The same trials by the value of each setting, the most important first, at most {MOST_SLICES}. All other "
    "settings vary too, so a cloud without a slope does not mean that a setting has no effect. Trials crowd where the "
    "search expected the best."
)
SEARCHED = (
    "Trials are scored on the validation data alone, and no number measured there is a result. A search learns what "
    "happens to suit the data it is scored on, so results come from held-out data that it never touches. The defaults "
    "are the values that the config names, those of the paper where there is one; they are a trial like the others."
)


def _each(
    name: str,
    title: str,
    searches: Sequence[Search],
    draw: Callable[[Search], Sequence[Block]],
    before: str = "",
    after: str = "",
) -> Section | None:
    """A section with blocks of each study, under its name where there are several; None where there are none."""
    blocks: list[Block] = []
    for search in searches:
        if drawn := draw(search):
            blocks += [Heading(search.run.name)] if len(searches) > 1 else []
            blocks += drawn
    if not blocks:
        return None
    first = [Paragraph(before)] if before else []
    return Section(name, title, (*first, *blocks, *([Paragraph(after, "note")] if after else [])))


def _summary(searches: Sequence[Search]) -> Summary:
    """Say what was found and whether held-out data confirm it, for one study or for each of several."""
    of_held_out = [OF_HELD_OUT] if any(one.study.held_out for one in searches) else []
    of_front = [OF_FRONT] if any(one.front for one in searches) else []
    notes = (LIMITS[0], *of_held_out, *LIMITS[1:], *of_front)
    if len(searches) > 1:
        conclusions = tuple(f"{one.run.name}: {_conclusion(one)}" for one in searches)
        return Summary((_of_several(searches),), terms=conclusions, notes=notes)
    search = searches[0]
    sentences = (_conclusion(search), _searched(search), _on_validation(search), _time(search))
    return Summary(sentences, _tiles(search), notes=notes)


def _conclusion(search: Search) -> str:
    """The one sentence to remember."""
    held_out, chosen, default = search.study.held_out, search.chosen, search.default
    if held_out is not None and (default is None or chosen is not default):
        return _confirmed(search, held_out)
    if chosen is None:
        ended = sum(one.state in ("pruned", "failed") for one in search.trials)
        if search.measured:
            return "Trials have finished, but no knee of their front is named yet, so there is nothing to propose."
        seen = f"{counted(ended, 'trial')} ended early" if ended else "no trial has ended"
        return f"Nothing can be said yet: no trial is complete ({seen})."
    proposed, reached = _proposed(search), _values(search, chosen)
    if default is None:
        return f"The {proposed} so far reaches {reached} on validation data. The defaults have not been measured yet."
    if chosen is default:
        return (
            f"On validation data the {proposed} is the trial of the defaults itself, with {reached}: there is nothing "
            "to change."
        )
    return (
        f"On validation data the {proposed} reaches {reached}, the defaults {_values(search, default)}. This may be "
        "luck: there is no comparison on held-out data yet."
    )


def _proposed(search: Search) -> str:
    return "best trial" if search.is_single else "knee of the front"


def _confirmed(search: Search, held_out: HeldOut) -> str:
    objective, change = search.study.objective(held_out.metric), held_out.difference
    within = "" if search.is_single else f" in {objective.title.lower()}"
    said = {
        "better": f"the tuned settings are measurably better than the defaults{within}",
        "worse": f"the tuned settings are worse than the defaults{within}",
        "not distinguishable": f"the tuned settings cannot be distinguished from the defaults{within}",
        "no interval": f"whether the tuned settings are better{within} is not known, as there is no interval",
    }[objective.verdict(change)]
    ends = objective.interval(change, True)
    spread = "without an interval" if ends == DASH else f"(95% interval {ends})"
    return (
        f"On held-out data, which no trial was scored on, {said}: {objective.title.lower()} "
        f"{objective.text(held_out.best.mean)} against {objective.text(held_out.default.mean)}, a difference of "
        f"{objective.change(change.mean)} {spread}."
    )


def _of_several(searches: Sequence[Search]) -> str:
    known = [(one.study, one.study.held_out) for one in searches if one.study.held_out is not None]
    if not known:
        return f"Of {len(searches)} studies none has been compared with the defaults on held-out data yet."
    verdicts = [study.objective(held_out.metric).verdict(held_out.difference) for study, held_out in known]
    worse = f"{verdicts.count('worse')} found worse ones" if "worse" in verdicts else ""
    better = f"{verdicts.count('better')} found settings that are measurably better than the defaults"
    said = joined(better, worse, by=" and ")
    return f"{len(searches)} studies: of {len(known)} that were compared on held-out data, {said}."


def _searched(search: Search) -> str:
    study, done = search.study, account(search.trials)
    aims = listed(f"the {one.best} {one.words}" for one in study.objectives)
    counts = ", ".join(f"{len(found)} {state}" for state, found in done.counted.items() if found)
    of = f" of {study.asked} asked for" if study.asked not in (None, done.trials) else ""
    ended = f" ({counts})" if counts else ""
    what = counted(len(study.parameters), "setting")
    return f"Searched: {what}, for {aims}, in {counted(done.trials, 'trial')}{of}{ended}."


def _on_validation(search: Search) -> str:
    """What the search itself saw, where the conclusion is from held-out data, and the front of several objectives."""
    parts, chosen, default = [], search.chosen, search.default
    if not search.is_single and search.front:
        are = counted(len(search.front), "trial is", "trials are")
        parts.append(f"{are} on the front: no other was as good in every objective and better in one.")
        if default is not None:
            parts.append(f"The defaults {'are on it too' if default.on_front else 'are not: some trial beats them'}.")
    if search.study.held_out is not None and chosen is not None:
        against = "" if default is None else f", the defaults {_values(search, default)}"
        parts.append(
            f"On validation data, which the search has used, the {_proposed(search)} ({chosen.trial}) reached "
            f"{_values(search, chosen)}{against}; it was picked for that, so the figure is optimistic."
        )
    return " ".join(parts)


def _time(search: Search) -> str:
    """Whether the comparison was at equal time."""
    held_out = search.study.held_out
    if held_out is None or not held_out.default.seconds or held_out.best.seconds is None:
        return ""
    best, default = held_out.best.seconds, held_out.default.seconds
    return (
        f"The tuned settings took {duration(best)} where the defaults took {duration(default)} ({best / default:.2f} "
        "times as long)."
    )


def _values(search: Search, trial: TrialRow) -> str:
    """The values of a trial, with their names where there are several."""
    said = [(one.title.lower(), one.text(trial.values[one.name])) for one in search.study.objectives]
    return said[0][1] if search.is_single else " and ".join(f"{title} {value}" for title, value in said)


def _tiles(search: Search) -> tuple[Tile, ...]:
    held_out, chosen, default = search.study.held_out, search.chosen, search.default
    if held_out is not None:
        objective = search.study.objective(held_out.metric)

        def detail(value: Mean, is_change: bool = False) -> str:
            ends = objective.interval(value, is_change)
            return "held-out data, " + ("no interval" if ends == DASH else f"95% interval {ends}")

        title = objective.title.lower()
        amount, _, unit = objective.change(held_out.difference.mean).partition(" ")
        change = f"{unit or 'difference'}, tuned against defaults"
        return (
            Tile(objective.text(held_out.best.mean), f"{title}, tuned", detail(held_out.best)),
            Tile(objective.text(held_out.default.mean), f"{title}, defaults", detail(held_out.default)),
            Tile(amount, change, detail(held_out.difference, True)),
        )
    found = [] if chosen is None else [(f"{'best' if search.is_single else 'knee'}, trial {chosen.trial}", chosen)]
    if found and default is not None and default is not chosen:
        found.append((f"defaults, trial {default.trial}", default))
    return tuple(
        Tile(one.text(trial.values[one.name]), one.title.lower(), f"{who}, validation data")
        for who, trial in found
        for one in search.study.objectives
    )


def _held_out(search: Search) -> tuple[Block, ...]:
    held_out = search.study.held_out
    if held_out is None:
        return ()
    objective = search.study.objective(held_out.metric)
    lines = [("Tuned", held_out.best), ("Defaults", held_out.default), (PAIRED, held_out.difference)]
    columns: list[Column[tuple[str, Mean]]] = [
        Column("Settings", lambda line: line[0]),
        Column("Mean", lambda line: (objective.change if line[0] is PAIRED else objective.text)(line[1].mean)),
        Column("95% interval", lambda line: objective.interval(line[1], line[0] is PAIRED)),
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
    pairs = f", over {held_out.n} pairs" if held_out.n else ""
    note = (
        f"{objective.title} on {held_out.words}. The difference is taken pair by pair{pairs}: where its interval "
        "contains 0, it may be chance."
    )
    return table, Paragraph(note, "note")


PAIRED = "Tuned minus defaults, paired"


def _trials(searches: Sequence[Search]) -> Section | None:
    if searches[0].is_single:
        note = (
            "A hollow mark stands at the last value before the trial was stopped, after a part of its budget: it is "
            "not to be compared with a complete one. Hovering over a mark shows its settings."
        )
        return _each("trials", "All trials", searches, _history, HISTORY, note)
    note = "Numbers are trials. Hovering over a mark shows its settings."
    return _each("trials", "The front", searches, _fronts, FRONT, note)


def _history(search: Search) -> tuple[Block, ...]:
    drawn = history(search)
    return () if drawn is None else _titled(search.study.first, drawn)


def _fronts(search: Search) -> tuple[Block, ...]:
    return tuple(block for upwards, drawn in fronts(search) for block in _titled(upwards, drawn))


def _titled(objective: Objective, drawn: Figure) -> tuple[Block, ...]:
    return Paragraph(f"{objective.title} ({objective.best} is best)", "note"), drawn


def _best(searches: Sequence[Search]) -> Section | None:
    title = "The best trials and the defaults" if searches[0].is_single else "The front and the defaults"
    before = (
        "Values in bold differ from the default; an arrow says whether a number is above or below it. A dash stands "
        "where a setting has no value in that trial."
    )
    after = text(
        "Scores are on validation data. To audit with the proposed settings: <code>lightleak audit best.yaml</code>, a "
        "file in the folder of the study."
    )
    return _each("best", title, searches, _best_table, before, after)


def _best_table(search: Search) -> tuple[Block, ...]:
    trials = best_trials(search)
    if not trials:
        return ()
    columns = [
        Column("Trial", lambda one: Cell(str(one.trial), tuple(filter(None, (_role(search, one),))))),
        *_value_columns(search),
        Column("Time", lambda one: duration(one.seconds)),
        *(_parameter_column(search.names[one.key], one) for one in search.study.parameters),
    ]
    table = table_of(
        "The best trials and the defaults",
        columns,
        [("", trials)],
        css="trials",
        line_css=lambda one: "reference" if one.is_default else "",
    )
    more = len(search.front) - MOST_BEST
    note = Paragraph(f"{more} more on the front are in the list of every attempt below.", "note")
    return (table, note) if more > 0 else (table,)


def best_trials(search: Search) -> list[TrialRow]:
    """The best trials, or the front of several objectives, and the defaults; none before a trial is complete."""
    if not search.measured:
        return []
    leading = list((search.ranked if search.is_single else search.front)[:MOST_BEST])
    wanted = [search.chosen, *(one for one in search.trials if one.is_default)]
    for one in wanted:
        if one is not None and one not in leading:
            leading.append(one)
    return leading


def _role(search: Search, trial: TrialRow) -> str:
    chosen = ("best" if search.is_single else "knee") if trial is search.chosen else ""
    state = trial.state if trial.state != "complete" else ""
    return joined(chosen, "defaults" if trial.is_default else "", state)


def _value_columns(search: Search) -> list[Column[TrialRow]]:
    def column(objective: Objective) -> Column[TrialRow]:
        return Column(objective.title, lambda one: objective.text(one.values.get(objective.name)))

    return [column(one) for one in search.study.objectives]


def _parameter_column(title: str, parameter: Parameter) -> Column[TrialRow]:
    return Column(title, lambda trial: parameter_cell(parameter, trial))


def parameter_cell(parameter: Parameter, trial: TrialRow) -> Cell:
    """A value of a trial against the default, with an arrow for a number above or below it.

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
    """Whether a value is another one than the default; false where there is no default.

    >>> differs(1, 1.0), differs(0.1, 0.2), differs(True, 1), differs(3, None)
    (False, True, True, False)
    """
    if default is None:
        return False
    return isinstance(value, bool) != isinstance(default, bool) or bool(value != default)


def _importance(search: Search) -> tuple[Block, ...]:
    panels = []
    for objective in search.study.objectives:
        shares = search.study.importance.get(objective.name, {})
        known = [one for one in search.by_importance(objective) if one.key in shares]
        bars = [
            Bar(shorten(search.names[one.key], LONGEST_NAME), Estimate(shares[one.key]), COMPLETE)
            for one in known[:MOST_BARS]
        ]
        if bars:
            name = f"Share of the differences in {objective.words} that goes with each setting"
            more = len(known) - len(bars)
            caption = f"{more} more matter less." if more else ""
            title = "" if search.is_single else objective.title
            panels.append(Figure(bar_chart(name, bars, None), title, caption, plot="bars"))
    if not panels:
        return ()
    n = len(search.measured)
    few = " With so few, shares can be off by a lot and their order by chance." if n < FEW_TRIALS else ""
    note = f"Estimated from {n} complete trials, for settings that every trial has.{few}"
    return (*figures(panels), Paragraph(note, "note"))


def _slices(search: Search) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for objective in search.study.objectives:
        if drawn := slices(search, objective):
            blocks += [] if search.is_single else [Heading(objective.title)]
            blocks.append(Panels(drawn, "slice-panels"))
    valued = [one for one in search.trials if one.state in ("complete", "pruned")]
    return (legend(search, valued), *blocks) if blocks else ()


def _accounting(search: Search) -> tuple[Block, ...]:
    done = account(search.trials)
    blocks: list[Block] = [outcomes(search, done)]
    if done.repeats:
        again = "; ".join(f"trial {first} as trial {second}" for first, second in done.repeats)
        blocks.append(
            Paragraph(
                "An attempt that failed or whose process was killed can be run again under a new number. Run again: "
                f"{again}. Each such chain counts once above, as its last attempt."
            )
        )
    if failed := errors(search.trials):
        said = tuple(text("<strong>{}:</strong> {}", capital(which), words) for which, words in failed)
        blocks += [Heading("What failed"), Bullets(said)]
    if ran := by_key((one for one in search.trials if one.worker is not None), lambda one: one.worker):
        blocks += folded("Who ran what", workers(ran.values()))
    return (*blocks, *(_attempts(search, done) if search.trials else ()))


def outcomes(search: Search, done: Accounting) -> Table:
    """What became of the trials, how many, and which; the numbers add up to the trials."""
    lines = [
        (words, len(found), numbers(found) if state in ("failed", "running") else "")
        for state, words in BECAME.items()
        for found in [done.counted[state]]
    ]
    asked = "" if search.study.asked is None else f" of {search.study.asked} asked for"
    n, total = len(done.repeats), f"{counted(done.trials, 'trial')}{asked}"
    if n:
        total += f", from {counted(len(search.trials), 'attempt')} of which {n} {'was' if n == 1 else 'were'} run again"
    columns: list[Column[tuple[str, int, str]]] = [
        Column("What became of it", lambda line: line[0]),
        Column("Trials", lambda line: str(line[1]), css="count"),
        Column("Which", lambda line: line[2]),
    ]
    return table_of(
        "What became of every trial",
        columns,
        [("", [*lines, ("Together", done.trials, total)])],
        css="words-table",
        box="snug",
        line_css=lambda line: "sum" if line[0] == "Together" else "",
    )


def numbers(trials: Trials, most: int = 12) -> str:
    """A few numbers of trials, and how many more there are.

    >>> numbers([TrialRow(trial=i, state="failed") for i in range(20)], most=2)
    'trials 0, 1 and 18 more'
    """
    known = [str(one.trial) for one in trials]
    if not known:
        return ""
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{'trial' if len(known) == 1 else 'trials'} {', '.join(known[:most])}{more}"


def errors(trials: Trials) -> list[tuple[str, str]]:
    """What went wrong, with the trials it happened to."""
    failed = [one for one in trials if one.state == "failed"]
    silent = "it left no message, like a process that is killed"
    found = by_key(failed, lambda one: shorten(one.error or silent, LONGEST_ERROR))
    return [(numbers(same), said) for said, same in found.items()]


def workers(ran: Iterable[Sequence[TrialRow]]) -> Table:
    """Which process ran how many attempts, and for how long."""
    columns: list[Column[Sequence[TrialRow]]] = [
        Column("Worker", lambda same: same[0].worker or ""),
        Column("Attempts", lambda same: str(len(same))),
        Column("Time in them", lambda same: duration(sum(one.seconds or 0.0 for one in same))),
    ]
    by_name = sorted(ran, key=lambda same: same[0].worker or "")
    return table_of("Attempts by worker", columns, [("", by_name)], box="snug")


def _attempts(search: Search, done: Accounting) -> tuple[Block, ...]:
    """Every attempt, the first `MOST_LISTED` of them."""
    followed = dict(done.repeats)
    columns = [
        Column[TrialRow]("Trial", lambda one: str(one.trial)),
        Column("State", lambda one: one.state),
        *_value_columns(search),
        Column("Time", lambda one: duration(one.seconds)),
        Column("Worker", lambda one: one.worker or DASH),
        Column("Note", lambda one: _note(search, one, followed.get(one.trial)), css="words"),
    ]
    n = len(search.trials)
    first = Paragraph(f"The first {MOST_LISTED} of {n}; trials.parquet has all of them.", "note")
    table = table_of("Every attempt", columns, [("", search.trials[:MOST_LISTED])], box="tall")
    return (Details("Every attempt", (first, table) if n > MOST_LISTED else (table,)),)


def _note(search: Search, trial: TrialRow, followed: int | None) -> str:
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
    entries = (
        ("Data and network", study.setting),
        ("Objective" if search.is_single else "Objectives", "; ".join(map(_aim, study.objectives))),
        ("Trials asked for", None if study.asked is None else str(study.asked)),
        ("What each trial may spend", study.budget),
        ("How trials are proposed", _known(SAMPLERS, study.sampler)),
        ("How trials are stopped early", _known(PRUNERS, study.pruner)),
        ("Validation data", study.validation),
        ("Held-out data", "not used yet" if study.held_out is None else study.held_out.words),
    )
    facts = Facts(tuple((name, value) for name, value in entries if value))
    return (facts, space_table(search)) if study.parameters else (facts,)


def _aim(objective: Objective) -> str:
    return f"{objective.direction} {objective.words}"


def _known(words: dict[str, str], name: str | None) -> str:
    return words.get((name or "").lower().replace("-", "").replace("_", ""), name or "not stated")


def space_table(search: Search) -> Table:
    """All parameters in the order of the config, with what they may be, their default and what is proposed."""
    chosen = search.chosen
    columns: list[Column[Parameter]] = [
        Column("Setting", lambda one: text("{}<br><code>{}</code>", search.names[one.key], one.key)),
        Column("May be", range_words),
        Column("Default", lambda one: DASH if one.default is None else parameter_value(one.default)),
        Column("Proposed", lambda one: DASH if chosen is None else parameter_cell(one, chosen).text.rstrip(" ▲▼")),
        Column("Has a value", lambda one: one.when or "always"),
    ]
    return table_of("The space that was searched", columns, [("", search.study.parameters)], css="words-table")


def range_words(parameter: Parameter) -> str:
    """What a parameter may be.

    >>> range_words(Parameter("rate", "float", 0.005, 0.3, True)), range_words(Parameter("on", "choice", of=(True, 3)))
    ('0.005 to 0.3, logarithmic', 'true, 3')
    """
    if parameter.kind == "choice":
        return ", ".join(map(parameter_value, parameter.of)) or "not stated"
    if parameter.low is None or parameter.high is None:
        return "not stated"
    whole, log = "whole numbers" if parameter.kind == "int" else "", "logarithmic" if parameter.log else ""
    return joined(f"{number_words(parameter.low)} to {number_words(parameter.high)}", whole, log)
