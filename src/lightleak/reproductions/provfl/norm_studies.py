"""How norms differ with a property: in populations (Table II, Figure 2), before and after refinement (Figure 4)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch

from lightleak.attacks.property_inference.norms import NORMS, record_norms
from lightleak.core.seeds import generator
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.job import Trained, plan_jobs
from lightleak.experiments.kinds.vertical.rows import norm_entries
from lightleak.experiments.unit import write_whole
from lightleak.metrics.norm_distributions import draw_populations, norm_distances, sorted_norm_distances
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.provfl.settings import audit_of, training_of
from lightleak.reproductions.reproduction import Place, Reproduction, Row, Rows, Work

STUDY = PaperCell("absolute_error", "fraction", math.nan, dataset="adult", property_name="sex=Male", adversary="C1")
"""The case that is studied; the paper names it for Figure 4 only."""
PASSIVE = "passive"
"""The training in which the adversary only watches."""


class NormStudy(Reproduction):
    """Norms of what one training exchanges, seed by seed."""

    noun = "trainings"

    def choose(self) -> list[PaperCell]:
        """All cells: they name nothing that a selection narrows."""
        return list(self.table.cells or self.table.drawn)

    def audit(self, seed: int, variant: str = PASSIVE) -> VerticalConfig:
        """The audit of the studied case, with refinement where the variant says so."""
        passive = variant == PASSIVE
        cell = replace(STUDY, attack="provfl_b" if passive else "provfl_m", variant=None if passive else variant)
        published = self.selection.as_published
        return audit_of(training_of(cell, published), [cell], published, (seed,), self.selection.data_folder)

    def train(self, seed: int, variant: str, at: Place) -> tuple[Trained, Rows]:
        """Train, and keep the norms for the report."""
        done = plan_jobs(self.audit(seed, variant))[0].train(at.device, at.report)
        facts = {"dataset": "adult", "defense": "none", "seed": seed, "variant": variant}
        entries = [entry | facts for entry in norm_entries(done.observations[0], done.truth)]
        write_whole(at.folder / "norms" / f"{variant}-s{seed}.json", json.dumps(entries))
        return done, entries


class NormDistances(NormStudy):
    """Table II and Figure 2: distances between norms of VO in populations of different fractions."""

    columns: ClassVar[Mapping[str, str]] = {
        "kl_divergence": "kl",
        "js_divergence": "js",
        "bhattacharyya_coefficient": "bc",
    }

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One training per seed."""
        return [
            Work([f"norms-s{seed}"], partial(self.distances, seed), self.audit(seed).training.epochs)
            for seed in self.selection.seeds
        ]

    def distances(self, seed: int, at: Place) -> list[Rows]:
        """Rows of one training, by norm, gap, and how norms become a distribution."""
        done, _ = self.train(seed, PASSIVE, at)
        rows: Rows = []
        for norm in NORMS:
            norms = record_norms(done.observations[0].results["VO"], norm)
            for gap in (0.25, 0.5, 0.75, 1.0):
                draw = generator(seed, "populations", norm, str(gap))
                populations = draw_populations(norms, done.truth.has_property, 1 - gap, draw)
                facts = {"dataset": "adult", "seed": seed, "norm": norm, "gap": gap}
                rows.append(facts | {"reading": "bins"} | norm_distances(*populations).to_dict())
                rows.append(facts | {"reading": "sorted"} | sorted_norm_distances(*populations).to_dict())
        return [rows]

    def where(self, cell: PaperCell) -> Row:
        """The distances of the cell's population."""
        return {"reading": "sorted", "norm": str(cell.value).lower(), "gap": cell.gap}


class RefinedNorms(NormStudy):
    """Figure 4: norms of AO with and without the property, before and after model refinement."""

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One training per seed and variant."""
        return [
            Work([f"{cell.variant}-s{seed}"], partial(self.overlap, cell, seed), self.audit(seed).training.epochs)
            for seed in self.selection.seeds
            for cell in self.cells
        ]

    def overlap(self, cell: PaperCell, seed: int, at: Place) -> Rows:
        """Distances of the L1 norms of one training."""
        variant = str(cell.variant)
        _, entries = self.train(seed, variant, at)
        norms = next(entry for entry in entries if entry["kind"] == "AO" and entry["norm"] == "l1")
        return [{"dataset": "adult", "seed": seed, "variant": variant, **norms["distances"]}]

    def where(self, cell: PaperCell) -> Row:
        """The distances of the cell's variant."""
        return {"variant": cell.variant}

    def column(self, cell: PaperCell) -> str:
        """The overlap."""
        return "bc"
