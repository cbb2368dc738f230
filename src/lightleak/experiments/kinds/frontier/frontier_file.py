"""``frontier.json``: every point with its intervals, and which are Pareto-best."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightleak.experiments.unit import without_nan, write_whole
from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import Frontier, Point, compare
from lightleak.report.frontier.pareto import Standing, standings
from lightleak.report.frontier.result import parse_result

SCHEMA_VERSION = 1
FILE_NAME = "frontier.json"


def write_frontier(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the file of the rows of results.json; points of which nothing is measured yet are left out."""
    frontiers = compare(parse_result(row, folder.name, f"row {i}") for i, row in enumerate(rows))
    entries = [entry(frontier) for frontier in frontiers]
    write_whole(folder / FILE_NAME, json.dumps({"schema_version": SCHEMA_VERSION, "entries": entries}, indent=1))


def entry(frontier: Frontier) -> dict[str, Any]:
    """One frontier, JSON-ready."""
    known: dict[str, Any] = without_nan(
        {
            **asdict(frontier.setting),
            "guess": _of(frontier.guess),
            "attack_budget": frontier.budget.sentence,
            "is_below_published_budget": frontier.budget.is_weak,
            "points": [_point(frontier, standing) for standing in standings(frontier.measured)],
        }
    )
    return known


def _point(frontier: Frontier, standing: Standing) -> dict[str, Any]:
    point = standing.point
    return {
        **_name(point),
        "epsilon": point.epsilon,
        "release_epsilon": point.release_epsilon,
        "delta": point.delta,
        "accuracy": _of(point.accuracy),
        "auroc": _of(point.auroc),
        "accuracy_lost": _of(frontier.cost(point)),
        "attack": point.attack,
        "cell_accuracy": _of(point.cells),
        "leakage": _of(point.leakage),
        "pareto_best": standing.is_best,
        "verdict": standing.verdict,
        "rivals": [_name(rival) for rival in standing.rivals],
    }


def _name(point: Point) -> dict[str, Any]:
    strength = point.strength
    return {"defense_label": strength.label, "defense": strength.defense, "defense_strength": strength.value}


def _of(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
