"""What attacks cost in seconds (Table X)."""

from dataclasses import replace
from pathlib import Path

import torch

from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperTable
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.vertical.grid import Result, vertical_table
from lightleak.reproductions.vertical.settings import attack_of


def seconds(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table X: seconds of the attacks on Adult; for ProVFL-M with what it adds to the training."""
    priced = [replace(cell, property_name="sex=Male", adversary="C1", metric="seconds") for cell in table.cells]
    _, rows, notes = vertical_table(replace(table, cells=tuple(priced)), selection, folder, device, 1, quiet)
    plain = {row["seed"]: row["training_seconds"] for row in rows if row["attack"] != "provfl_m"}
    compared = []
    for cell, meant in zip(table.cells, priced, strict=True):
        label, _ = attack_of(meant, selection.as_published)
        found = [
            row["seconds"] + (row["training_seconds"] - plain[row["seed"]] if cell.attack == "provfl_m" else 0.0)
            for row in rows
            if row["label"] == label and row["seed"] in plain
        ]
        compared.append(Compared(cell, summarize(found)))
    told = "One thread; of ProVFL-M the attack and what it adds to a training without it."
    if selection.as_published:
        told += " That training has 80% of the rows, its own 70%, as in the published code."
    return compared, rows, [*notes, told]
