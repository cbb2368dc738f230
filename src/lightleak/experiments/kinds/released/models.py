"""The task and the networks of an audit: the released model and the two evaluation models, trained and kept."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import lightning
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, Timer
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from lightleak.attacks.model_inversion.released import logits_of
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import EVALUATION_BATCH_SIZE, BatchSampler, batch_loader
from lightleak.data.encoder import TableEncoder
from lightleak.data.inversion_task import InversionTask, make_inversion_task
from lightleak.experiments.config import TargetConfig
from lightleak.experiments.experiment import load_source
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.judge import Judge, ModelScores, accuracy
from lightleak.experiments.pack import Pack, Shared
from lightleak.experiments.training import one_training
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.experiments.whole_epochs import SeedEveryEpoch
from lightleak.targets import NETWORKS, NetworkSpec, build_network
from lightleak.targets.boosted_trees import fit_boosted_trees
from lightleak.targets.checkpoints import LastCheckpoint, load_weights, save_weights
from lightleak.targets.classifier import TabularClassifier


@dataclass(frozen=True)
class World(Shared):
    """The parts of an audit that do not depend on any attack.

    Attributes:
        task: private and public rows.
        encoder: the target's; its statistics are those of the private training rows.
        target: specification of the released model.
        evaluation: specification of the evaluation model.
    """

    task: InversionTask
    encoder: TableEncoder
    target: NetworkSpec
    evaluation: NetworkSpec


def prepare_world(config: ReleasedConfig, seed: int) -> World:
    """The world of one seed; made once per process.

    Raises:
        DataError: the table cannot be read or has too few rows or classes.
        UsageError: no such dataset or network.
    """
    settings: dict[str, Any] = config.to_dict()
    parts = {name: settings[name] for name in ("data", "task", "target", "evaluation_model")}
    return _world(json.dumps(parts, sort_keys=True), seed)


@lru_cache(maxsize=2)
def _world(parts: str, seed: int) -> World:
    config = ReleasedConfig.parse(json.loads(parts))
    for model in (config.target, config.evaluation_model):
        NETWORKS.get(model.network)  # before a large table is read
    table = load_source(config.data, seed, config.task.group)
    task = make_inversion_task(table, config.task, derive_seed(config.data.split_by(seed), "task"))
    encoder = TableEncoder(task.schema, config.data.encoding).fit(task.private_train)

    def spec(model: TargetConfig) -> NetworkSpec:
        return NetworkSpec(model.network, task.schema.n_classes, encoder.layout, model.options)

    return World(task, encoder, spec(config.target), spec(config.evaluation_model))


Role = Literal["target", "evaluation", "disjoint"]
ROLES: tuple[Role, ...] = ("target", "evaluation", "disjoint")
"""The released model, the evaluation model of the thesis, which learns from the same rows, and one that shares none."""


@dataclass(frozen=True)
class ModelPack(Pack):
    """The training of one model, as a unit of a campaign.

    Attributes:
        config: the audit.
        seed: root seed.
        role: which of the models.
        world: made already, for a machine without the table.
    """

    config: ReleasedConfig
    seed: int
    role: Role
    world: World | None = None

    @property
    def ids(self) -> Sequence[str]:
        """One unit."""
        return [f"model-{self.role}-s{self.seed}"]

    @property
    def kind(self) -> str:
        """See `Pack.kind`: the networks of the roles differ."""
        return self.role

    @property
    def cost(self) -> float:
        """Epochs at most."""
        return float(self.config.training.max_epochs)

    def shortened(self, epochs: int) -> "ModelPack":
        """The same training with at most so many epochs."""
        return replace(self, config=replace(self.config, training=replace(self.config.training, max_epochs=epochs)))

    def shipped(self) -> "ModelPack":
        """See `Pack.shipped`."""
        return replace(self, world=prepare_world(self.config, self.seed))

    def results(self, folder: Path) -> list[Path]:
        """Return where the scores and the network are in a run folder."""
        return [unit_file(folder, self.ids[0]), model_folder(folder, self.role, self.seed)]

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Train and keep the model."""
        world = self.world or prepare_world(self.config, self.seed)
        place = model_folder(folder, self.role, self.seed)
        place.mkdir(parents=True, exist_ok=True)
        network, epochs, seconds = train_model(self, world, place, device, report)
        scores = _scores(network, world, self.role, device, epochs, seconds)
        save_weights(network, place / "weights.safetensors")
        write_whole(unit_file(folder, self.ids[0]), json.dumps(asdict(scores)))
        shutil.rmtree(place / "checkpoints", ignore_errors=True)


