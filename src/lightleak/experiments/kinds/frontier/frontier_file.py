"""``frontier.json``: every point with its intervals, and which are Pareto-best."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightleak.core.results import NONE
from lightleak.experiments.unit import without_nan, write_whole
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_points import Frontier, Point, Standing, compare_raw

SCHEMA_VERSION = 1
FILE_NAME = "frontier.json"


def write_frontier(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the file of the rows of results.json; points of which nothing is measured yet are left out."""
    entries = [entry(frontier) for frontier in compare_raw(rows, folder.name)]
    write_whole(folder / FILE_NAME, json.dumps({"schema_version": SCHEMA_VERSION, "entries": entries}, indent=1))


def entry(frontier: Frontier) -> dict[str, Any]:
    """One frontier, JSON-ready."""
    row = frontier.first
    known: dict[str, Any] = without_nan(
        {
            **{name: getattr(row, name) for name in ("dataset", "target", "protocol", "batch_size", "training")},
            "labels": row.label_setting,
            "guess": _of(frontier.guess),
            "attack_budget": frontier.budget.sentence,
            "is_below_published_budget": frontier.budget.is_weak,
            "points": [_point(frontier, standing) for standing in frontier.standings],
        }
    )
    return known


def _point(frontier: Frontier, standing: Standing) -> dict[str, Any]:
    point = standing.point
    return {
        **_name(point),
        **{name: point.granted(name) for name in ("epsilon", "release_epsilon", "delta")},
        "accuracy": _of(point.accuracy),
        "auroc": _of(point.auroc),
        "accuracy_lost": _of(frontier.cost(point)),
        "attack": None if point.strongest is None else point.strongest.attack,
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
