"""What the page of released-model runs shows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lightleak.report.budget import budget
from lightleak.report.charts import BASELINE_STYLE, series_style
from lightleak.report.page_head import page_head
from lightleak.report.released.class_tables import (
    KIND_TITLES,
    METRICS,
    class_accuracy,
    heat_legend,
    heat_maps,
    lowest_columns,
    pseudo_labels,
    shade,
)
from lightleak.report.released.comparison import Scenario, compare, most_telling
from lightleak.report.released.entries import Entry
from lightleak.report.released.group import Group
from lightleak.report.released.headline import headline
from lightleak.report.released.losses import loss_sections
from lightleak.report.released.memorisation import memory_section
from lightleak.report.released.nearest import nearest_section
from lightleak.report.released.run_folder import ReleasedRun
from lightleak.report.released.summary import summary
from lightleak.report.released.tables import attack_panels, search_tables
from lightleak.report.released.topics import topics
from lightleak.report.released.wording import (
    DETAILS,
    attack_name,
    count,
    distance,
    group_titles,
    model_name,
    nats,
    plus_minus,
    scenario_titles,
)
from lightleak.report.wording import percent

TEMPLATE = "released.html.j2"
TASK_FACTS = {
    "Private classes": "classes",
    "Columns": "features",
    "Private rows": "private_rows",
    "Held-out private rows": "private_test_rows",
    "Public rows of the attacker": "public_rows",
    "Rows dropped (group on both sides)": "dropped_rows",
}
FILTERS = {"nats": nats, "gower": distance, "count": count, "plus_minus": plus_minus, "shade": shade}


def released_context(runs: Sequence[ReleasedRun], redact: bool = False) -> dict[str, Any]:
    """Everything the template `TEMPLATE` shows; with ``redact`` no value of a row, real or made up."""
    results = [result for run in runs for result in run.results]
    entries = [entry for run in runs for entry in run.entries]
    scenarios = compare(results, entries)
    found = most_telling(scenarios)
    main = found[1] if found else None
    subjects = topics(entries, scenarios, main)
    return {
        **page_head(runs, _title(runs), _subject(runs), redact),
        "summary": replace(summary(scenarios, entries), budget=budget(results).sentence),
        "headline": headline(scenarios, entries),
        "facts": _facts(scenarios, entries),
        "threat_models": _threat_models(scenarios),
        "panels": (panels := attack_panels(scenarios)),
        "measures": any(row.is_compared for panel in panels for row in panel.rows),
        "main": main,
        "main_title": _main_title(scenarios, main),
        "over": any((value := group.value()) and value.has_interval for group in _groups(scenarios)),
        "attack_details": _attack_details(scenarios),
        "styles": {"attack": series_style(0), "baseline": BASELINE_STYLE},
        "searches": search_tables(scenarios),
        "classes": class_accuracy(main) if main else None,
        "heat_maps": heat_maps(subjects),
        "heat_legend": heat_legend(),
        "kind_titles": KIND_TITLES,
        "lowest": lowest_columns(subjects),
        "metric_styles": {title: series_style(index) for index, title in enumerate(METRICS.values())},
        "nearest": None if redact else nearest_section(subjects),
        "pictures": () if redact else tuple(grid for run in runs for grid in run.pictures),
        "memory": memory_section(subjects),
        "losses": loss_sections(subjects),
        "pseudo_labels": pseudo_labels(subjects),
        "several_seeds": len({(entry.run, str(entry.seed)) for entry in entries}) > 1,
        "warnings": _warnings(scenarios),
        "seconds": _seconds(scenarios),
        "options": _options(scenarios),
        "seeds": list(dict.fromkeys(str(one.seed) for one in results if one.seed is not None)),
    }


def _title(runs: Sequence[ReleasedRun]) -> str:
    titles = {run.folder.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"What the released model gives away: {_subject(runs)}"


def _subject(runs: Sequence[ReleasedRun]) -> str:
    names = dict.fromkeys(one.setting.dataset for run in runs for one in run.results if one.setting.dataset)
    return ", ".join(names) or ", ".join(run.folder.name for run in runs)


def _groups(scenarios: Sequence[Scenario]) -> list[Group]:
    return [group for scenario in scenarios for group in scenario.groups]


def _main_title(scenarios: Sequence[Scenario], main: Group | None) -> str:
    if main is None:
        return ""
    scenario = next(one for one in scenarios if main in one.groups)
    return " · ".join(part for part in (group_titles(scenario)[main], scenario_titles(scenarios)[main.setting]) if part)


def _facts(scenarios: Sequence[Scenario], entries: Sequence[Entry]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What was attacked: for each scenario its title and facts."""
    where = scenario_titles(scenarios)
    found = []
    for scenario in scenarios:
        setting = scenario.setting
        own = [one for one in entries if (one.dataset, one.setting) == (setting.dataset, setting.setting)]
        sizes = [(name, [count(one.task[key]) for one in own if key in one.task]) for name, key in TASK_FACTS.items()]
        facts = [
            ("Dataset", [setting.dataset or "not stated"]),
            ("Setting", [setting.setting or ""]),
            ("Released model", [model_name(setting.target)]),
            ("Its accuracy", _accuracies([entry.target_scores for entry in own], scenario)),
            ("Evaluation model", [model_name(setting.evaluation)]),
            ("Accuracy of the evaluation model", _accuracies([entry.evaluation_scores for entry in own])),
            ("Accuracy of the second one", _accuracies([entry.disjoint_scores for entry in own])),
            *sizes,
        ]
        distinct = [(name, "; ".join(dict.fromkeys(values))) for name, values in facts]
        found.append((where[setting], [(name, words) for name, words in distinct if words]))
    return found


