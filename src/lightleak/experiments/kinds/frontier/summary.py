"""The frontier as a table on the terminal."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.records import to_json
from lightleak.core.results import NONE
from lightleak.core.stored import write_json
from lightleak.experiments.terminal import Column, Lines
from lightleak.report.budget import budget
from lightleak.report.format import DASH, percent, points
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_advice import recommend
from lightleak.report.kinds.frontier_groups import Frontier, compare_raw
from lightleak.report.kinds.frontier_points import Point, guarantee
from lightleak.report.kinds.frontier_standings import Standing

COLUMNS = (
    Column("", is_number=False),
    Column("defense", is_number=False),
    *(Column(name) for name in ("epsilon", "accuracy", "cells", "leak")),
)


def frontier_tables(results: Mapping[str, Any]) -> Iterator[Lines]:
    """A line per point, with 95% intervals."""
    frontiers = compare_raw(results["rows"])
    if not frontiers:
        return
    spent = budget(one for frontier in frontiers for point in frontier.points for one in point.rows)
    said = [
        "epsilon: of the training / of one update whose batch is known; cells: share that an attack recovers; leak: "
        f"cells minus guessing, in points; *: Pareto-best; with 95% intervals, rounded outwards. {spent.sentence}"
    ]
    lacking = (one for each in frontiers for one in each.points if one.first.no_guarantee)
    reasons = by_key(lacking, lambda point: point.first.no_guarantee).items()
    said += [f"no guarantee of {', '.join(dict.fromkeys(one.name for one in of))}: {why}" for why, of in reasons]
    for frontier in frontiers:
        advice = recommend(frontier)
        said += [f"{advice.sentence} {advice.guarantee} {advice.over_training}".strip()] if advice.tested else []
        yield Lines(said, COLUMNS, [_cells(frontier, point) for point in frontier.points])
        said = []


def _cells(frontier: Frontier, point: Point) -> list[str]:
    standing = frontier.standing(point)
    granted = [guarantee(point.granted(name)) for name in ("epsilon", "release_epsilon")]
    return [
        "*" if standing is not None and standing.is_best else "",
        point.name,
        " / ".join(granted if set(granted) != {DASH} else [DASH]),
        _share(point.accuracy),
        _share(point.cells),
        points(point.leakage),
    ]


def _share(value: Estimate | None) -> str:
    """A share and its interval, in whole points, as a line has 80 columns.

    >>> _share(Estimate(0.729, 5, 0.722, 0.738)), _share(Estimate(1.0, 5, 0.549, 1.0)), _share(Estimate(0.5))
    ('72.9% 72-74', '100.0% 54-100', '50.0%')
    """
    ends = ""
    if value is not None and value.low is not None and value.high is not None:
        ends = f" {math.floor(100 * max(value.low, 0.0))}-{math.ceil(100 * min(value.high, 1.0))}"
    return percent(value) + ends


SCHEMA_VERSION = 1
FILE_NAME = "frontier.json"


def write_frontier(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the file of the rows of results.json; points of which nothing is measured yet are left out."""
    entries = [entry(frontier) for frontier in compare_raw(rows, folder.name)]
    write_json(folder / FILE_NAME, {"schema_version": SCHEMA_VERSION, "entries": entries}, indent=1)


def entry(frontier: Frontier) -> dict[str, Any]:
    """One frontier, JSON-ready."""
    row = frontier.first
    return to_json(
        {
            **{name: getattr(row, name) for name in ("dataset", "target", "protocol", "batch_size", "training")},
            "labels": row.label_setting,
            "guess": _of(frontier.guess),
            "attack_budget": frontier.budget.sentence,
            "is_below_published_budget": frontier.budget.is_weak,
            "recommendation": recommend(frontier).to_dict(),
            "points": [_point(frontier, standing) for standing in frontier.standings],
        }
    )


def _point(frontier: Frontier, standing: Standing) -> dict[str, Any]:
    point = standing.point
    return {
        **point.to_dict(len(frontier.tried) or 1),
        "cell_accuracy": _of(point.cells),
        "leakage": _of(point.leakage),
        "pareto_best": standing.is_best,
        "verdict": standing.verdict,
        "rivals": [_name(rival) for rival in standing.rivals],
    }


def _name(point: Point) -> dict[str, Any]:
    row = point.first
    return {"defense_label": row.curve, "defense": row.defense or NONE, "defense_strength": row.defense_strength}


def _of(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
