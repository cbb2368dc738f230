"""The page of attacks on released models: what a model reveals about the rows it was trained on."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lightleak.core.results import ALL, ReleasedRow
from lightleak.report import format as fmt
from lightleak.report.blocks import Block, Figure, Page, Section
from lightleak.report.budget import budget
from lightleak.report.charts import estimate_figure
from lightleak.report.kinds.released_attacks import attacks_section, searches_section
from lightleak.report.kinds.released_entries import entries_of, model_name, search_name, title_of
from lightleak.report.kinds.released_groups import Scenario, by_copies, by_equal_rows, compare, most_telling, topics
from lightleak.report.kinds.released_scores import ACCURACY, Attack
from lightleak.report.page import cells_table, fill
from lightleak.report.plot.chart import Rule
from lightleak.report.read import Run
from lightleak.report.sections import inversion
from lightleak.report.sections.pictures import PictureGrid, load_pictures, pictures_section
from lightleak.report.sections.subject_and_run import audit_page, run_section, subject_section, warnings_section
from lightleak.report.sections.summary import RiskLine, first_page, risks_table
from lightleak.report.sections.tested import NOT_TESTED, Findings, evidence_section

words = partial(fill, "released")
TASK_FACTS = {
    "Private classes": "classes",
    "Columns": "features",
    "Private rows": "private_rows",
    "Held-out private rows": "private_test_rows",
    "Public rows of the attacker": "public_rows",
    "Rows dropped (group on both sides)": "dropped_rows",
}
MODEL_SECTIONS = ("data", "task", "target", "evaluation_model", "training")
"""Sections of a config that say how the released model and its judge are made."""

ACCURACIES = {"train_accuracy": "on training rows", "test_accuracy": "on held-out ones"}


def page(runs: Sequence[Run], redact: bool) -> Page:
    """Make the page of runs that attacked released models."""
    rows, entries = [row for run in runs for row in run.of(ReleasedRow)], entries_of(runs)
    overall = [row for row in rows if row.class_name == ALL] or rows
    scenarios = compare(rows, entries, {run.name: _model_of(run) for run in runs})
    found = most_telling(scenarios)
    scenario, main = found or (None, None)
    subjects = topics(scenarios, entries, main)
    seeds = len({(entry.run, str(entry.seed)) for entry in entries}) > 1
    nearest = () if redact else next((pairs for one in subjects if (pairs := inversion.closest_pairs(one))), ())
    grids = [grid for run in runs for grid in load_pictures(run, redact)]
    placed = [(one.place(group.name), group.rows) for one in scenarios for group in one.groups]
    results: Findings = {"model_inversion": words("found", *found)} if found else {}
    reading = words("reading_released") if scenarios else ""
    private = words("private", len(nearest)) if nearest or grids else ""
    contents, answers = words("contents", len(nearest), bool(grids)), _answers(scenarios)
    return audit_page(
        runs,
        "What the released model gives away",
        private=words("redacted") if redact and scenarios else private,
        sections=[
            summary_section(scenarios),
            evidence_section(
                runs, overall, results, answers=answers, unit="evaluation", title=title_of, reading=reading
            ),
            _subject(runs, scenarios),
            attacks_section(scenarios, main),
            searches_section(scenarios),
            inversion.classes_section(scenario, main, subjects),
            inversion.lowest_section(subjects, seeds),
            pictures_section(grids, _grid_title),
            inversion.nearest_section(subjects, nearest, seeds),
            inversion.memorization_section(subjects),
            inversion.losses_section(subjects, seeds),
            inversion.labels_section(subjects, seeds),
            warnings_section(placed, "result"),
            run_section(runs, rows, contents, unit=("evaluation", "evaluations"), title=title_of),
        ],
    )


def summary_section(scenarios: Sequence[Scenario]) -> Section:
    """Summarize in plain language what these runs measured."""
    tried = [group for scenario in scenarios for group in scenario.attacks]
    rows = [row for scenario in scenarios for group in scenario.groups for row in group.rows]
    found = most_telling(scenarios)
    if not found:
        return first_page((words("nothing", bool(tried)),), (), rows)
    n_measured = sum(group.value() is not None for group in tried)
    facts = [
        ("Groups", words("shown", *found)),
        ("Single records", words("copies", by_copies(scenarios), by_equal_rows(scenarios))),
        ("What would help", words("help", found[0])),
        ("Limits", words("limits", found[1], n_measured, budget(rows).caution)),
    ]
    risks = risks_table(_risks(scenarios, *found), "made-up records", "By public data", "Made-up records")
    return first_page((words("lead", *found), _picture(*found), risks), facts, rows)


def _answers(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """Answers to questions of the checklist: of made-up records, which describe groups of people."""
    if not (found := most_telling(scenarios)):
        return {}
    scenario, main = found
    recognized, nearer, equal = map(_said, _risks(scenarios, *found))
    classes = main.by_class(ACCURACY)
    most = max(classes, key=lambda name: classes[name], default=None)
    nobody = f"{NOT_TESTED}: a made-up record describes a group and need not be anybody's"
    return {
        "direct": equal or nobody,
        **dict.fromkeys(("singling_out", "linkage", "persons", "inference"), nobody),
        "groups": f"{most}: {fmt.percent(classes[most])} of made-up records recognized" if most else "",
        "baseline": recognized if scenario.reference else "",
        "control": nearer,
        "attempts": f"{fmt.counted(main.n_trainings, 'training')}, {fmt.counted(len(main.evaluations), 'evaluation')}; "
        + ("95% intervals over trainings" if main.n_trainings > 1 else "no interval"),
        "behind": "All training records: the model is the only thing that is released",
        "utility": "No defense was tried",
    }


def _said(line: RiskLine) -> str:
    """A line of the first page as an answer; empty where it was not measured."""
    if line.attack is None:
        return ""
    public = f"; of public ones {fmt.with_interval(line.baseline, fmt.of_hundred)}" if line.baseline else ""
    share = f"{fmt.of_hundred(line.attack)} of 100{fmt.in_brackets(line.attack)}"
    return f"{line.name} {line.meaning}: {share} made-up records{public}"


SHOWN_APART = 0.0005
"""Difference of two shares that a reader sees."""


def _picture(scenario: Scenario, main: Attack) -> Figure:
    """The attack next to what can be had without opening the model, and to real rows."""
    public = scenario.reference and scenario.reference.value()
    known = [("by attack", main.value(), False), ("by public data", public, True)]
    dots = [inversion.share_row(title, value, is_baseline) for title, value, is_baseline in known if value]
    real, of_all = scenario.real_rows, scenario.real_rows_of_all
    whose = " of the attacked groups" if real and of_all and abs(real.mean - of_all.mean) > SHOWN_APART else ""
    rules = [Rule(real.mean, "truth", f"real records{whose} {fmt.percent(real)}")] if real else []
    name = "Records recognized as those of their group"
    return estimate_figure(name, dots, rules, title=name)


def _risks(scenarios: Sequence[Scenario], scenario: Scenario, main: Attack) -> list[RiskLine]:
    """Success of the most telling attack; of copies, that of the first in `by_copies` and in `by_equal_rows`."""
    public = scenario.reference.value() if scenario.reference else None
    near, equal = by_copies(scenarios), by_equal_rows(scenarios)
    like, _, nearer = near[0] if near else (scenario, main, None)
    alike, _, same = equal[0] if equal else (scenario, main, None)
    seen = f"nearer to one than to one never seen{_of_several(near, 'the most signs')}"
    return [
        RiskLine("Recognized", "as a record of the group it was made for", main.value(), None, public),
        RiskLine("Like a training record", seen, nearer, None, like.nearest_public),
        RiskLine("Equal", f"to a private record{_of_several(equal, 'most')}", same, None, alike.most_equal_public),
    ]


def _of_several(found: Sequence[Any], of: str) -> str:
    return f", by the attack of {len(found)} with {of}" if len(found) > 1 else ""


def _model_of(run: Run) -> str:
    """How the models of a run were made, seeds aside; a run that does not say shares its models with no other."""
    made = {name: run.settings[name] for name in MODEL_SECTIONS if name in run.settings}
    return json.dumps(made, sort_keys=True, default=str) if made else run.name


def _subject(runs: Sequence[Run], scenarios: Sequence[Scenario]) -> Section:
    found = [_facts(scenario) for scenario in scenarios]
    before: list[Block] = [words("setting")]
    if len(found) == 1:
        return subject_section(runs, found[0].items(), before=before)
    names = dict.fromkeys(name for facts in found for name, values in facts.items() if any(values))
    head = ("", *(one.title for one in scenarios))
    lines = [(name, *("; ".join(dict.fromkeys(facts[name])) or fmt.DASH for facts in found)) for name in names]
    table = cells_table("Settings side by side", head, [("", lines)], css="stack plain wrap facts-table")
    return subject_section(runs, (), before=[*before, table])


def _facts(scenario: Scenario) -> dict[str, list[str]]:
    """What was attacked: values by name, empty where nothing is known."""
    row, entries = scenario.first, scenario.entries
    tested = [value for group in scenario.groups for value in group.values("target_test_accuracy")]
    return {
        "Dataset": [row.dataset or "not stated"],
        "Setting": [row.setting] if row.setting else [],
        "Released model": [model_name(row.target)],
        "Its accuracy": _accuracies(entry.target_scores for entry in entries)
        or [f"{fmt.percent(value)} on held-out rows" for value in tested],
        "Evaluation model": [model_name(row.evaluation)],
        "Accuracy of the evaluation model": _accuracies(entry.evaluation_scores for entry in entries),
        "Accuracy of the second one": _accuracies(entry.disjoint_scores for entry in entries),
    } | {
        name: [fmt.count(n) for one in entries if (n := one.size(key)) is not None] for name, key in TASK_FACTS.items()
    }


def _accuracies(scores: Iterable[Mapping[str, float]]) -> list[str]:
    found = []
    for one in scores:
        shares = [f"{fmt.percent(one[name])} {where}" for name, where in ACCURACIES.items() if name in one]
        epochs = f"after {fmt.count(one['epochs'])} epochs" if "epochs" in one else ""
        found += [fmt.joined(*shares, epochs)] if shares else []
    return found


def _grid_title(grid: PictureGrid) -> str:
    return " · ".join([fmt.attack_title(grid.attack), search_name(grid.search), f"target {model_name(grid.target)}"])
