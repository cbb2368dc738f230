"""What the page of vertical runs shows."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightleak.report.budget import budget
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.page_head import page_head
from lightleak.report.vertical.comparison import Group, attacks, compare, most_telling, properties, undefended
from lightleak.report.vertical.distributions import norm_sections
from lightleak.report.vertical.headline import headline
from lightleak.report.vertical.run_folder import VerticalRun
from lightleak.report.vertical.shares import ADVERSARY_STYLES, share_panels
from lightleak.report.vertical.summary import summary
from lightleak.report.vertical.tables import defense_panels, error_tables, kind_table, shown_kinds
from lightleak.report.vertical.wording import (
    DISTANCE_TITLES,
    KIND_TITLES,
    ROLE_DETAILS,
    attack_name,
    defense_name,
    off_by,
    role,
    score,
)

TEMPLATE = "vertical.html.j2"
FILTERS = {"off_by": off_by, "score": score, "defense_name": defense_name}
_NUMBER = re.compile(r"(?<![A-Za-z])\d[\d.,]*(?:e[-+]?\d+)?")
"""Not the digit of a name such as C1."""


def vertical_context(runs: Sequence[VerticalRun], redact: bool = False) -> dict[str, Any]:
    """Everything the template `TEMPLATE` shows; with ``redact`` no share, estimated or true."""
    results = [result for run in runs for result in run.results]
    groups = compare(results)
    measured = tuple(one for one in properties(groups) if one.groups)
    main = most_telling([group for one in measured for group in one.best])
    kinds = kind_table(measured)
    defenses = defense_panels(groups, redact)
    return {
        **page_head(runs, _title(runs), _subject(runs), redact),
        "summary": replace(summary(groups, redact), budget=budget(results).sentence),
        "headline": headline(measured, len(results), redact),
        "facts": _facts(groups),
        "adversaries": _adversaries(groups),
        "roles": {name: f"{role(name)}; {ROLE_DETAILS[name]}" for name in _adversaries(groups) if name in ROLE_DETAILS},
        "adversary_styles": ADVERSARY_STYLES,
        "threat_models": _threat_models(groups),
        "shares": () if redact else share_panels(measured),
        "several_seeds": any(len(group.results) > 1 for group in groups),
        "tables": error_tables(measured, redact),
        "kinds": kinds,
        "kind_columns": shown_kinds(kinds),
        "kind_titles": KIND_TITLES,
        "defenses": defenses,
        "defense_styles": {name: style for panel in defenses for name, style in panel.styles.items()},
        "norms": norm_sections([entry for run in runs for entry in run.norms], main.property_name if main else None),
        "distance_titles": DISTANCE_TITLES,
        "warnings": _warnings(groups, redact),
        "seconds": _seconds(groups),
        "options": _options(groups),
        "seeds": list(dict.fromkeys(str(result.seed) for result in results if result.seed is not None)),
    }


def _title(runs: Sequence[VerticalRun]) -> str:
    titles = {run.folder.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"Property leakage report: {_subject(runs)}"


def _subject(runs: Sequence[VerticalRun]) -> str:
    names = dict.fromkeys(one.setting.dataset for run in runs for one in run.results if one.setting.dataset)
    return ", ".join(names) or ", ".join(run.folder.name for run in runs)


def _adversaries(groups: Sequence[Group]) -> list[str]:
    return sorted({group.adversary for group in groups if group.adversary})


def _facts(groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """What was attacked, each distinct value once."""
    settings = [group.setting for group in groups]
    listed = [
        ("Dataset", [setting.dataset or "not stated" for setting in settings]),
        ("Target network", [setting.target or "not stated" for setting in settings]),
        ("What travels", ["every party sends the output of its own network for each record; the party with the labels "
                          "sends back gradients"]),
        ("Properties", [group.property_name for group in groups]),
        ("Attacked in epoch", [str(setting.epoch) for setting in settings if setting.epoch is not None]),
        ("Defences", [defense_name(setting.defense) for setting in settings]),
        ("AUC of the model", _auc(groups)),
    ]  # fmt: skip
    return [(name, list(dict.fromkeys(values))) for name, values in listed if values]


def _auc(groups: Sequence[Group]) -> list[str]:
    """AUC without defence by dataset: with its interval, or over its properties, which may be trained apart."""
    by_dataset: dict[str | None, dict[str, dict[tuple[str, str], float | None]]] = {}
    for group in undefended(groups):
        known = by_dataset.setdefault(group.setting.dataset, {}).setdefault(group.property_name, {})
        known |= {(one.run, str(one.seed)): one.auc for one in group.results}
    found = []
    for dataset, by_property in by_dataset.items():
        means = [value for by_seed in by_property.values() if (value := estimate(by_seed.values()))]
        words = sorted({score(Estimate(value.mean)) for value in means})
        if words:
            text = score(means[0]) if len(means) == 1 else " to ".join(dict.fromkeys((words[0], words[-1])))
            text += ", by property" if len(words) > 1 else ""
            found.append(f"{dataset or 'dataset not stated'}: {text}" if len(by_dataset) > 1 else text)
    return found


def _threat_models(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Attacks by the sentence that says what they assume."""
    found: dict[str, list[str]] = {}
    for group in groups:
        title = attack_name(group.attack, group.variant)
        for result in group.results:
            named = found.setdefault(_of_any_property(result.threat_model or "Not stated.", group), [])
            if title not in named:
                named.append(title)
    return found


def _of_any_property(sentence: str, group: Group) -> str:
    """The sentence without the name of the property, so that what holds for all of them stands once."""
    return re.sub(rf"(?<!\w){re.escape(group.property_name)}(?!\w)", "the property", sentence)


def _warnings(groups: Sequence[Group], redact: bool) -> list[tuple[str, list[str]]]:
    """What attacks warned of, and where; warnings that differ in numbers alone stand once, with the first's numbers.

    Under ``redact`` their numbers are left out: a warning may quote an estimate.
    """
    found: dict[str, tuple[str, Counter[str]]] = {}
    totals: Counter[str] = Counter()
    for group in groups:
        place = f"{group.property_name}, {group.adversary}, {group.title}"
        totals[place] += len(group.results)
        for result in group.results:
            general = [_of_any_property(warning, group) for warning in result.warnings]
            for blank, warning in {_NUMBER.sub("…", warning): warning for warning in general}.items():
                found.setdefault(blank, (blank if redact else warning, Counter()))[1][place] += 1
    return [
        (text, [f"{place} ({count} of {totals[place]} estimates)" for place, count in places.items()])
        for text, places in found.values()
    ]


def _seconds(groups: Sequence[Group]) -> list[tuple[str, int, float]]:
    """Title of the attack, runs whose time is known, and their total seconds, the slowest first."""
    spent: dict[str, list[float]] = {}
    for group in attacks(groups):
        for result in group.results:
            if result.seconds is not None:
                spent.setdefault(attack_name(group.attack, group.variant), []).append(result.seconds)
    return sorted(((title, len(times), sum(times)) for title, times in spent.items()), key=lambda row: -row[2])


def _options(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Title of the attack and its settings, each distinct pair once."""
    found = [
        (
            attack_name(group.attack, group.variant),
            ", ".join(f"{name} {value}" for name, value in result.options.items()),
        )
        for group in groups
        for result in group.results
        if result.options
    ]
    return list(dict.fromkeys(found))
