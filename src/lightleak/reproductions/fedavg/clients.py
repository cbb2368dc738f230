"""Clients that hold images, and the updates that they send of an untrained network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.data.image_datasets import ImageDataset, client_positions, load_image_dataset
from lightleak.data.sources import dataset_folder
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.fedavg import client_update
from lightleak.reproductions.fedavg.setting import ClientSetting, FedAvgPreset, StudyDataset
from lightleak.targets.spec import build_network

FEMNIST_WRITERS = 400
"""Writers of FEMNIST that are read, in the order of its files: all 3,500 take minutes and gigabytes."""


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

    def observe(
        self, setting: ClientSetting, index: int, network: nn.Module | None = None
    ) -> tuple[ClientUpdate, GroundTruth]:
        """Return update ``index``, of one client or the mean of several; its images are the same in every setting.

        Args:
            setting: what leaves the clients.
            index: number of the update.
            network: what the server sent; None: an untrained network of the update's own.

        Raises:
            UsageError: there are too few clients.
        """
        spec, training = self.preset.spec, setting.training(self.preset)
        if network is None:
            network = build_network(spec, derive_seed(self.seed, "network", index))
        updates, truths = [], []
        for client in range(index * setting.n_clients, (index + 1) * setting.n_clients):
            update, truth = client_update(
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
            updates.append(update)
            truths.append(truth)
        return as_received(updates, setting), joined(truths)


def as_received(updates: Sequence[ClientUpdate], setting: ClientSetting) -> ClientUpdate:
    """Return what the server receives of one client's update, or of the mean of several."""
    update = updates[0] if len(updates) == 1 else aggregate_updates(updates)
    if setting.states_epochs:
        return update
    return replace(update, facts=replace(update.facts, epochs=None, batch_size=None))


def joined(truths: Sequence[GroundTruth]) -> GroundTruth:
    """Return the images of all clients behind an update."""
    if len(truths) == 1:
        return truths[0]
    return GroundTruth(torch.cat([truth.inputs for truth in truths]), torch.cat([truth.labels for truth in truths]))


@lru_cache(maxsize=2)
def _dataset(name: StudyDataset, data_folder: str | None) -> ImageDataset:
    writers = FEMNIST_WRITERS if name == "femnist" else None
    return load_image_dataset(name, None if data_folder is None else dataset_folder(name, data_folder), writers)
