"""The thesis's image tables, on scikit-learn's digits, or on CelebA where its files are there (thesis Sec. 5.1)."""

import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.model_inversion.attack import Workplace
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.image_inversion import (
    FittedImages,
    ImageInversionConfig,
    ImageSamples,
    as_floats,
    image_logits,
    invert_images,
)
from lightleak.attacks.model_inversion.inversion_loss import cross_entropy
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabels, pseudo_label
from lightleak.core.former_names import REGISTERED
from lightleak.core.records import to_json
from lightleak.core.results import ALL
from lightleak.core.seeds import derive_seed, generator
from lightleak.core.stored import read_json, write_json, write_whole
from lightleak.data.images import ImageTask, LabeledImages, to_pixels
from lightleak.experiments.kinds.released.judge import fact_sheet
from lightleak.experiments.kinds.released.kind import gather_entries
from lightleak.experiments.kinds.released.rows import thinned
from lightleak.metrics.inversion.attack_accuracy import accuracy_of_counts, class_counts
from lightleak.metrics.inversion.image_distances import frechet_distance, knn_distance
from lightleak.report.sections.pictures import FILE_NAME, picture_row, pictures_json
from lightleak.reproductions.paper.values import PaperCell, note, paper_settings
from lightleak.reproductions.reproduction import MOST_TRAININGS, Place, Reproduction, Row, Rows, Stage, Work
from lightleak.reproductions.settings import selected
from lightleak.reproductions.thesis.image_models import ImageStudy, image_model_scores, image_study
from lightleak.targets.image_resnet import ImageResNet

IMAGE_ATTACKS = paper_settings("thesis")["image_attacks"]
ATTACKS: dict[str, list[str]] = {name: one["searches"] for name, one in IMAGE_ATTACKS.items()}
"""Attacks and baselines with their latent searches."""

SEEDED_AS = {new: old for old, new in REGISTERED.items()}
"""Names from which seeds are derived, where an attack has another name today: the same images are drawn as before."""


