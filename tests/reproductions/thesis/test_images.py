"""The image tables end to end, on the digits with a training of a few steps."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from lightleak.attacks.model_inversion.image_critic import ImageCritic
from lightleak.attacks.model_inversion.image_generator import ImageGenerator
from lightleak.attacks.model_inversion.image_inversion import image_logits
from lightleak.attacks.model_inversion.latent_search import GradientSearchConfig
from lightleak.attacks.model_inversion.pseudo_labels import pseudo_label
from lightleak.core.errors import DataError, UsageError
from lightleak.core.results import ReleasedRow
from lightleak.report.kinds.released_entries import entries_of
from lightleak.report.read import Run, load_run
from lightleak.report.sections.pictures import load_pictures
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduce import reproduction_of
from lightleak.reproductions.reproduction import Outcome, run_stages
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.thesis import image_models, images
from lightleak.reproductions.thesis.image_models import STUDIES, ImageStudy, image_study
from lightleak.reproductions.thesis.images import ATTACKS, METRICS, ImageJudge, public_samples
from lightleak.targets.image_resnet import build_resnet

DIGITS, CELEBA = STUDIES["digits"], STUDIES["celeba"]

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny() -> ImageStudy:
    attack = replace(
        DIGITS.attack,
        gan=replace(DIGITS.attack.gan, iterations=2, batch_size=16, latent_dim=8),
        pseudo_labels=replace(DIGITS.attack.pseudo_labels, minimum=1),
        gradient=GradientSearchConfig(steps=2),
        generator_widths=(8, 8),
        critic_widths=(8,),
    )
    return replace(
        DIGITS,
        networks=dict.fromkeys(DIGITS.networks, "resnet-6"),
        attack=attack,
        epochs=2,
        per_class=6,
    )


@pytest.fixture
def small(tiny: ImageStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "image_study", lambda *_: tiny)


def run(name: str, folder: Path, **chosen: object) -> Outcome:
    selection = Selection(**chosen)  # type: ignore[arg-type]
    return run_stages(reproduction_of(load_paper_table(name), selection, CPU), folder, quiet=True)


@pytest.mark.parametrize(("name", "cells"), [("5.1", 2), ("5.2", 3 * 3), ("A.1", 2)])
def test_every_printed_number_is_there_and_has_a_network_of_ours(name: str, cells: int) -> None:
    table = load_paper_table(f"thesis-table{name}")
    assert len(table.cells) == cells
    for cell in table.cells:
        assert cell.dataset == "celeba" and {cell.network} <= set(DIGITS.networks) & set(CELEBA.networks)
        assert cell.unit == METRICS.get(cell.metric, "percent")


@pytest.fixture(scope="module")
def attacked(tiny: ImageStudy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Table 5.2 with two seeds; with one network in both roles, its rows are those of both columns."""
    folder = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "image_study", lambda *_: tiny)
        return folder, run("thesis-table5.2", folder, seeds=(0, 1))


def test_the_attack_s_table_holds_what_was_measured(attacked: tuple[Path, Outcome]) -> None:
    folder, (compared, rows, notes) = attacked
    searches = sum(len(names) for names in ATTACKS.values())
    assert len(rows) == 2 * searches and not (folder / "generators").exists()
    printed = {(c.cell.network, c.cell.metric, c.cell.variant): c for c in compared if not math.isnan(c.cell.mean)}
    assert len(printed) == 9 and len(compared) == 9 + 2 * 3 * (searches - 1)
    for (_, metric, variant), one in printed.items():
        scale = 100 if metric == "attack_accuracy" else 1
        own = [scale * r[metric] for r in rows if (r["attack"], r["latent_search"]) == ("plgmi", "gradient")]
        assert one.agrees is None and one.ours.n == (0 if variant else 2)
        assert variant or one.ours.mean == pytest.approx(sum(own) / 2)
    assert any("another" in note or "digits" in note for note in notes) and "Held-out private images" in notes[-1]


