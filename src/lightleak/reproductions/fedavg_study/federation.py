"""Federated training of the paper's networks: their accuracy (Table 6), and their weights before a round (Table 7)."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import TensorDataset

from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.protocols.federated_data import FederatedData
from lightleak.protocols.federation import FederatedAveraging
from lightleak.reproductions.fedavg_study.clients import ImageClients
from lightleak.reproductions.fedavg_study.setting import ClientSetting
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.spec import build_network
from lightleak.targets.trainer import alone_on, interrupts, quiet_lightning

IMAGES_AT_ONCE = 1000
CHECKPOINT_ROUNDS = 10


@dataclass(frozen=True)
class TrainingPack:
    """One training of all clients.

    Attributes:
        clients: who holds the images.
        setting: local training and defence.
        rounds: communication rounds.
        kept: rounds, counted from 1, before which the weights are kept; the last may be the one after the training.
    """

    clients: ImageClients
    setting: ClientSetting
    rounds: int
    kept: tuple[int, ...] = ()

    @property
    def ids(self) -> Sequence[str]:
        """One unit."""
        return [training_name(self.clients, self.setting)]

    @property
    def cost(self) -> float:
        """Local steps."""
        return float(self.rounds * self._per_round)

    @property
    def _per_round(self) -> int:
        preset = self.clients.preset
        return min(preset.clients_per_round, self.clients.size) * self.setting.steps(preset.rows)

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Train; goes on from the last checkpoint. Accuracy on the test images and the weights are kept."""
        preset, dataset, began = self.clients.preset, self.clients.dataset, time.perf_counter()
        place = model_folder(folder, self.clients, self.setting)
        place.mkdir(parents=True, exist_ok=True)
        module = FederatedAveraging(
            preset.spec,
            self.setting.training(preset),
            seed=derive_seed(self.clients.seed, "federation"),
            defense=self.setting.make_defense(),
            defend="steps",
        )
        checkpoint = LastCheckpoint(place, every=CHECKPOINT_ROUNDS)
        callbacks: list[Callback] = [_Rounds(place, self.kept, self._per_round, report), checkpoint]
        with quiet_lightning():
            trainer = lightning.Trainer(
                **alone_on(device),
                max_epochs=self.rounds,
                logger=False,
                callbacks=callbacks,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            with interrupts(trainer):
                trainer.fit(module, datamodule=self._data(), ckpt_path=checkpoint.resumed(), weights_only=True)
        if self.rounds + 1 in self.kept:
            _keep(module.network, place, self.rounds + 1)
        row = {
            "unit": self.ids[0],
            "setting": f"training_{self.setting.name}",
            "dataset": preset.dataset,
            "target": preset.spec.name,
            "protocol": "fedavg",
            "defense": "none" if module.defense is None else module.defense.describe(),
            "source": "training",
            "rounds": self.rounds,
            "test_accuracy": accuracy(module.network.to(device).eval(), self.clients, device),
            "test_images": len(dataset.test),
            "seconds": time.perf_counter() - began,
            "seed": self.clients.seed,
        }
        write_whole(unit_file(folder, self.ids[0]), json.dumps(row))
        checkpoint.file.unlink(missing_ok=True)

    def _data(self) -> FederatedData:
        rows = [self.clients.rows(client) for client in range(self.clients.size)]
        n, preset = self.clients.preset.rows, self.clients.preset
        train = TensorDataset(torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows]))
        partition = [range(i * n, (i + 1) * n) for i in range(len(rows))]
        per_round = min(preset.clients_per_round, len(rows))
        seed = derive_seed(self.clients.seed, "rounds")
        return FederatedData(train, partition, clients_per_round=per_round, seed=seed)


class _Rounds(Callback):
    """Keeps the weights before some rounds and tells about every one."""

    def __init__(self, place: Path, kept: Sequence[int], cost: float, report: Callable[[float], None]) -> None:
        self.place, self.kept, self.cost, self.report = place, kept, cost, report

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        number = trainer.current_epoch + 1
        if number in self.kept:
            _keep(pl_module.network, self.place, number)  # type: ignore[arg-type]

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.report(self.cost)


def trained(setting: ClientSetting) -> ClientSetting:
    """What of a setting a training depends on."""
    return replace(setting, share_labels="counts", round=None, n_clients=1, tells_epochs=True)


def training_name(clients: ImageClients, setting: ClientSetting) -> str:
    """Unit of a training, and a file name."""
    return f"{clients.preset.dataset}_training_{trained(setting).name}-s{clients.seed}"


def model_folder(folder: Path, clients: ImageClients, setting: ClientSetting) -> Path:
    """Where a training keeps its weights."""
    return folder / "models" / training_name(clients, setting)


def weights_file(place: Path, number: int) -> Path:
    """Where the weights before a round are kept."""
    return place / f"round-{number}.safetensors"


def observe_round(
    clients: ImageClients, setting: ClientSetting, index: int, folder: Path
) -> tuple[ClientUpdate, GroundTruth]:
    """The update that client ``index`` sends in a round of the training kept in a run folder, drawn for it or not."""
    assert setting.round is not None  # else the clients are untrained
    network = build_network(clients.preset.spec, seed=0)
    place = model_folder(folder, clients, setting)
    network.load_state_dict(load_file(weights_file(place, setting.round)))
    return clients.observe(setting, index, network)


@torch.no_grad()
def accuracy(network: nn.Module, clients: ImageClients, device: torch.device) -> float:
    """Share of the test images that a network in eval mode takes for what they are."""
    dataset, hits = clients.dataset, 0
    for start in range(0, len(dataset.test), IMAGES_AT_ONCE):
        images = dataset.test.take(torch.arange(start, min(start + IMAGES_AT_ONCE, len(dataset.test))))
        rows = dataset.scale.encode(images.pixels.float() / 255).to(device)
        hits += int((network(rows).argmax(1).cpu() == images.labels).sum())
    return hits / len(dataset.test)


def _keep(network: nn.Module, place: Path, number: int) -> None:
    state = {name: value.detach().cpu().clone().contiguous() for name, value in network.state_dict().items()}
    save_file(state, weights_file(place, number))
