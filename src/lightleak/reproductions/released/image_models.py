"""Training the networks of an image study, and keeping them."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch.utils.data import TensorDataset

from lightleak.attacks.model_inversion.image_inversion import as_floats, image_logits
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import BatchSampler, batch_loader
from lightleak.data.images import LabeledImages
from lightleak.experiments.kinds.released.judge import ModelScores, accuracy
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.reproductions.released.image_study import ImageStudy
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.image_resnet import ImageResNet, build_resnet
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.trainer import alone_on, interrupts, quiet_lightning


@dataclass(frozen=True)
class ImageModelPack:
    """The training of one network on the private images.

    Attributes:
        study: settings.
        seed: root seed.
        network: name of the network; one that judges is never one that is released.
    """

    study: ImageStudy
    seed: int
    network: str

    @property
    def ids(self) -> Sequence[str]:
        """One unit."""
        return [f"model-{self.network}-s{self.seed}"]

    @property
    def cost(self) -> float:
        """Epochs."""
        return float(self.study.epochs)

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Train and keep the network; goes on from the last finished epoch."""
        task = self.study.task(self.seed)
        place = folder / "models" / f"{self.network}-s{self.seed}"
        place.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        network = train_image_network(self.study, self.network, task.private_train, self.seed, device, place, report)
        seconds = time.perf_counter() - began
        network.to(device)

        def share(images: LabeledImages) -> float:
            return accuracy(image_logits(network, images.pixels, device).argmax(1), images.labels) or 0.0

        shares = share(task.private_train), math.nan, share(task.private_test)
        scores = ModelScores(*shares, epochs=self.study.epochs, seconds=seconds)
        state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
        save_file(state, place / "weights.safetensors")
        kept = {name: value for name, value in asdict(scores).items() if name != "validation_accuracy"}
        write_whole(unit_file(folder, self.ids[0]), json.dumps(kept))
        (place / "last.ckpt").unlink(missing_ok=True)


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
    report: Callable[[float], None],
) -> ImageResNet:
    """Train a network for all of its epochs, as the thesis does: to 100% of the training images."""
    own = derive_seed(seed, "image network", name)
    network = build_resnet(name, images.shape[0], len(images.names), derive_seed(own, "weights"))
    module = TabularClassifier(
        network, OptimizerConfig("adam", study.learning_rate), n_classes=len(images.names), seed=own
    )
    rows = TensorDataset(as_floats(images.pixels), images.labels)
    checkpoint = LastCheckpoint(place)
    callbacks: list[Callback] = [_Told(report), checkpoint]
    with quiet_lightning():
        trainer = lightning.Trainer(
            **alone_on(device),
            max_epochs=study.epochs,
            logger=False,
            callbacks=callbacks,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with interrupts(trainer):
            trainer.fit(
                module,
                batch_loader(rows, BatchSampler(len(rows), study.batch_size, True, derive_seed(own, "batches"))),
                ckpt_path=checkpoint.resumed(),
                weights_only=True,
            )
    return network.requires_grad_(False).eval()


class _Told(Callback):
    """Tells about every epoch."""

    def __init__(self, report: Callable[[float], None]) -> None:
        self.report = report

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.report(1.0)
