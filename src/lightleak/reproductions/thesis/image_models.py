"""Training the networks of an image study, and keeping them."""

import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch.utils.data import TensorDataset

from lightleak.attacks.model_inversion.image_inversion import as_floats, image_logits
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import BatchSampler, batch_loader
from lightleak.data.images import LabeledImages
from lightleak.experiments.kinds.released.judge import ModelScores, accuracy
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.reproductions.reproduction import Place, Work
from lightleak.reproductions.thesis.image_study import ImageStudy
from lightleak.reproductions.training import fit
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.image_resnet import ImageResNet, build_resnet
from lightleak.targets.optimizers import OptimizerConfig


def model_work(study: ImageStudy, seed: int, network: str) -> Work:
    """The training of one network on the private images; one that judges is never one that is released."""
    return Work([f"model-{network}-s{seed}"], partial(_train_and_keep, study, seed, network), study.epochs)


def _train_and_keep(study: ImageStudy, seed: int, name: str, at: Place) -> list[dict[str, Any]]:
    """Train from the last finished epoch, keep the network and return its scores."""
    task, place = study.task(seed), model_folder(at.folder, name, seed)
    place.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    network = train_image_network(study, name, task.private_train, seed, at)
    seconds = time.perf_counter() - began
    network.to(at.device)
    _keep(network, place)
    (place / "last.ckpt").unlink(missing_ok=True)

    def share(images: LabeledImages) -> float:
        return accuracy(image_logits(network, images.pixels, at.device).argmax(1), images.labels) or 0.0

    scores = {"train_accuracy": share(task.private_train), "test_accuracy": share(task.private_test)}
    return [{**scores, "epochs": study.epochs, "seconds": seconds}]


def model_folder(folder: Path, name: str, seed: int) -> Path:
    """Where a network of a run is kept."""
    return folder / "models" / f"{name}-s{seed}"


def _keep(network: ImageResNet, place: Path) -> None:
    state = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
    save_file(state, place / "weights.safetensors")


def keep_untrained(study: ImageStudy, name: str, seed: int, folder: Path) -> None:
    """Keep an untrained network with scores of chance, for a rehearsal."""
    place, task = model_folder(folder, name, seed), study.task(seed)
    place.mkdir(parents=True)
    _keep(build_resnet(name, task.public.shape[0], task.n_classes, seed=0), place)
    scores = {"train_accuracy": 0.0, "test_accuracy": 0.0, "epochs": 0, "seconds": 0.0}
    write_whole(unit_file(folder, f"model-{name}-s{seed}"), json.dumps(scores))


def load_image_model(study: ImageStudy, name: str, seed: int, folder: Path) -> ImageResNet:
    """A finished network, in eval mode."""
    task = study.task(seed)
    network = build_resnet(name, task.public.shape[0], task.n_classes, seed=0)
    network.load_state_dict(load_file(model_folder(folder, name, seed) / "weights.safetensors"))
    return network.requires_grad_(False).eval()


def image_model_scores(name: str, seed: int, folder: Path) -> ModelScores:
    """Return the scores of a finished network; it trains for a fixed time, without validation images."""
    kept = json.loads(unit_file(folder, f"model-{name}-s{seed}").read_text())
    return ModelScores(**kept, validation_accuracy=math.nan)


def train_image_network(study: ImageStudy, name: str, images: LabeledImages, seed: int, at: Place) -> ImageResNet:
    """Train a network for all of its epochs, as the thesis does: to 100% of the training images."""
    own = derive_seed(seed, "image network", name)
    network = build_resnet(name, images.shape[0], len(images.names), derive_seed(own, "weights"))
    module = TabularClassifier(
        network, OptimizerConfig("adam", study.learning_rate), n_classes=len(images.names), seed=own
    )
    rows = TensorDataset(as_floats(images.pixels), images.labels)
    batches = BatchSampler(len(rows), study.batch_size, True, derive_seed(own, "batches"))
    loader = batch_loader(rows, batches)
    checkpoint = LastCheckpoint(model_folder(at.folder, name, seed))
    fit(module, at, study.epochs, checkpoint=checkpoint, train_dataloaders=loader)
    return network.requires_grad_(False).eval()
