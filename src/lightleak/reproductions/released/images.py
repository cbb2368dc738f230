"""The thesis's image tables, on scikit-learn's digits, or on CelebA where its files are there (thesis Sec. 5.1)."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from lightleak.data.celeba import PrivateChoice
from lightleak.experiments.campaign import run_packs
from lightleak.experiments.kinds.released.run import gather_entries
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.metrics.summary import summarize
from lightleak.report.released.pictures import FILE_NAME, pictures_json
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.released.image_job import ATTACKS, ImageAttackPack, ImageJudge
from lightleak.reproductions.released.image_models import ImageModelPack, image_model_scores, load_image_model
from lightleak.reproductions.released.image_study import ImageStudy, image_study
from lightleak.reproductions.released.reproduce import Result, Rows
from lightleak.reproductions.settings import Selection, selected

CHOICES: dict[str, PrivateChoice] = {"thesis-tableA.1": "most_populous"}
"""Which identities of CelebA are private, where it is not the first 1,000."""

SEARCHED = {
    ("plgmi", None): "gradient",
    ("plgmi", "random z"): "random",
    ("gan_without_target", None): "random",
    ("public_pseudo_labelled", None): "random",
}
"""Latent search behind each attack and variant of Table 5.2; the printed attack is the one with Algorithm 3."""

METRICS = {"attack_accuracy": "percent", "knn_distance": "squared_distance", "frechet_distance": "squared_distance"}


def image_targets(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Tables 5.1 and A.1: test accuracy of both targets."""
    study, cells = _study(table, selection)
    networks = dict.fromkeys(study.networks[str(cell.network)] for cell in cells)
    run_packs(
        partial(_models, study, selection.seeds, tuple(networks)), folder, device, workers, quiet, "networks trained"
    )
    scores = {name: [image_model_scores(name, seed, folder) for seed in selection.seeds] for name in networks}
    rows = [
        {
            "dataset": study.dataset,
            "target": name,
            "seed": seed,
            "train_accuracy": found.train_accuracy,
            "test_accuracy": found.test_accuracy,
            "epochs": found.epochs,
            "seconds": found.seconds,
        }
        for name, of_network in scores.items()
        for seed, found in zip(selection.seeds, of_network, strict=True)
    ]
    compared = [
        _compared(study, cell, [found.test_accuracy for found in scores[study.networks[str(cell.network)]]])
        for cell in cells
    ]
    trained = ", ".join(f"{name} {_percent([one.train_accuracy for one in found])}" for name, found in scores.items())
    return compared, rows, [*_notes(study, table.name), f"Accuracy on the training images: {trained}."]


