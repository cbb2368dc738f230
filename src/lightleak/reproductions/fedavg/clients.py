"""Clients that hold images, what they send, and their federated training (Tables 6 and 7)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import LambdaCallback
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from lightleak.attacks.model_inversion.released import logits_of
from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.data.image_datasets import ImageDataset, client_positions, load_image_dataset
from lightleak.data.sources import dataset_folder
from lightleak.experiments.clients import aggregated
from lightleak.experiments.kinds.released.judge import accuracy
from lightleak.protocols.fedavg import client_update
from lightleak.protocols.federated_data import FederatedData
from lightleak.protocols.federation import FederatedAveraging
from lightleak.reproductions.fedavg.setting import ClientSetting, FedAvgPreset, StudyDataset
from lightleak.reproductions.reproduction import Place, Rows, Work, fit
from lightleak.targets.checkpoints import LastCheckpoint, save_weights
from lightleak.targets.spec import build_network

FEMNIST_WRITERS = 400
"""Writers of FEMNIST that are read, in the order of its files: all 3,500 take minutes and gigabytes."""

Observed = tuple[ClientUpdate, GroundTruth]
"""An update, and the images behind it."""


@dataclass(frozen=True)
class ImageClients:
    """Clients of one seed.

    Where images have writers, a client is a writer; else the images are dealt out, so that no two clients share one.

    Attributes:
        preset: settings of the dataset.
        seed: root of what clients hold and of their networks.
        data_folder: holds one folder per dataset.
    """

    preset: FedAvgPreset
    seed: int
    data_folder: str | None = None

    @property
    def dataset(self) -> ImageDataset:
        """The images; read once per process."""
        return _dataset(self.preset.dataset, self.data_folder)

    @property
    def size(self) -> int:
        """Number of clients."""
        dataset, rows = self.dataset, self.preset.rows
        if dataset.writers:
            return sum(len(own) >= rows for own in dataset.writers)
        return len(dataset.train) // rows

    def positions(self, client: int) -> Tensor:
        """Positions of a client's images among the training images, LongTensor ``[rows]``.

        Raises:
            UsageError: there is no such client.
        """
        if not 0 <= client < self.size:
            raise UsageError(
                f"{self.preset.dataset} has {self.size} clients of {self.preset.rows} images, numbered from 0; got "
                f"client {client}"
            )
        if self.dataset.writers:
            return client_positions(self.dataset, client, self.preset.rows, self.seed)
        order = numpy_generator(self.seed, "image clients").permutation(len(self.dataset.train))
        return torch.from_numpy(order[client * self.preset.rows :][: self.preset.rows])

    def rows(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's images as flat rows ``[rows, d]``, and their labels."""
        images = self.dataset.train.take(self.positions(client))
        return self.dataset.scale.encode(images.pixels.float() / 255), images.labels

    def observe(self, setting: ClientSetting, index: int, folder: Path | None = None) -> Observed:
        """Return update ``index``, of one client or the mean of several; its images are the same in every setting.

        Args:
            setting: what leaves the clients.
            index: number of the update.
            folder: of the run that has trained the network of the setting's round; without one, or without a round, the
                server has sent an untrained network of the update's own.

        Raises:
            UsageError: there are too few clients.
        """
        spec, training = self.preset.spec, setting.training(self.preset)
        network = build_network(spec, derive_seed(self.seed, "network", index))
        if folder is not None and setting.round is not None:
            network.load_state_dict(load_file(weights_file(model_folder(folder, self, setting), setting.round)))
        update, truth = aggregated(
            [
                client_update(
                    network,
                    spec,
                    self.dataset.scale,
                    *self.rows(client),
                    training,
                    share_labels=setting.share_labels,
                    epoch=0 if setting.round is None else setting.round - 1,
                    seed=derive_seed(self.seed, "client", client),
                    defense=setting.make_defense(),
                    defend="steps",
                )
                for client in range(index * setting.n_clients, (index + 1) * setting.n_clients)
            ]
        )
        if not setting.states_epochs:
            update = replace(update, facts=replace(update.facts, epochs=None, batch_size=None))
        return update, truth


@lru_cache(maxsize=2)
def _dataset(name: StudyDataset, data_folder: str | None) -> ImageDataset:
    writers = FEMNIST_WRITERS if name == "femnist" else None
    return load_image_dataset(name, None if data_folder is None else dataset_folder(name, data_folder), writers)


CHECKPOINT_ROUNDS = 10


