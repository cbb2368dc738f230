"""The table on the terminal after an audit of a released model."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from lightleak.audit.released.rows import ALL


def print_released_summary(results: Mapping[str, Any], console: Console) -> None:
    """One line per attack and latent search over all classes, means over evaluations; it fits 80 columns.

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
        f"{row['evaluation'] or 'nobody'} judges, right on {_percent(row['ceiling'])} of held-out private rows",
        "right, shapes, pairs: in %",
    ]
    console.print("; ".join(told), soft_wrap=True, highlight=False, markup=False)
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column("attack", max_width=24, overflow="fold")
    grid.add_column("search", no_wrap=True)
    for name in ("right", "dev", "shapes", "pairs", "loss", "n", "s"):
        grid.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        accuracy = group.get("attack_accuracy") or {}
        grid.add_row(
            str(group["label"]),
            str(group["latent_search"]),
            _percent(accuracy.get("mean")),
            _percent(accuracy.get("std")),
            _percent((group.get("shapes_score") or {}).get("mean")),
            _percent((group.get("pair_trends_score") or {}).get("mean")),
            _number((group.get("inversion_loss") or {}).get("mean")),
            str((group.get("seconds") or {}).get("n", 0)),
            _number((group.get("fit_seconds") or {}).get("mean"), 0),
        )
    console.print(grid, highlight=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