def image_attacks(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Table 5.2: the attack on both targets, and below it what the thesis lacks: random z and two baselines."""
    study, cells = _study(table, selection)
    everywhere = replace(selection, dataset=None)
    beside = [
        PaperCell(metric, unit, math.nan, dataset=cells[0].dataset, network=network, attack=attack, variant=variant)
        for attack, variant in list(SEARCHED)[1:]
        for network in dict.fromkeys(cell.network for cell in cells)
        for metric, unit in METRICS.items()
    ]
    cells += [cell for cell in beside if everywhere.keeps(cell)]
    networks = dict.fromkeys(study.networks[str(cell.network)] for cell in cells)
    trained = partial(_models, study, selection.seeds, (*networks, study.evaluation))
    run_packs(trained, folder, device, workers, quiet, "networks trained")
    attacks = tuple(dict.fromkeys(str(cell.attack) for cell in cells))
    plan = partial(_attacks, study, selection.seeds, tuple(networks), attacks)
    ids = run_packs(plan, folder, device, workers, quiet, "attacks on images")
    rows: Rows = [json.loads(unit_file(folder, id).read_text()) for id in ids]
    shutil.rmtree(folder / "generators", ignore_errors=True)  # checkpoints: every sample is made
    gather_entries(folder)
    _gather_pictures(rows, selection.seeds[0], folder)
    compared = [_compared(study, cell, _of_cell(study, cell, rows)) for cell in cells]
    notes = [
        *_notes(study, table.name),
        f"Generators were trained for {study.attack.gan.iterations:,} iterations (Table 4.1: 30,000).",
        _held_out(study, selection.seeds, folder, device),
    ]
    return compared, rows, notes


IMAGE_REPRODUCTIONS: dict[str, Callable[..., Result]] = {
    "thesis-table5.1": image_targets,
    "thesis-table5.2": image_attacks,
    "thesis-tableA.1": image_targets,
}
"""What runs each table."""


def _study(table: PaperTable, selection: Selection) -> tuple[ImageStudy, list[PaperCell]]:
    """The study of the chosen dataset, and the cells that it stands beside: all of CelebA, whatever the dataset."""
    study = image_study(
        selection.dataset, CHOICES.get(table.name, "first"), selection.data_folder, selection.iterations
    )
    return study, selected(table, table.cells, replace(selection, dataset=None))


def _models(
    study: ImageStudy, seeds: Sequence[int], networks: Sequence[str], device: torch.device
) -> list[ImageModelPack]:
    return [ImageModelPack(study, seed, name) for seed in seeds for name in networks]


def _attacks(
    study: ImageStudy, seeds: Sequence[int], networks: Sequence[str], attacks: Sequence[str], device: torch.device
) -> list[ImageAttackPack]:
    known = [name for name in ATTACKS if name in attacks]
    return [ImageAttackPack(study, seed, network, name) for seed in seeds for network in networks for name in known]


def _of_cell(study: ImageStudy, cell: PaperCell, rows: Rows) -> list[float]:
    """Values of the rows behind a cell; none for what another paper printed."""
    place = (cell.attack, SEARCHED.get((str(cell.attack), cell.variant)), study.networks[str(cell.network)])
    return [row[cell.metric] for row in rows if (row["attack"], row["latent_search"], row["target"]) == place]


def _compared(study: ImageStudy, cell: PaperCell, values: Sequence[float]) -> Compared:
    """Distances depend on the features of one evaluation model: those of two are not compared, whatever the images."""
    scale = 100.0 if cell.unit == "percent" else 1.0
    same = study.dataset == cell.dataset and cell.unit == "percent"
    return Compared(cell, summarize(scale * value for value in values), same_data=same)


def _notes(study: ImageStudy, name: str) -> list[str]:
    if study.dataset == "celeba":
        which = "most populous" if study.choice == "most_populous" else "first"
        return [
            f"CelebA with its {which} 1,000 identities as private classes. Our networks begin with random weights, the "
            "thesis's with those of ImageNet, and their first layer is a 3x3 convolution without pooling."
        ]
    ours = "; ".join(f"for {printed} {own}" for printed, own in study.networks.items())
    other = (
        " The table's other choice of private identities has no counterpart: the digits are balanced."
        if name in CHOICES
        else ""
    )
    return [
        "Ours is scikit-learn's digits, 8 x 8 pixels: 0 to 4 are private, 5 to 9 public. The thesis's is CelebA, so "
        f"the two columns show whether the picture is the same, not agreement. Networks: {ours}; the evaluation model "
        f"is {study.evaluation}, the thesis's ResNet-50. None begins with weights of other images.{other}"
    ]


def _held_out(study: ImageStudy, seeds: Sequence[int], folder: Path, device: torch.device) -> str:
    """What images score that are private and were not trained on: what no reconstruction can be asked to exceed."""
    scores: list[dict[str, Any]] = []
    for seed in seeds:
        task = study.task(seed)
        judge = ImageJudge(load_image_model(study, study.evaluation, seed, folder).to(device), task)
        scores.append(judge.score(task.private_test.pixels, task.private_test.labels))
    means = {name: fmean(one[name] for one in scores) for name in METRICS}
    return (
        f"Held-out private images ({len(task.private_test)}) score: attack accuracy "
        f"{100 * means['attack_accuracy']:.1f}%, k-NN distance {means['knn_distance']:.2f}, Frechet distance "
        f"{means['frechet_distance']:.2f}; the last is larger where there are fewer images."
    )


def _gather_pictures(rows: Rows, seed: int, folder: Path) -> None:
    """The pictures of one seed, for the report."""
    grids = []
    for row in rows:
        if row["seed"] == seed:
            kept = json.loads((folder / "pictures" / f"{row['unit']}.json").read_text())
            grids.append({"target": row["target"], "attack": row["attack"], "search": row["latent_search"], **kept})
    write_whole(folder / FILE_NAME, pictures_json(grids))


def _percent(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.1f}%"
