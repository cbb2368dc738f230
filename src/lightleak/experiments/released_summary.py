"""The table on the terminal after an audit of a released model."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from lightleak.experiments.kinds.released.rows import ALL
from lightleak.metrics.inversion.score import MEASURES

COLUMNS = ("right", "2nd", "shapes", "rows", "nearer")
"""Heads of the columns of `MEASURES`."""


def print_released_summary(results: Mapping[str, Any], console: Console) -> None:
    """One line per attack and latent search over all classes, means over trainings; it fits 80 columns.

    Args:
        results: content of ``results.json``.
        console: where to print.
    """
    groups = [group for group in results["summary"] if group.get("class") == ALL]
    if not groups:
        console.print("nothing is finished yet")
        return
    row = next(row for row in results["rows"] if row["class"] == ALL)
    told = [
        f"dataset {row['dataset']}, target {row['target']}, setting {row['setting']}",
        f"{row['evaluation'] or 'nobody'} judges; trained on the target's rows it is right on "
        f"{_percent(row['real_rows_accuracy'])}% of held-out private rows, trained on others on "
        f"{_percent(row['disjoint_real_rows_accuracy'])}%",
        "acc: % of rows taken for their class; then differences to as many public rows that the target sorted into "
        "the classes: accuracy under both judges, class shapes, distinct nearest rows, nearness to training rows",
        "cond: % of public rows that a classifier names rightly which learned from the made rows "
        f"({_percent(row['public_condition_accuracy'])}% from public ones); n: trainings",
    ]
    console.print("; ".join(told), soft_wrap=True, highlight=False, markup=False)
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column("attack", max_width=18, overflow="fold")
    grid.add_column("search", no_wrap=True)
    for name in ("acc", *COLUMNS, "cond", "n"):
        grid.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        grid.add_row(
            str(group["label"]),
            str(group["latent_search"]),
            _percent(_mean(group, "attack_accuracy")),
            *(_signed(name, _mean(group, f"over_public_{name}")) for name in MEASURES),
            _percent(_mean(group, "condition_accuracy")),
            str((group.get("inversion_loss") or {}).get("n", 0)),
        )
    console.print(grid, highlight=False)


def _mean(group: Mapping[str, Any], name: str) -> float | None:
    value: float | None = (group.get(name) or {}).get("mean")
    return value


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _signed(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value if name == 'distinct_nearest_rows' else 100 * value:+.1f}"
