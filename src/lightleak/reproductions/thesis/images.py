"""The thesis's image tables, on scikit-learn's digits, or on CelebA where its files are there (thesis Sec. 5.1)."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from lightleak.experiments.kinds.released.kind import gather_entries
from lightleak.experiments.unit import write_whole
from lightleak.report.sections.pictures import FILE_NAME, pictures_json
from lightleak.reproductions.paper.settings import note
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import Reproduction, Row, Rows, Stage, Work
from lightleak.reproductions.settings import selected
from lightleak.reproductions.thesis.image_job import ATTACKS, ImageAttack, ImageJudge
from lightleak.reproductions.thesis.image_models import (
    ImageStudy,
    image_study,
    keep_untrained,
    load_image_model,
    model_work,
)

SEARCHED = {
    ("plgmi", None): "gradient",
    ("plgmi", "random z"): "random",
    ("gan_without_target", None): "random",
    ("public_pseudo_labeled", None): "random",
}
"""Latent search behind each attack and variant of Table 5.2; the printed attack is the one with Algorithm 3."""

METRICS = {"attack_accuracy": "percent", "knn_distance": "squared_distance", "frechet_distance": "squared_distance"}


class ImageTargets(Reproduction):
    """Tables 5.1 and A.1: test accuracy of both targets."""

    noun = "networks trained"

    def choose(self) -> list[PaperCell]:
        """All of CelebA's cells, whichever dataset is compared with them."""
        chosen = self.selection
        choice = self.table.options.get("choice", "first")
        self.study = image_study(chosen.dataset, choice, chosen.data_folder, chosen.iterations)
        return selected(self.table, self.table.cells, replace(chosen, dataset=None))

    @property
    def networks(self) -> list[str]:
        """Networks of ours behind the cells."""
        return list(dict.fromkeys(self.study.networks[str(cell.network)] for cell in self.cells))

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One training per network and seed."""
        return [model_work(self.study, seed, name) for name in self.networks for seed in self.selection.seeds]

    def row(self, row: Row, stage: Stage, unit: str) -> Row:
        """The scores of a network, with its name and seed."""
        network, _, seed = unit.removeprefix("model-").rpartition("-s")
        return {"dataset": self.study.dataset, "target": network, "seed": int(seed), **row}

    def where(self, cell: PaperCell) -> Row | None:
        """The scores of the cell's network."""
        return {"target": self.study.networks[str(cell.network)]}

    def is_comparable(self, cell: PaperCell) -> bool:
        """Distances in the features of two evaluation models are not compared, whatever the images."""
        return self.study.dataset == cell.dataset and cell.unit == "percent"

    def notes(self, rows: Rows) -> list[str]:
        """What was trained on what, and how well it knows its training images."""
        return [*_notes(self.study, "choice" in self.table.options), *self.own_notes(rows)]

    def own_notes(self, rows: Rows) -> list[str]:
        """Notes of this table alone."""
        found = {name: fmean(row["train_accuracy"] for row in rows if row["target"] == name) for name in self.networks}
        accuracies = ", ".join(f"{name} {share:.1%}" for name, share in found.items())
        return [note("thesis", "trained", accuracies=accuracies)]


class ImageInversions(ImageTargets):
    """Table 5.2: the attack on both targets, and below it what the thesis lacks: random z and two baselines."""

    def choose(self) -> list[PaperCell]:
        """The selected cells, and those of the other searches and of the baselines without a printed value."""
        cells = super().choose()
        everywhere = replace(self.selection, dataset=None)
        added = [
            PaperCell(metric, unit, math.nan, dataset=cells[0].dataset, network=network, attack=attack, variant=variant)
            for attack, variant in list(SEARCHED)[1:]
            for network in dict.fromkeys(cell.network for cell in cells)
            for metric, unit in METRICS.items()
        ]
        return cells + [cell for cell in added if everywhere.keeps(cell)]

    @property
    def networks(self) -> list[str]:
        """See `ImageTargets.networks`; the network that judges is the last."""
        return [*super().networks, self.study.evaluation]

    def stages(self) -> Sequence[Stage]:
        """The trainings, then the attacks."""
        trained = Stage(super().packs, self.noun, reported=False)
        return [trained, Stage(self.attacks, "attacks on images", rehearse=self.rehearse)]

    def rehearse(self, folder: Path) -> None:
        """Keep untrained networks, to time the attacks on them."""
        for name in dict.fromkeys(self.networks):
            for seed in self.selection.seeds:
                keep_untrained(self.study, name, seed, folder)

    def attacks(self, folder: Path, device: torch.device) -> list[Work]:
        """One attack per seed, released network and name."""
        chosen = {cell.attack for cell in self.cells}
        return [
            ImageAttack(self.study, seed, network, name).work
            for seed in self.selection.seeds
            for network in super(ImageInversions, self).networks
            for name in ATTACKS
            if name in chosen
        ]

    def row(self, row: Row, stage: Stage, unit: str) -> Row:
        """Return the row unchanged."""
        return row

    def where(self, cell: PaperCell) -> Row | None:
        """The rows of the cell's search; None for what another paper printed."""
        search = SEARCHED.get((str(cell.attack), cell.variant))
        if search is None:
            return None
        return {"attack": cell.attack, "latent_search": search, **(super().where(cell) or {})}

    def leave(self, rows: Rows, folder: Path) -> None:
        """Entries and pictures for the report, and scores of held-out images for the notes."""
        gather_entries(folder)
        _gather_pictures(rows, self.selection.seeds[0], folder)
        self.held_out = _held_out(self.study, self.selection.seeds, folder, self.device)

    def own_notes(self, rows: Rows) -> list[str]:
        """How generators were trained, and what cannot be exceeded."""
        iterations = self.study.attack.gan.iterations
        return [note("thesis", "iterations", iterations=iterations), self.held_out]


def _notes(study: ImageStudy, has_choice: bool) -> list[str]:
    if study.dataset == "celeba":
        choice = "most populous" if study.choice == "most_populous" else "first"
        return [note("thesis", "celeba", choice=choice)]
    ours = "; ".join(f"for {printed} {own}" for printed, own in study.networks.items())
    balanced = note("thesis", "balanced") if has_choice else ""
    return [note("thesis", "digits", ours=ours, evaluation=study.evaluation, balanced=balanced)]


def _held_out(study: ImageStudy, seeds: Sequence[int], folder: Path, device: torch.device) -> str:
    """Score private images that were not trained on: an upper bound for reconstructions."""
    scores: list[dict[str, Any]] = []
    for seed in seeds:
        task = study.task(seed)
        judge = ImageJudge(load_image_model(study, study.evaluation, seed, folder).to(device), task)
        scores.append(judge.score(task.private_test.pixels, task.private_test.labels))
    means = {name: fmean(one[name] for one in scores) for name in METRICS}
    return note("thesis", "held_out", n=len(task.private_test), **means)


def _gather_pictures(rows: Rows, seed: int, folder: Path) -> None:
    """Write the pictures of one seed for the report."""
    grids = []
    for row in rows:
        if row["seed"] == seed:
            kept = json.loads((folder / "pictures" / f"{row['unit']}.json").read_text())
            grids.append({"target": row["target"], "attack": row["attack"], "search": row["latent_search"], **kept})
    write_whole(folder / FILE_NAME, pictures_json(grids))
