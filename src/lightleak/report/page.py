"""From run folders to one self-contained HTML file."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import lightleak
from lightleak.core.errors import UsageError
from lightleak.report import wording
from lightleak.report.cells import SHADES, typical_batch
from lightleak.report.certainty import certainty
from lightleak.report.certificates import MARKS, MEANINGS, certificates, place_words, residual_words
from lightleak.report.change.page import FILTERS as CHANGE_FILTERS
from lightleak.report.change.page import change_context
from lightleak.report.charts import legend_mark
from lightleak.report.columns import column_leakage
from lightleak.report.comparison import Group, at_start, compare
from lightleak.report.frontier.page import TEMPLATE as FRONTIER_TEMPLATE
from lightleak.report.frontier.page import frontier_context
from lightleak.report.frontier.run_folder import FrontierRun, load_frontier_run
from lightleak.report.headline import headline
from lightleak.report.kinds import kind_of_runs
from lightleak.report.released.page import FILTERS as RELEASED_FILTERS
from lightleak.report.released.page import TEMPLATE as RELEASED_TEMPLATE
from lightleak.report.released.page import released_context
from lightleak.report.released.run_folder import ReleasedRun, load_released_run
from lightleak.report.result import Setting
from lightleak.report.run_folder import RunFolder, load_run
from lightleak.report.scenarios import attack_styles, scenarios
from lightleak.report.training import training_panels
from lightleak.report.tuning.page import TEMPLATE as TUNING_TEMPLATE
from lightleak.report.tuning.page import tuning_context
from lightleak.report.tuning.run_folder import load_tuning_run
from lightleak.report.tuning.study import TuningRun
from lightleak.report.vertical.page import FILTERS, TEMPLATE, vertical_context
from lightleak.report.vertical.run_folder import VerticalRun, load_vertical_run

FILE_NAME = "report.html"
COMBINED_NAME = "combined.html"
"""The report of several runs, in the folder of the first of them: the report of that one alone stays."""
OWNER_ONLY = 0o600
"""A report holds private rows, as its run folder does."""


def build_report(run: Path | Sequence[Path], output: Path | None = None, redact: bool = False) -> Path:
    """Write the report of one run folder, or of several of one kind together.

    The file needs no other file, loads nothing and runs no script; only its owner may read it.

    Args:
        run: a run folder with at least ``results.json``, or several of them.
        output: the file to write; by default ``report.html`` in the run folder, and of several runs ``combined.html``
            in the folder of the first.
        redact: leave out every true and reconstructed value and keep only whether it was right; of vertical runs every
            true and estimated share, and keep only how far off the estimates are; of released models every value of a
            made-up or private row.

    Returns:
        Path of the report.

    Raises:
        UsageError: a folder is no run folder, no folder is given, or they are of different kinds.
    """
    folders = [run] if isinstance(run, Path) else list(run)
    if not folders:
        raise UsageError("a report needs at least one run folder, got none")
    named = list(zip(folders, run_names(folders), strict=True))
    kind = kind_of_runs(folders)
    if kind == "vertical":
        text = render_vertical([load_vertical_run(folder, name) for folder, name in named], redact)
    elif kind == "released-model":
        text = render_released([load_released_run(folder, name) for folder, name in named], redact)
    elif kind == "defence-frontier":
        text = render_frontier([load_frontier_run(folder, name) for folder, name in named], redact)
    elif kind == "tuning":
        text = render_tuning([load_tuning_run(folder, name) for folder, name in named], redact)
    else:
        text = render([load_run(folder, name) for folder, name in named], redact)
    target = output or folders[0] / (FILE_NAME if len(folders) == 1 else COMBINED_NAME)
    _write(target, text)
    return target


def run_names(folders: Sequence[Path]) -> list[str]:
    """What the report calls each run: the folder's name, with as many parents as it takes to tell them apart.

    >>> run_names([Path("mon/adult"), Path("tue/adult")])
    ['mon/adult', 'tue/adult']

    Raises:
        UsageError: a folder is given twice.
    """
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise UsageError(f"each run folder must be given once, got {', '.join(map(str, folders))}")
    deepest = max(len(path.parts) for path in paths)
    names = (["/".join(path.parts[-depth:]) for path in paths] for depth in range(1, deepest + 1))
    return next(found for found in names if len(set(found)) == len(found))


def render(runs: Sequence[RunFolder], redact: bool = False) -> str:
    """The report as HTML text; every value from the runs is escaped."""
    return _templates().get_template("report.html.j2").render(_context(runs, redact))


def render_vertical(runs: Sequence[VerticalRun], redact: bool = False) -> str:
    """The report of vertical runs as HTML text; every value from the runs is escaped."""
    return _templates().get_template(TEMPLATE).render(vertical_context(runs, redact))


def render_released(runs: Sequence[ReleasedRun], redact: bool = False) -> str:
    """The report of audits of released models as HTML text; every value from the runs is escaped."""
    return _templates().get_template(RELEASED_TEMPLATE).render(released_context(runs, redact))


def render_frontier(runs: Sequence[FrontierRun], redact: bool = False) -> str:
    """The report of defence frontiers as HTML text; every value from the runs is escaped."""
    return _templates().get_template(FRONTIER_TEMPLATE).render(frontier_context(runs, redact))


def render_tuning(runs: Sequence[TuningRun], redact: bool = False) -> str:
    """The report of tuning studies as HTML text; every value from the runs is escaped."""
    return _templates().get_template(TUNING_TEMPLATE).render(tuning_context(runs, redact))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("lightleak.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": wording.percent,
        "points": wording.points,
        "interval": wording.interval,
        "duration": wording.duration,
        "key": legend_mark,
        "flatten": flatten,
        "residual": residual_words,
        **CHANGE_FILTERS,
        **FILTERS,
        **RELEASED_FILTERS,
    }
    return environment


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as rows of a table; a list becomes its entries one after the other.

    >>> flatten({"date": "2025-01-01", "versions": {"torch": "2.13.0"}})
    [('date', '2025-01-01'), ('versions torch', '2.13.0')]
    """
    rows = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += flatten(value, f"{name} ")
        elif isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            for number, entry in enumerate(value, 1):
                rows += flatten(entry, f"{name} {number} ")
        else:
            rows.append((name, " ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return rows


def _context(runs: Sequence[RunFolder], redact: bool) -> dict[str, Any]:
    groups = compare(runs)
    main = at_start(groups)
    styles = attack_styles(groups)
    found = headline(groups)
    strongest = found.group
    peers = [group for group in main if strongest is not None and _same_place(group, strongest)]
    shown = scenarios(main, styles)
    proven = certificates(groups)
    return {
        "runs": runs,
        "title": _title(runs),
        "subject": _subject(runs),
        "today": date.today().isoformat(),
        "version": lightleak.__version__,
        "redact": redact,
        **change_context(runs),
        "headline": found,
        "main": main,
        "scenarios": shown,
        "differing": wording.varying(scenario.setting for scenario in shown),
        "setting_parts": wording.setting_parts,
        "facts": _facts(main, groups),
        "threat_models": _threat_models(main),
        "left_out": [(wording.attack_title(n), reason) for run in runs for n, reason in run.left_out.items()],
        "server_knowledge": list(dict.fromkeys(filter(None, (wording.server_knowledge(g.setting) for g in main)))),
        "of_rows": wording.of_rows,
        "unit": {"one": "update", "many": "updates"} if _on_fedavg(main) else {"one": "batch", "many": "batches"},
        "training": training_panels(runs, groups, styles),
        "panel_parts": lambda panels: wording.varying(panel.setting for panel in panels),
        "columns": column_leakage(strongest) if strongest else None,
        "batch": typical_batch(runs, groups, redact),
        "shades": range(1, SHADES + 1),
        "proven": proven,
        "places": place_words(proven),
        "marks": MARKS,
        "meanings": MEANINGS,
        "certainty": certainty(peers or [group for group in main if not group.is_baseline]),
        "seconds": _seconds(groups),
        "options": _options(groups),
        "seeds": list(dict.fromkeys(str(result.unit[0]) for group in groups for result in group.results)),
    }


def _title(runs: Sequence[RunFolder]) -> str:
    titles = {run.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"Leakage report: {_subject(runs)}"


def _subject(runs: Sequence[RunFolder]) -> str:
    names = dict.fromkeys(result.setting.dataset for run in runs for result in run.results if result.setting.dataset)
    return ", ".join(names) or ", ".join(run.name for run in runs)


def _same_place(group: Group, other: Group) -> bool:
    return (group.setting, group.batch_size) == (other.setting, other.batch_size)


def _facts(groups: Sequence[Group], everything: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """What was attacked, each distinct value once; the privacy that was granted stands with the training's groups."""
    settings = [group.setting for group in groups if not group.is_baseline] or [group.setting for group in groups]
    sizes = sorted({group.batch_size for group in groups if group.batch_size is not None})
    listed = [
        ("Dataset", [setting.dataset or "not stated" for setting in settings]),
        ("Target network", [setting.target or "not stated" for setting in settings]),
        ("What travels", [wording.what_the_server_gets(setting) for setting in settings]),
        (
            "Rows behind an update" if _on_fedavg(groups) else "Rows in a client's batch",
            [str(size) for size in sizes] or ["not stated"],
        ),
        ("When", [wording.source_phrase(setting.source) for setting in settings]),
        ("Labels", [wording.labels_phrase(setting.labels) for setting in settings]),
        ("Defence", [wording.defense_phrase(s) for s in _with_privacy(settings, everything)]),
    ]
    return [(name, list(dict.fromkeys(values))) for name, values in listed]


def _with_privacy(settings: Sequence[Setting], everything: Sequence[Group]) -> list[Setting]:
    """The settings, those of the same defence with an accountant's word in their place where there are any."""
    granted = [group.setting for group in everything if group.setting.epsilon is not None]
    told = {(setting.defense, setting.strength): setting for setting in granted}
    return [told.get((setting.defense, setting.strength), setting) for setting in settings]


def _on_fedavg(groups: Sequence[Group]) -> bool:
    """Whether any group is of FedAvg updates, which have no batch of their own."""
    return any(group.setting.protocol == "fedavg" for group in groups)


def _threat_models(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Attacks by the sentence that says what they assume."""
    found: dict[str, list[str]] = {}
    for group in groups:
        for result in group.results:
            sentence = result.threat_model or "Not stated."
            attacks = found.setdefault(sentence, [])
            if (title := wording.attack_title(group.attack)) not in attacks:
                attacks.append(title)
    return found


def _seconds(groups: Sequence[Group]) -> list[tuple[str, int, float]]:
    """Title of the attack, batches whose time is known, and their total seconds, the slowest first."""
    spent: dict[str, list[float]] = {}
    for group in groups:
        for result in group.results:
            if "seconds" in result.metrics:
                spent.setdefault(wording.attack_title(group.attack), []).append(result.metrics["seconds"])
    return sorted(((title, len(times), sum(times)) for title, times in spent.items()), key=lambda row: -row[2])


def _options(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Title of the attack and its settings, each distinct pair once."""
    found = [
        (wording.attack_title(group.attack), ", ".join(f"{name} {value}" for name, value in result.options.items()))
        for group in groups
        for result in group.results
        if result.options
    ]
    return list(dict.fromkeys(found))


def _write(target: Path, text: str) -> None:
    """Written beside the target and moved: a reader never sees half a report, nor one with wider rights."""
    if not target.parent.is_dir():
        raise UsageError(f"output must lie in an existing folder, got {target}")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".report-", suffix=".html")  # created with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, OWNER_ONLY)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