def training_work(clients: ImageClients, setting: ClientSetting, rounds: int, kept: Sequence[int] = ()) -> Work:
    """Return the work of one training of all clients.

    Args:
        clients: who holds the images.
        setting: local training and defense.
        rounds: communication rounds.
        kept: rounds, counted from 1, before which the weights are kept; the last may be the one after the training.
    """
    compute = partial(train_clients, clients, trained(setting), rounds, kept)
    return Work([training_name(clients, setting)], compute, float(rounds * _steps_per_round(clients, setting)))


def train_clients(clients: ImageClients, setting: ClientSetting, rounds: int, kept: Sequence[int], at: Place) -> Rows:
    """Train from the last checkpoint, keep the weights, and return a row with the accuracy on the test images."""
    preset, dataset, began = clients.preset, clients.dataset, time.perf_counter()
    place = model_folder(at.folder, clients, setting)
    place.mkdir(parents=True, exist_ok=True)
    module = FederatedAveraging(
        preset.spec,
        setting.training(preset),
        seed=derive_seed(clients.seed, "federation"),
        defense=setting.make_defense(),
        defend="steps",
    )
    checkpoint = LastCheckpoint(place, every=CHECKPOINT_ROUNDS)

    def keep(trainer: lightning.Trainer, module: FederatedAveraging) -> None:
        if (number := trainer.current_epoch + 1) in kept:
            save_weights(module.network, weights_file(place, number))

    callbacks, cost = [LambdaCallback(on_train_epoch_start=keep)], _steps_per_round(clients, setting)
    fit(module, at, rounds, cost, callbacks, checkpoint, datamodule=_federated(clients))
    if rounds + 1 in kept:
        save_weights(module.network, weights_file(place, rounds + 1))
    checkpoint.file.unlink(missing_ok=True)
    return [
        {
            "unit": training_name(clients, setting),
            "setting": f"training_{setting.name}",
            "dataset": preset.dataset,
            "target": preset.spec.name,
            "protocol": "fedavg",
            "defense": "none" if module.defense is None else module.defense.describe(),
            "source": "training",
            "rounds": rounds,
            "test_accuracy": accuracy_on_test_images(module.network.to(at.device).eval(), clients),
            "test_images": len(dataset.test),
            "seconds": time.perf_counter() - began,
            "seed": clients.seed,
        }
    ]


def _steps_per_round(clients: ImageClients, setting: ClientSetting) -> int:
    return min(clients.preset.clients_per_round, clients.size) * setting.steps(clients.preset.rows)


def _federated(clients: ImageClients) -> FederatedData:
    rows = [clients.rows(client) for client in range(clients.size)]
    n, preset = clients.preset.rows, clients.preset
    train = TensorDataset(torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows]))
    partition = [range(i * n, (i + 1) * n) for i in range(len(rows))]
    per_round = min(preset.clients_per_round, len(rows))
    return FederatedData(train, partition, clients_per_round=per_round, seed=derive_seed(clients.seed, "rounds"))


def trained(setting: ClientSetting) -> ClientSetting:
    """Return the part of a setting that a training depends on."""
    return replace(setting, share_labels="counts", round=None, n_clients=1, states_epochs=True)


def training_name(clients: ImageClients, setting: ClientSetting) -> str:
    """Unit of a training, and a file name."""
    return f"{clients.preset.dataset}_training_{trained(setting).name}-s{clients.seed}"


def model_folder(folder: Path, clients: ImageClients, setting: ClientSetting) -> Path:
    """Where a training keeps its weights."""
    return folder / "models" / training_name(clients, setting)


def weights_file(place: Path, number: int) -> Path:
    """Where the weights before a round are kept."""
    return place / f"round-{number}.safetensors"


def rehearse(trainings: Sequence[tuple[ImageClients, ClientSetting]], rounds: Sequence[int], folder: Path) -> None:
    """Keep untrained weights in the places of trained ones, to time the attacks on them."""
    for clients, setting in trainings:
        for number in rounds:
            file = weights_file(model_folder(folder, clients, setting), number)
            save_weights(build_network(clients.preset.spec, seed=0), file)


def accuracy_on_test_images(network: nn.Module, clients: ImageClients) -> float:
    """Return the accuracy of a network in eval mode on the test images."""
    images = clients.dataset.test.take(torch.arange(len(clients.dataset.test)))
    logits = logits_of(network, clients.dataset.scale.encode(images.pixels.float() / 255))
    return accuracy(logits.argmax(1), images.labels) or 0.0
