"""What a run leaves behind: results.json, environment.json, and the table on the terminal."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table as Grid

from lightleak.audit.unit import without_nan
from lightleak.metrics.summary import summarise_rows

SCHEMA_VERSION = 1
GROUP_KEYS = ("dataset", "target", "protocol", "attack", "batch_size", "labels", "defense", "source", "epoch")
"""Rows that agree on these are batches of one experiment; a summary entry is one such group."""

_PACKAGES = ("lightleak", "torch", "lightning", "torchmetrics", "numpy", "pandas", "scipy", "scikit-learn")


def write_results(folder: Path, rows: Sequence[dict[str, Any]], extra_keys: Sequence[str] = ()) -> dict[str, Any]:
    """Write ``results.json`` and return its content: every row, and mean, deviation, n and 95% interval per group."""
    keys = [key for key in (*GROUP_KEYS, *extra_keys) if any(key in row for row in rows)]
    results: dict[str, Any] = without_nan(
        {"schema_version": SCHEMA_VERSION, "rows": list(rows), "summary": summarise_rows(list(rows), keys)}
    )
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    return results


def write_environment(folder: Path, device: torch.device, command: Sequence[str]) -> None:
    """Write ``environment.json``: versions, machine, date, command, and what the numbers depend on."""
    environment = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "packages": {name: _version(name) for name in _PACKAGES},
        "determinism": "Every unit of work has a seed of its own and one thread on a CPU: results are equal bit for "
        "bit on the same type of device and the same versions, whatever the number of workers and interruptions.",
    }
    (folder / "environment.json").write_text(json.dumps(environment, indent=1))


def print_summary(results: dict[str, Any], console: Console) -> None:
    """The summary as a table: one line per group."""
    grid = Grid(title=None, header_style="bold")
    for name in ("dataset", "target", "clients", "batch", "labels", "attack"):
        grid.add_column(name)
    for name in ("cells right", "95% interval", "rows exact", "n", "s/batch"):
        grid.add_column(name, justify="right")
    for entry in results["summary"]:
        accuracy, exact = entry.get("cell_accuracy"), entry.get("exact_match_rate")
        source = "untrained" if entry.get("source") == "initial" else f"epoch {entry.get('epoch')}"
        interval = "-"
        if accuracy and accuracy["low"] is not None:
            interval = f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}"
        grid.add_row(
            str(entry.get("dataset")),
            str(entry.get("target")),
            source,
            str(entry.get("batch_size")),
            str(entry.get("labels")),
            str(entry.get("attack")),
            f"{100 * accuracy['mean']:.1f}%" if accuracy and accuracy["mean"] is not None else "-",
            interval,
            f"{100 * exact['mean']:.1f}%" if exact and exact["mean"] is not None else "-",
            str((accuracy or entry["seconds"])["n"]),
            f"{entry['seconds']['mean']:.2f}",
        )
    console.print(grid)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
