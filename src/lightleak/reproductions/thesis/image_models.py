"""Training the networks of an image study, and keeping them."""

import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import TensorDataset

from lightleak.attacks.model_inversion.image_inversion import as_floats, image_logits
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import BatchSampler, batch_loader
from lightleak.data.images import LabeledImages
from lightleak.experiments.kinds.released.judge import ModelScores, accuracy
from lightleak.experiments.unit import unit_file
from lightleak.reproductions.reproduction import Report, Work
from lightleak.reproductions.thesis.image_study import ImageStudy
from lightleak.reproductions.training import fit
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.image_resnet import ImageResNet, build_resnet
from lightleak.targets.optimizers import OptimizerConfig


def model_work(study: ImageStudy, seed: int, network: str) -> Work:
    """The training of one network on the private images; one that judges is never one that is released."""
    return Work([f"model-{network}-s{seed}"], partial(_train_and_keep, study, seed, network), study.epochs)


def _train_and_keep(
    study: ImageStudy, seed: int, name: str, folder: Path, device: torch.device, report: Report
) -> list[dict[str, Any]]:
    """Train from the last finished epoch, keep the network and return its scores."""
    task, place = study.task(seed), folder / "models" / f"{name}-s{seed}"
    place.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    network = train_image_network(study, name, task.private_train, seed, device, place, report)
    seconds = time.perf_counter() - began
    network.to(device)
    state = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
    save_file(state, place / "weights.safetensors")
    (place / "last.ckpt").unlink(missing_ok=True)

    def share(images: LabeledImages) -> float:
        return accuracy(image_logits(network, images.pixels, device).argmax(1), images.labels) or 0.0

    scores = {"train_accuracy": share(task.private_train), "test_accuracy": share(task.private_test)}
    return [{**scores, "epochs": study.epochs, "seconds": seconds}]


def load_image_model(study: ImageStudy, name: str, seed: int, folder: Path) -> ImageResNet:
    """A finished network, in eval mode."""
    task = study.task(seed)
    network = build_resnet(name, task.public.shape[0], task.n_classes, seed=0)
    network.load_state_dict(load_file(folder / "models" / f"{name}-s{seed}" / "weights.safetensors"))
    return network.requires_grad_(False).eval()


def image_model_scores(name: str, seed: int, folder: Path) -> ModelScores:
    """How good a finished network is; it trains for a fixed time, so that there are no validation images."""
    kept = json.loads(unit_file(folder, f"model-{name}-s{seed}").read_text())
    return ModelScores(**kept, validation_accuracy=math.nan)


def train_image_network(
    study: ImageStudy,
    name: str,
    images: LabeledImages,
    seed: int,
    device: torch.device,
    place: Path,
    report: Report,
) -> ImageResNet:
    """Train a network for all of its epochs, as the thesis does: to 100% of the training images."""
    own = derive_seed(seed, "image network", name)
    network = build_resnet(name, images.shape[0], len(images.names), derive_seed(own, "weights"))
    module = TabularClassifier(
        network, OptimizerConfig("adam", study.learning_rate), n_classes=len(images.names), seed=own
    )
    rows = TensorDataset(as_floats(images.pixels), images.labels)
    batches = BatchSampler(len(rows), study.batch_size, True, derive_seed(own, "batches"))
    loader = batch_loader(rows, batches)
    fit(module, device, study.epochs, report, checkpoint=LastCheckpoint(place), train_dataloaders=loader)
    return network.requires_grad_(False).eval()
