"""What a run leaves behind: results.json and the table on the terminal."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from lightleak.experiments.unit import without_nan, write_whole
from lightleak.metrics.summary import summarize_rows

SCHEMA_VERSION = 1
RESULTS_FILE = "results.json"
GROUP_KEYS = (
    "dataset",
    "target",
    "protocol",
    "local_epochs",
    "local_batches",
    "local_batch_size",
    "n_clients",
    "attack",
    "batch_size",
    "labels",
    "defense",
    "defense_strength",
    "epsilon",
    "release_epsilon",
    "delta",
    "source",
    "epoch",
)
"""Rows that agree on these are batches of one experiment; a summary entry is one such group."""

_CLIENTS = {"initial": "untrained", "given": "as given"}
"""What fresh clients compute on: the network before any training, or a user's own module with the weights it had."""


def results_of(
    rows: Sequence[dict[str, Any]],
    extra_keys: Sequence[str] = (),
    per: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Content of ``results.json``: every row, and mean, deviation, n and 95% interval per group.

    Args:
        rows: results rows.
        extra_keys: further columns that rows of one group agree on.
        per: see `summarize_rows`.
        left_out: why attacks that were chosen do not apply, by name; the key is there only where there are any.
    """
    keys = [key for key in (*GROUP_KEYS, *extra_keys) if any(key in row for row in rows)]
    results: dict[str, Any] = without_nan(
        {"schema_version": SCHEMA_VERSION, "rows": list(rows), "summary": summarize_rows(list(rows), keys, per)}
    )
    return results | ({"left_out": dict(left_out)} if left_out else {})


def write_results(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    extra_keys: Sequence[str] = (),
    per: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write `results_of` the rows to ``results.json`` and return it."""
    results = results_of(rows, extra_keys, per, left_out)
    write_whole(folder / RESULTS_FILE, json.dumps(results, indent=1))
    return results


def print_summary(results: dict[str, Any], console: Console) -> None:
    """The summary as a table that fits a terminal of 80 columns: a line per group, what they share said above it."""
    groups = results["summary"]
    lines = [
        {
            "dataset": str(group.get("dataset")),
            "target": str(group.get("target")),
            "labels": str(group.get("labels")),
            "clients": _CLIENTS.get(str(group.get("source"))) or _when(group),
            "batch": str(group.get("batch_size")),
            "attack": str(group.get("attack")),
            "cells": _percent(group.get("cell_accuracy")),
            "95% interval": _interval(group.get("cell_accuracy")),
            "rows": _percent(group.get("exact_match_rate")),
            "proven": _percent(group.get("certified_share")),
            "n": str(group["seconds"]["n"]),
            "s/batch": f"{group['seconds']['mean']:.2f}",
        }
        for group in groups
    ]
    if not lines:
        console.print("nothing is finished yet")
        _print_left_out(results, console)
        return
    shared = [name for name in ("dataset", "target", "labels") if len({line[name] for line in lines}) == 1]
    told = [*(f"{name} {lines[0][name]}" for name in shared), *_protocol_and_defense(groups)]
    told.append("cells and rows: share that was recovered")
    if certifies := any(line["proven"] != "-" for line in lines):
        told.append("proven: share of rows that the attack has certified, without the truth")
    console.print("; ".join(told), soft_wrap=True, highlight=False)
    grid = Grid(box=None, padding=(0, 1, 0, 0), header_style="bold")
    names = [name for name in lines[0] if name not in shared and (certifies or name != "proven")]
    for name in names:
        is_number = name not in ("dataset", "target", "labels", "clients", "attack")
        grid.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for line in lines:
        grid.add_row(*(line[name] for name in names))
    console.print(grid, highlight=False)
    _print_left_out(results, console)


def _print_left_out(results: dict[str, Any], console: Console) -> None:
    for name, reason in results.get("left_out", {}).items():
        console.print(f"left out: {name}: {reason}", soft_wrap=True, highlight=False, markup=False)


def _protocol_and_defense(groups: Sequence[dict[str, Any]]) -> list[str]:
    """What differs from plain FedSGD without a defence, where all groups agree on it."""
    told = []
    if {group.get("protocol") for group in groups} == {"fedavg"}:
        epochs = {group.get("local_epochs") for group in groups}
        told.append(f"FedAvg, local epochs {epochs.pop()}" if len(epochs) == 1 else "FedAvg")
    names = ("defense", "defense_strength", "epsilon", "release_epsilon")
    defenses = {tuple(group.get(name) for name in names) for group in groups}
    if len(defenses) == 1 and (found := defenses.pop())[0] not in (None, "none"):
        name, strength, epsilon, release = found
        told.append(f"defence {name}" + ("" if strength is None else f" {strength:g}"))
        told += [] if epsilon is None else [f"epsilon {epsilon:.3g} of the training"]
        told += [] if release is None else [f"epsilon {release:.3g} of one update whose batch is known"]
    return told


def _when(group: dict[str, Any]) -> str:
    return f"{'round' if group.get('protocol') == 'fedavg' else 'epoch'} {group.get('epoch')}"


def _percent(summary: dict[str, Any] | None) -> str:
    return "-" if summary is None or summary["mean"] is None else f"{100 * summary['mean']:.1f}%"


def _interval(summary: dict[str, Any] | None) -> str:
    if summary is None or summary["low"] is None:
        return "-"
    low, high = max(0.0, summary["low"]), min(1.0, summary["high"])  # Student's interval knows no bounds; a share has
    return f"{100 * low:.1f} to {100 * high:.1f}"
