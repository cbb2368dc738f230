"""How norms differ with a property: in populations (Table II, Figure 2), before and after refinement (Figure 4)."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lightleak.attacks.property_inference.norms import NORMS, record_norms
from lightleak.core.seeds import generator
from lightleak.experiments.campaign import progress_bar
from lightleak.experiments.kinds.vertical.job import Trained, plan_jobs
from lightleak.experiments.kinds.vertical.rows import norm_entries
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.metrics.norm_distributions import draw_populations, norm_distances, sorted_norm_distances
from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.vertical.grid import Result, Rows
from lightleak.reproductions.vertical.settings import audit_of, training_of

DISTANCES = {"kl_divergence": "kl", "js_divergence": "js", "bhattacharyya_coefficient": "bc"}
STUDY = PaperCell("absolute_error", "fraction", math.nan, dataset="adult", property_name="sex=Male", adversary="C1")
"""The case that is studied; the paper names it for Figure 4 only."""


def norm_study(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table II and Figure 2: distances between norms of VO in populations of different fractions."""
    cells = list(table.cells) or [
        PaperCell(metric, "distance", math.nan, option="norm", value=norm, gap=gap)
        for gap in (0.25, 0.5, 0.75, 1.0)
        for norm in ("l1", "l2", "linf")
        for metric in DISTANCES
    ]
    rows: Rows = []
    with progress_bar("trainings", len(selection.seeds), quiet) as report:
        for seed in selection.seeds:
            kept = unit_file(folder, f"norms-s{seed}")
            if not kept.is_file():
                write_whole(kept, json.dumps(_distances(_study(seed, selection, device), folder, seed)))
            rows += json.loads(kept.read_text())
            report(1)
    compared = [
        Compared(cell, summarize(row[DISTANCES[cell.metric]] for row in rows if _same_population(row, cell)))
        for cell in cells
    ]
    return (
        compared,
        rows,
        [
            "Adult, sex=Male. The paper does not say how norms become distributions. Its KL and JS fit sorted norms "
            "divided by their sum, which is what stands here; results.json also holds 50 bins. JS is the root "
            "of the divergence, in nats. No reading gives its BC as well: BC must be at least exp(-KL / 2)."
        ],
    )


def _distances(done: Trained, folder: Path, seed: int) -> Rows:
    _write_norms(folder, done, seed, "passive")
    rows: Rows = []
    for norm in NORMS:
        norms = record_norms(done.observations[0].results["VO"], norm)
        for gap in (0.25, 0.5, 0.75, 1.0):
            draw = generator(seed, "populations", norm, str(gap))
            populations = draw_populations(norms, done.truth.has_property, 1 - gap, draw)
            told = {"dataset": "adult", "seed": seed, "norm": norm, "gap": gap}
            rows.append(told | {"reading": "bins"} | norm_distances(*populations).to_dict())
            rows.append(told | {"reading": "sorted"} | sorted_norm_distances(*populations).to_dict())
    return rows


def _same_population(row: dict[str, Any], cell: PaperCell) -> bool:
    return bool((row["reading"], row["norm"], row["gap"]) == ("sorted", str(cell.value).lower(), cell.gap))


def refined_norms(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Figure 4: norms of AO with and without the property, before and after model refinement."""
    rows: Rows = []
    for seed in selection.seeds:
        for variant in ("passive", "MR"):
            kept = unit_file(folder, f"{variant}-s{seed}")
            if not kept.is_file():
                done = _study(seed, selection, device, None if variant == "passive" else variant)
                entries = _write_norms(folder, done, seed, variant)
                told = next(entry for entry in entries if entry["kind"] == "AO" and entry["norm"] == "l1")
                row = {"dataset": "adult", "seed": seed, "variant": variant, **told["distances"]}
                write_whole(kept, json.dumps(row))
            rows.append(json.loads(kept.read_text()))
    compared = [
        Compared(
            PaperCell("bhattacharyya_coefficient", "distance", math.nan, dataset="adult", variant=variant),
            summarize(row["bc"] for row in rows if row["variant"] == variant),
        )
        for variant in ("passive", "MR")
    ]
    return compared, rows, ["Overlap (Bhattacharyya coefficient) of the L1 norms of AO with and without the property."]


def _study(seed: int, selection: Selection, device: torch.device, variant: str | None = None) -> Trained:
    attack = "provfl_b" if variant is None else "provfl_m"
    cell = replace(STUDY, attack=attack, variant=variant)
    training = training_of(cell, selection.as_published)
    config = audit_of(training, [cell], selection.as_published, (seed,), selection.data_folder)
    return plan_jobs(config)[0].train(device, lambda _: None)


def _write_norms(folder: Path, done: Trained, seed: int, variant: str) -> Rows:
    told = {"dataset": "adult", "defense": "none", "seed": seed, "variant": variant}
    entries = [entry | told for entry in norm_entries(done.observations[0], done.truth)]
    write_whole(folder / "norms" / f"{variant}-s{seed}.json", json.dumps(entries))
    return entries