def model_folder(folder: Path, role: Role, seed: int) -> Path:
    """Where a model of the run is kept."""
    return folder / "models" / f"{role}-s{seed}"


def load_model(folder: Path, world: World, role: Role, seed: int) -> nn.Module:
    """A finished model, in eval mode."""
    network = build_network(world.target if role == "target" else world.evaluation, seed=0)
    return load_weights(network, model_folder(folder, role, seed) / "weights.safetensors")


def load_judge(folder: Path, world: World, seed: int) -> Judge:
    """The truth behind the target of one seed."""
    files = {role: unit_file(folder, f"model-{role}-s{seed}") for role in ROLES}
    models = {str(role): ModelScores(**json.loads(file.read_text())) for role, file in files.items()}
    task, networks = world.task, [load_model(folder, world, role, seed) for role in ROLES[1:]]
    rows = task.private_train, task.private_test, task.private_judge
    return Judge(world.evaluation, networks[0], world.encoder, *rows, models, networks[1])


def training_rows(world: World, role: Role) -> pd.DataFrame:
    """The private rows that a model learns from: those of the disjoint evaluation model belong to no other model."""
    return world.task.private_judge if role == "disjoint" else world.task.private_train


class FinalStopping(EarlyStopping):
    """Early stopping that a resumed training keeps to; Lightning restores that it stopped, and trains on."""

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Train no further epoch where the checkpoint is that of the last one."""
        trainer.should_stop = trainer.should_stop or self.stopping_reason is not EarlyStoppingReason.NOT_STOPPED


def train_model(
    pack: ModelPack, world: World, place: Path, device: torch.device, report: Callable[[float], None]
) -> tuple[nn.Module, int, float]:
    """Train to the early-stopping rule of thesis Sec. 4.4.2; resumes from the last finished epoch.

    Returns:
        The network, the epochs it took, and seconds.
    """
    spec: NetworkSpec = world.target if pack.role == "target" else world.evaluation
    own = training_rows(world, pack.role)
    # The rows that say when trees stop; the disjoint evaluation model has none of the target's.
    train, validation = (
        rows_of(world, part) for part in (own, own if pack.role == "disjoint" else world.task.private_validation)
    )
    seed, settings = derive_seed(pack.seed, pack.role), pack.config.training
    if spec.name == "boosted_trees":
        began, rows, held = time.perf_counter(), train.tensors, validation.tensors
        network = fit_boosted_trees(rows[0], rows[1], spec.n_classes, seed, spec.options, (held[0], held[1]))
        return network, 1, time.perf_counter() - began
    module = TabularClassifier(spec, settings.optimizer, seed=derive_seed(seed, "weights"))
    # The timer also counts the part before an interruption.
    checkpoint, timer = LastCheckpoint(place / "checkpoints"), Timer()
    stopping = FinalStopping(
        "train/loss", min_delta=settings.min_delta, patience=settings.patience, check_on_train_epoch_end=True
    )
    callbacks: list[Callback] = [SeedEveryEpoch(derive_seed(seed, "epochs")), stopping, timer, checkpoint]
    lonely = len(train) % settings.batch_size == 1  # a batch of one row has no statistics to normalise with
    batches = BatchSampler(len(train), settings.batch_size, True, derive_seed(seed, "batches"), drop_last=lonely)
    with one_training(
        settings.trainer, str(device), settings.max_epochs, callbacks, report, enable_checkpointing=True
    ) as trainer:
        trainer.fit(
            module,
            batch_loader(train, batches),
            batch_loader(validation, BatchSampler(len(validation), EVALUATION_BATCH_SIZE)),
            ckpt_path=checkpoint.resumed(),
            weights_only=True,
        )
    return module.network.eval(), trainer.current_epoch, timer.time_elapsed()


def rows_of(world: World, frame: pd.DataFrame) -> TensorDataset:
    """Encoded rows and their classes."""
    return TensorDataset(world.encoder.encode(frame), world.encoder.encode_labels(frame))


def _scores(
    network: nn.Module, world: World, role: Role, device: torch.device, epochs: int, seconds: float
) -> ModelScores:
    def judged(frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
        inputs, labels = rows_of(world, frame).tensors
        return logits_of(network.to(device), inputs).argmax(1), labels

    task = world.task
    named, labels = judged(task.private_test)
    by_class = {
        name: accuracy(named[labels == i], labels[labels == i]) for i, name in enumerate(task.schema.label.categories)
    }
    train, validation = (
        accuracy(*judged(part)) or 0.0 for part in (training_rows(world, role), task.private_validation)
    )
    return ModelScores(train, validation, accuracy(named, labels) or 0.0, epochs, seconds, by_class)