class ImageJudge:
    """The truth: the evaluation model, and the private images that both models were trained on."""

    def __init__(self, network: ImageResNet, task: ImageTask) -> None:
        self._network, self._private = network, task.private_train
        self._n_classes = task.n_classes
        self._features = self.features(task.private_train.pixels)

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """What the evaluation model's last layer sees, ``[n, f]``, on the CPU."""
        device = self._network.output.weight.device
        return torch.cat([self._network.features(as_floats(part).to(device)).cpu() for part in images.split(1024)])

    def score(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
        """Scores of images that were made for ``labels``, as columns of a row.

        ``attack_accuracy`` with Wilson's interval over images; ``by_class``, the same by class; ``knn_distance``, the
        squared distance of features to the nearest private image of the class, as in PLG-MI's published code;
        ``knn_pixels``, Eq. 3.14 on images in [-1, 1]; ``frechet_distance``, Eq. 3.12 on features.
        """
        features = self.features(images)
        with torch.no_grad():
            logits = self._network.output(features.to(self._network.output.weight.device)).float().cpu()
        accuracy = accuracy_of_counts(*class_counts(logits, labels, self._n_classes))
        private = self._private
        near = knn_distance(features, labels, self._features, private.labels, squared=True)
        return {
            "attack_accuracy": float(accuracy["mean"]),
            "attack_accuracy_low": float(accuracy["pooled_low"]),
            "attack_accuracy_high": float(accuracy["pooled_high"]),
            "by_class": dict(zip(private.names, accuracy["per_class"].tolist(), strict=True)),
            "knn_distance": float(near.mean()),
            "knn_pixels": float(knn_distance(as_floats(images), labels, private.images, private.labels).mean()),
            "frechet_distance": frechet_distance(features, self._features),
        }

    def pictures(self, samples: ImageSamples, classes: Sequence[int]) -> list[dict[str, Any]]:
        """The first image made of each class, not the best, above the private one it is nearest to (Fig. 5.1)."""
        first = [int(torch.nonzero(samples.labels == index)[0]) for index in classes]
        made = samples.images[first]
        nearest = []
        for index, image in zip(classes, made, strict=True):
            own = torch.nonzero(self._private.labels == index).squeeze(1)
            apart = (as_floats(self._private.pixels[own]) - image).flatten(1).square().sum(1)
            nearest.append(int(own[apart.argmin()]))
        return [
            picture_row("made up", to_pixels(made).numpy(), private=False),
            picture_row("nearest private image", self._private.pixels[nearest].numpy(), private=True),
        ]


@dataclass(frozen=True)
class ImageAttack:
    """One attack on one network.

    Attributes:
        study: settings.
        seed: root seed.
        network: name of the released network.
        attack: a key of `ATTACKS`.
    """

    study: ImageStudy
    seed: int
    network: str
    attack: str

    @property
    def work(self) -> Work:
        """Its pack: one unit per search."""
        return Work([self._unit(search) for search in ATTACKS[self.attack]], self.run, self._cost)

    @property
    def _cost(self) -> float:
        """Iterations of the generator."""
        return 1.0 if self.attack == "public_pseudo_labeled" else float(self.study.attack.gan.iterations)

    def run(self, at: Place) -> Iterator[dict[str, Any]]:
        """Fit the generator, make and judge images, and yield a row for every search."""
        task, folder, device = self.study.task(self.seed), at.folder, at.device
        target = self.study.load_model(self.network, self.seed, folder).to(device)
        judge = ImageJudge(self.study.load_model(self.study.evaluation, self.seed, folder).to(device), task)
        config, seed = self._config(), derive_seed(self.seed, SEEDED_AS.get(self.attack, self.attack), self.network)
        fitted = None
        if self.attack == "public_pseudo_labeled":
            chosen = pseudo_label(image_logits(target, task.public.pixels, device), config.pseudo_labels)
        else:
            place = folder / "generators" / f"{self.attack}-{self.network}-s{self.seed}"
            workplace = Workplace(device, place, lambda fraction: at.report(fraction * self._cost))
            fitted = invert_images(target, task.public.pixels, task.n_classes, config, seed, workplace)
            chosen = fitted.chosen
        labels = torch.tensor(chosen.classes).repeat_interleave(self.study.per_class)
        for search in ATTACKS[self.attack]:
            if fitted is None:
                samples = public_samples(target, task.public, chosen, labels, seed, device)
            else:
                samples = fitted.generate(labels, derive_seed(seed, "samples"), search)
            yield self._row(folder, judge, chosen, fitted, samples)
        shutil.rmtree(folder / "generators", ignore_errors=True)  # checkpoints: every sample is made

    def _unit(self, search: str) -> str:
        return f"{self.attack}-{search}-{self.network}-s{self.seed}"

    def _config(self) -> ImageInversionConfig:
        config = self.study.attack
        if self.attack == "gan_without_target":
            return replace(config, gan=replace(config.gan, inversion_weight=0.0))
        return config

    def _row(
        self, folder: Path, judge: ImageJudge, chosen: PseudoLabels, fitted: FittedImages | None, samples: ImageSamples
    ) -> dict[str, Any]:
        """The row of a search; its entry for the report and its pictures are written."""
        unit, task = self._unit(samples.search), self.study.task(self.seed)
        names = task.private_train.names
        models = {
            role: image_model_scores(name, self.seed, folder)
            for role, name in (("target", self.network), ("evaluation", self.study.evaluation))
        }
        facts = {
            "label": self.attack,
            "attack": self.attack,
            "setting": None,
            "seed": self.seed,
            "dataset": self.study.dataset,
            "latent_search": samples.search,
        }
        row = {
            "unit": unit,
            "kind": "released-model",
            "protocol": "released",
            **facts,
            "target": self.network,
            "evaluation": self.study.evaluation,
            "evaluation_index": 0,
            "class": ALL,
            "real_rows_accuracy": models["evaluation"].test_accuracy,
            "target_test_accuracy": models["target"].test_accuracy,
            "target_train_accuracy": models["target"].train_accuracy,
            "inversion_loss": float(samples.loss.double().mean()),
            "inversion_loss_start": float(samples.before.double().mean()),
            "samples": len(samples.labels),
            "excluded_classes": len(chosen.excluded),
            "seconds": samples.seconds,
            "fit_seconds": 0.0 if fitted is None else fitted.seconds,
            "threat_model": IMAGE_ATTACKS[self.attack]["threat"],
            "options": {} if fitted is None else asdict(self._config()),
            **judge.score(samples.images, samples.labels),
        }
        entry = facts | {
            "losses": {} if fitted is None else thinned(fitted.gan.losses()),
            "pseudo_labels": [{**one, "class": names[one["class"]]} for one in chosen.summary()],
            "task": {
                "private_rows": len(task.private_train),
                "private_test_rows": len(task.private_test),
                "public_rows": len(task.public),
                "classes": task.n_classes,
                "features": math.prod(task.public.shape),
            },
            **{f"{role}_scores": fact_sheet(scores) for role, scores in models.items()},
        }
        shown = chosen.classes[: self.study.shown]
        write_json(folder / "inversion" / f"{unit}.json", to_json(entry))
        pictures = {"classes": [names[index] for index in shown], "rows": judge.pictures(samples, shown)}
        write_json(folder / "pictures" / f"{unit}.json", pictures)
        return row


def public_samples(
    target: ImageResNet, public: LabeledImages, chosen: PseudoLabels, labels: Tensor, seed: int, device: torch.device
) -> ImageSamples:
    """Pseudo-labeled public images, drawn with replacement."""
    began = time.perf_counter()
    sampler = ClassSampler(chosen.rows, chosen.labels, len(chosen.used))
    images = as_floats(public.pixels[sampler.draw_rows(labels, generator(seed, "public images"))])
    loss = cross_entropy(image_logits(target, images, device), labels)
    return ImageSamples(images, labels, loss, loss, "random", time.perf_counter() - began)


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
    repeats = "seeds"
    most = MOST_TRAININGS
    has_code = False

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
        return [self.study.model_work(name, seed) for name in self.networks for seed in self.selection.seeds]

    def row(self, row: Row, stage: Stage, unit: str) -> Row:
        """The scores of a network, with its name and seed."""
        network, _, seed = unit.removeprefix("model-").rpartition("-s")
        return {"dataset": self.study.dataset, "target": network, "seed": int(seed), **row}

    def where(self, cell: PaperCell) -> Row | None:
        """The scores of the cell's network."""
        return {"target": self.study.networks[str(cell.network)]}

    def stand_in(self, cell: PaperCell) -> str | None:
        """See `Reproduction.stand_in`."""
        return None if self.study.dataset == cell.dataset else f"{self.study.dataset} (stand-in)"

    def is_comparable(self, cell: PaperCell) -> bool:
        """Distances in the features of two evaluation models are not compared, whatever the images."""
        return super().is_comparable(cell) and cell.unit == "percent"

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """What was trained on what, and how well it knows its training images."""
        found = {name: fmean(row["train_accuracy"] for row in rows if row["target"] == name) for name in self.networks}
        return {**self.on_images, "trained": {"accuracies": ", ".join(f"{name} {x:.1%}" for name, x in found.items())}}

    @property
    def on_images(self) -> Mapping[str, Mapping[str, Any]]:
        """What the images and networks are."""
        study = self.study
        if study.dataset == "celeba":
            return {"celeba": {"choice": study.choice.replace("_", " ")}}
        ours = "; ".join(f"for {printed} {own}" for printed, own in study.networks.items())
        balanced = note("thesis", "balanced") if "choice" in self.table.options else ""
        return {"digits": {"ours": ours, "evaluation": study.evaluation, "balanced": balanced}}


class ImageInversions(ImageTargets):
    """Table 5.2: the attack on both targets, and below it what the thesis lacks: random z and two baselines."""

    def choose(self) -> list[PaperCell]:
        """The selected cells, and those of the other searches and of the baselines without a printed value."""
        cells = super().choose()
        self.iterations = self.study.attack.gan.iterations
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
                self.study.keep_untrained(name, seed, folder)

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

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """How generators were trained, and what cannot be exceeded."""
        iterations = {"iterations": self.study.attack.gan.iterations}
        return {**self.on_images, "iterations": iterations, "held_out": self.held_out}


def _held_out(study: ImageStudy, seeds: Sequence[int], folder: Path, device: torch.device) -> dict[str, float]:
    """Score private images that were not trained on: an upper bound for reconstructions."""
    scores: list[dict[str, Any]] = []
    for seed in seeds:
        task = study.task(seed)
        judge = ImageJudge(study.load_model(study.evaluation, seed, folder).to(device), task)
        scores.append(judge.score(task.private_test.pixels, task.private_test.labels))
    return {"n": len(task.private_test), **{name: fmean(one[name] for one in scores) for name in METRICS}}


def _gather_pictures(rows: Rows, seed: int, folder: Path) -> None:
    """Write the pictures of one seed for the report."""
    grids = []
    for row in rows:
        if row["seed"] == seed:
            kept = read_json(folder / "pictures" / f"{row['unit']}.json")
            grids.append({"target": row["target"], "attack": row["attack"], "search": row["latent_search"], **kept})
    write_whole(folder / FILE_NAME, pictures_json(grids))