def test_a_row_says_what_the_report_reads(attacked: tuple[Path, Outcome]) -> None:
    folder, (_, rows, _) = attacked
    for row in rows:
        assert row["samples"] == 6 * (5 - row["excluded_classes"])
        known = [value for value in row["by_class"].values() if value is not None]
        assert row["attack_accuracy"] == pytest.approx(sum(known) / len(known))
        assert 0 <= row["attack_accuracy_low"] <= row["attack_accuracy_high"] <= 1
        assert row["knn_distance"] > 0 and row["knn_pixels"] > 0 and row["frechet_distance"] > 0
        assert (row["inversion_loss"] < row["inversion_loss_start"]) == (row["latent_search"] == "gradient")
    (folder / "results.json").write_text(json.dumps({"schema_version": 1, "rows": rows, "summary": []}))
    (folder / "environment.json").write_text(json.dumps({"date": "2025-03-01T10:00:00", "packages": {}}))
    run = load_run(folder)
    assert run.kind == "released-model"
    read = run.of(ReleasedRow)
    assert {(one.attack, one.latent_search) for one in read} == {(a, s) for a, names in ATTACKS.items() for s in names}
    entries = entries_of([run])
    assert len(entries) == len(rows)
    curves = {entry.attack: entry.losses.get("inversion", ()) for entry in entries}
    assert len(curves["plgmi"]) == 2 and all(curves["plgmi"])
    assert curves["gan_without_target"] == (0.0, 0.0) and curves["public_pseudo_labeled"] == ()
    assert all(entry.size("classes") == 5 and "test_accuracy" in entry.target_scores for entry in entries)


def test_pictures_are_of_the_first_seed_and_stand_above_their_nearest(attacked: tuple[Path, Outcome]) -> None:
    folder, _ = attacked
    grids = load_pictures(Run("images", folder))
    assert [(grid.attack, grid.search) for grid in grids] == [(a, s) for a, names in ATTACKS.items() for s in names]
    for grid in grids:
        assert [row.private for row in grid.rows] == [False, True]
        assert all(len(row.png) == len(grid.classes) <= 5 for row in grid.rows)