def _accuracies(scores: Sequence[Mapping[str, float]], scenario: Scenario | None = None) -> list[str]:
    """Training and test accuracy; from the rows of the scenario where ``inversion.json`` has none."""
    parts = {"train_accuracy": "on training rows", "test_accuracy": "on held-out ones"}
    found = []
    for one in scores:
        words = [f"{percent(one[name])} {where}" for name, where in parts.items() if name in one]
        if words and "epochs" in one:
            words.append(f"after {count(one['epochs'])} epochs")
        found += [", ".join(words)] if words else []
    if not found and scenario is not None:
        rows = [one.metrics for group in scenario.groups for one in group.results]
        name = "target_test_accuracy"
        found = [f"{percent(row[name])} on held-out rows" for row in rows if name in row]
    return found


def _threat_models(scenarios: Sequence[Scenario]) -> dict[str, list[str]]:
    """Attacks by the sentence that says what they assume."""
    found: dict[str, list[str]] = {}
    for group in _groups(scenarios):
        title = attack_name(group.attack, group.label)
        for result in group.results:
            named = found.setdefault(result.threat_model or "Not stated.", [])
            if title not in named:
                named.append(title)
    return found


def _attack_details(scenarios: Sequence[Scenario]) -> list[tuple[str, str]]:
    """What each row of the comparison is, where it is known."""
    names = dict.fromkeys(group.attack for group in _groups(scenarios))
    return [(attack_name(name), DETAILS[name]) for name in names if name in DETAILS]


def _warnings(scenarios: Sequence[Scenario]) -> list[tuple[str, list[str]]]:
    """What attacks warned of, each text once with the attacks that gave it."""
    found: dict[str, Counter[str]] = {}
    where = scenario_titles(scenarios)
    for scenario in scenarios:
        titles = group_titles(scenario)
        for group in scenario.groups:
            place = " · ".join(part for part in (titles[group], where[scenario.setting]) if part)
            for result in group.results:
                for warning in dict.fromkeys(result.warnings):
                    found.setdefault(warning, Counter())[place] += 1
    return [(text, list(places)) for text, places in found.items()]


def _seconds(scenarios: Sequence[Scenario]) -> list[tuple[str, float | None, float | None]]:
    """Title of the attack, seconds to train its generator, and seconds to make the rows of one evaluation; means."""
    where = scenario_titles(scenarios)
    found = []
    for scenario in scenarios:
        for group, title in group_titles(scenario).items():
            fit, made = group.value("fit_seconds"), group.value("seconds")
            if fit or made:
                name = " · ".join(part for part in (title, where[scenario.setting]) if part)
                found.append((name, fit.mean if fit else None, made.mean if made else None))
    return found


def _options(scenarios: Sequence[Scenario]) -> list[tuple[str, str]]:
    """Title of the attack and its settings, each distinct pair once."""
    found = [
        (attack_name(group.attack, group.label), ", ".join(f"{name} {value}" for name, value in result.options.items()))
        for group in _groups(scenarios)
        for result in group.results
        if result.options
    ]
    return list(dict.fromkeys(found))
