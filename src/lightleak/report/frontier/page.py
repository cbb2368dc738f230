"""What the page of a defence frontier shows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lightleak.report.frontier.charts import Plot, curve_styles, frontier_plot
from lightleak.report.frontier.comparison import Frontier, compare
from lightleak.report.frontier.headline import headline
from lightleak.report.frontier.pareto import standings
from lightleak.report.frontier.result import FrontierResult
from lightleak.report.frontier.run_folder import FrontierRun
from lightleak.report.frontier.summary import summary
from lightleak.report.frontier.table import Row, table_rows
from lightleak.report.frontier.wording import full_name
from lightleak.report.page_head import page_head
from lightleak.report.wording import attack_title, labels_phrase, what_travels

TEMPLATE = "frontier.html.j2"


@dataclass(frozen=True)
class Section:
    """One frontier: its plot and its table."""

    title: str
    plot: Plot | None
    rows: tuple[Row, ...]

    @property
    def has_epsilon(self) -> bool:
        """Whether some point is guaranteed."""
        return any(row.point.epsilon is not None for row in self.rows)

    @property
    def deltas(self) -> list[str]:
        """Every delta of its guarantees."""
        return list(dict.fromkeys(f"{row.point.delta:g}" for row in self.rows if row.point.delta is not None))

    @property
    def attacks(self) -> list[str]:
        """Attacks that recover most somewhere."""
        return list(dict.fromkeys(row.attack for row in self.rows if row.point.attack))


def frontier_context(runs: Sequence[FrontierRun], redact: bool = False) -> dict[str, Any]:
    """Everything the template `TEMPLATE` shows; it holds no value of a row, so that ``redact`` changes nothing."""
    results = [result for run in runs for result in run.results]
    frontiers = compare(results)
    styles = curve_styles(frontiers)
    return {
        **page_head(runs, _title(runs), _subject(runs), redact),
        "summary": summary(frontiers),
        "headline": headline(frontiers),
        "facts": _facts(results),
        "threat_models": _threat_models(results),
        "sections": [_section(one, frontiers, styles) for one in frontiers],
        "defenses": _defenses(frontiers),
        "seconds": _seconds(results),
        "options": _options(results),
        "seeds": list(dict.fromkeys(str(one.seed) for one in results if one.attack is not None)),
    }


def _section(frontier: Frontier, frontiers: Sequence[Frontier], styles: dict[str, Any]) -> Section:
    best = [one.point for one in standings(frontier.measured) if one.is_best]
    title = _section_title(frontier, frontiers)
    name = (
        f"Share of cells recovered against accuracy on the test rows under each defence{': ' if title else ''}{title}"
    )
    return Section(title, frontier_plot(name, frontier, best, styles), table_rows(frontier))


def _section_title(frontier: Frontier, frontiers: Sequence[Frontier]) -> str:
    """The parts of the setting in which frontiers differ; empty for the only one."""
    known = [vars(one.setting) for one in frontiers]
    differing = [name for name in known[0] if len({setting[name] for setting in known}) > 1]
    words = {"batch_size": "{} rows", "training": "trained for {}", "labels": "labels {}"}
    own = vars(frontier.setting)
    return " · ".join(words.get(name, "{}").format(own[name] or f"{name} not stated") for name in differing)


def _title(runs: Sequence[FrontierRun]) -> str:
    titles = {run.folder.title for run in runs}
    return (titles.pop() if len(titles) == 1 else None) or f"What defences buy and cost: {_subject(runs)}"


def _subject(runs: Sequence[FrontierRun]) -> str:
    names = dict.fromkeys(one.setting.dataset for run in runs for one in run.results if one.setting.dataset)
    return ", ".join(names) or ", ".join(run.folder.name for run in runs)


def _facts(results: Sequence[FrontierResult]) -> list[tuple[str, list[str]]]:
    """What was measured, each distinct value once."""
    attacks = [one for one in results if one.attack is not None]
    listed: list[tuple[str, Iterable[str | None]]] = [
        ("Dataset", (one.setting.dataset for one in results)),
        ("Target network", (one.setting.target for one in results)),
        ("What travels", (what_travels(one.setting.protocol) for one in results)),
        ("Rows of a client", (str(one.setting.batch_size or "") for one in attacks)),
        ("Attacked", ("before training, on the network's first, random weights" for _ in attacks)),
        ("Labels", (labels_phrase(one.labels) for one in attacks)),
        ("Training", (one.setting.training for one in results)),
    ]
    found = [(name, list(dict.fromkeys(value for value in values if value))) for name, values in listed]
    return [(name, values) for name, values in found if values]


def _threat_models(results: Sequence[FrontierResult]) -> dict[str, list[str]]:
    """Attacks by the sentence that says what they assume."""
    found: dict[str, list[str]] = {}
    for one in results:
        if one.attack is not None:
            named = found.setdefault(one.threat_model or "Not stated.", [])
            if (title := attack_title(one.attack)) not in named:
                named.append(title)
    return found


def _defenses(frontiers: Sequence[Frontier]) -> list[str]:
    """Every defence and strength in words, none apart."""
    return list(
        dict.fromkeys(
            full_name(point.strength) for one in frontiers for point in one.points if not point.strength.is_none
        )
    )


def _seconds(results: Sequence[FrontierResult]) -> list[tuple[str, int, float]]:
    """What took time, how often, and total seconds, the slowest first."""
    spent: dict[str, list[float]] = {}
    for one in results:
        if one.seconds is not None:
            title = "trainings" if one.attack is None else attack_title(one.attack)
            spent.setdefault(title, []).append(one.seconds)
    return sorted(((title, len(times), sum(times)) for title, times in spent.items()), key=lambda row: -row[2])


def _options(results: Sequence[FrontierResult]) -> list[tuple[str, str]]:
    """Title of the attack and its settings, each distinct pair once."""
    found = [
        (attack_title(one.attack), ", ".join(f"{name} {value}" for name, value in one.options.items()))
        for one in results
        if one.attack is not None and one.options
    ]
    return list(dict.fromkeys(found))