def test_what_is_finished_is_not_run_again_and_a_selection_runs_less(
    attacked: tuple[Path, Outcome], small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, (_, rows, _) = attacked

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(image_models, "train_image_network", refuse)
    monkeypatch.setattr("lightleak.reproductions.thesis.images.invert_images", refuse)
    again = run("thesis-table5.2", folder, seeds=(0, 1))
    assert again[1] == rows
    named = run("thesis-table5.2", folder, seeds=(0, 1), dataset="digits")
    assert named[1] == rows and len(named[0]) == len(again[0])
    fewer = run("thesis-table5.2", folder, attacks=("plgmi",))
    assert [row["unit"] for row in fewer[1]] == ["plgmi-random-resnet-6-s0", "plgmi-gradient-resnet-6-s0"]
    assert {c.cell.attack for c in fewer[0]} == {"plgmi"}


def test_the_targets_table_is_their_accuracy_on_held_out_images(
    attacked: tuple[Path, Outcome], small: None, tiny: ImageStudy
) -> None:
    folder, _ = attacked  # its networks are trained
    for name in ("thesis-table5.1", "thesis-tableA.1"):
        compared, rows, notes = run(name, folder, seeds=(0, 1))
        for one in rows:
            task = tiny.task(one["seed"])
            network = tiny.load_model(one["target"], one["seed"], folder)
            right = network(task.private_test.images).argmax(1) == task.private_test.labels
            assert one["test_accuracy"] == pytest.approx(float(right.double().mean()))
        assert [c.ours.mean for c in compared] == [pytest.approx(50 * sum(r["test_accuracy"] for r in rows))] * 2
        assert {c.stand_in for c in compared} == {"digits (stand-in)"}
        assert ("balanced" in notes[0]) == (name == "thesis-tableA.1")


def test_the_judge_finds_training_images_at_no_distance(attacked: tuple[Path, Outcome], tiny: ImageStudy) -> None:
    folder, (_, rows, _) = attacked
    task = tiny.task(0)
    network = tiny.load_model(tiny.evaluation, 0, folder)
    private = task.private_train
    scores = ImageJudge(network, task).score(private.pixels, private.labels)
    right = network(private.images).argmax(1) == private.labels
    shares = [float(right[private.labels == index].double().mean()) for index in range(5)]
    assert scores["attack_accuracy"] == pytest.approx(sum(shares) / 5)
    assert scores["knn_distance"] == scores["knn_pixels"] == 0
    assert scores["frechet_distance"] == pytest.approx(0, abs=1e-3)
    held_out = ImageJudge(network, task).score(task.private_test.pixels, task.private_test.labels)
    assert held_out["attack_accuracy"] == pytest.approx(rows[0]["real_rows_accuracy"], abs=0.02)


def test_the_baseline_shows_public_images_that_the_target_takes_for_the_class(tiny: ImageStudy) -> None:
    public = tiny.task(0).public
    target = build_resnet("resnet-6", 1, 5, seed=3).eval()
    chosen = pseudo_label(image_logits(target, public.pixels), tiny.attack.pseudo_labels)
    labels = torch.tensor(chosen.classes).repeat_interleave(40)
    made = public_samples(target, public, chosen, labels, 1, CPU)
    assert torch.equal(image_logits(target, made.images).argmax(1), labels)
    known = {tuple(image) for image in public.images.flatten(1).tolist()}
    assert all(tuple(image) in known for image in made.images.flatten(1).tolist())
    assert len(made.images.unique(dim=0)) > len(chosen.classes)
    assert not torch.equal(public_samples(target, public, chosen, labels, 2, CPU).images, made.images)


def test_a_study_is_chosen_by_its_dataset(tmp_path: Path) -> None:
    assert image_study() == image_study("digits") == DIGITS
    assert image_study(iterations=7).attack.gan.iterations == 7
    faces = image_study("celeba", "most_populous", str(tmp_path))
    assert faces == replace(CELEBA, choice="most_populous", data_folder=str(tmp_path))
    with pytest.raises(UsageError, match="one of digits, celeba, got 'mnist'"):
        image_study("mnist")
    with pytest.raises(DataError, match="identity_CelebA"):
        faces.task(0)


def test_celeba_is_read_where_its_files_are(tmp_path: Path) -> None:
    # A thousand private identities and one public: small black images stand for the faces.
    (tmp_path / "celeba" / "img_align_celeba").mkdir(parents=True)
    names = [f"{person:06d}.jpg" for person in range(1, 1003)]
    Image.new("RGB", (178, 218)).save(tmp_path / "celeba" / "img_align_celeba" / names[0])
    for name in names[1:]:
        (tmp_path / "celeba" / "img_align_celeba" / name).hardlink_to(
            tmp_path / "celeba" / "img_align_celeba" / names[0]
        )
    lines = [f"{name} {person}" for person, name in enumerate(names, 1)]
    (tmp_path / "celeba" / "identity_CelebA.txt").write_text("\n".join(lines))
    task = image_study("celeba", data_folder=str(tmp_path)).task(0)
    assert (task.n_classes, len(task.public), task.public.shape) == (1000, 2, (3, 64, 64))


def test_the_players_of_celeba_fit_its_images() -> None:
    generator = ImageGenerator((3, 64, 64), 2, CELEBA.attack.gan.latent_dim, CELEBA.attack.generator_widths)
    critic = ImageCritic((3, 64, 64), 2, CELEBA.attack.critic_widths)
    labels = torch.tensor([0, 1])
    made = generator(torch.randn(2, generator.latent_dim), labels)
    assert made.shape == (2, 3, 64, 64) and critic.score(made, labels).shape == (2,)
