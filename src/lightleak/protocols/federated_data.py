"""Rows of the clients of a federation, served round by round as Lightning data."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import generator
from lightleak.data.datamodule import (
    EVALUATION_BATCH_SIZE,
    BatchSampler,
    EpochSampler,
    batch_loader,
    refuse_overfit_batches,
    row_indices,
    whole_numbers,
)


class ClientRows(NamedTuple):
    """A client and all its rows.

    Attributes:
        client: its number.
        inputs: ``[n, d]``.
        labels: class indices ``[n]``.
    """

    client: int
    inputs: Tensor
    labels: Tensor


class RoundSampler(EpochSampler):
    """An epoch is one batch, the clients of one round, LongTensor ``[n_sampled]``, drawn without replacement.

    They depend on seed and round alone.
    """

    def __init__(self, n_clients: int, n_sampled: int, seed: int = 0) -> None:
        self.n_clients = n_clients
        self.n_sampled = n_sampled
        self.seed = seed

    def __len__(self) -> int:
        return 1

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """See `EpochSampler.batches`."""
        drawn = torch.randperm(self.n_clients, generator=generator(self.seed, "round", epoch))
        yield drawn[: self.n_sampled]

    def most_rounds_of_a_client(self, rounds: int) -> int:
        """How many of the first ``rounds`` rounds the client takes part in that is drawn most often."""
        drawn = [clients for epoch in range(rounds) for clients in self.batches(epoch)]
        return int(torch.cat(drawn).bincount().max()) if drawn else 0


class FederatedData(lightning.LightningDataModule):
    """The clients of a federation: a batch is one round, a list of `ClientRows`, and an epoch is one batch.

    Args:
        train: inputs ``[n, d]`` and labels ``[n]`` of all clients.
        partition: the rows of each client, as indices into ``train``.
        clients_per_round: how many clients are drawn in every round, or, as a float, which share of them (one at
            least).
        seed: root seed of the draws.
        validation: rows to validate on after every round.
        test: test rows.
        numbers: numbers of the rows of ``train`` in the training part of the table; by default their own order.

    Attributes:
        partition: the rows of each client.
        n_sampled: clients drawn in every round.

    Raises:
        DataError: a client without rows, an index that is no whole number or out of range, a row that belongs to two
            clients, or ``numbers`` that are not one for each row.
        UsageError: no client, or more drawn than there are.

    >>> rows = TensorDataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    >>> FederatedData(rows, [[0, 1], [2], [3]], clients_per_round=0.7, seed=0).n_sampled
    2
    """

    def __init__(
        self,
        train: TensorDataset,
        partition: Sequence[Sequence[int] | np.ndarray],
        *,
        clients_per_round: int | float = 1.0,
        seed: int,
        validation: TensorDataset | None = None,
        test: TensorDataset | None = None,
        numbers: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self._numbers = torch.as_tensor(np.arange(len(train)) if numbers is None else whole_numbers(numbers, "numbers"))
        if len(self._numbers) != len(train):
            raise DataError(f"numbers must be one for each of the {len(train)} rows, got {len(self._numbers)}")
        self.partition = _checked(partition, len(train))
        self.n_sampled = _count(clients_per_round, len(partition))
        self.train = train
        self.validation = validation
        self.test = test
        self.seed = seed

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each client."""
        return tuple(len(rows) for rows in self.partition)

    def rows_of_client(self, client: int) -> Tensor:
        """Numbers of a client's rows in the training part of the table, LongTensor ``[n]``."""
        return self._numbers[self.partition[client]]

    def setup(self, stage: str | None = None) -> None:
        """Refuse a Trainer that would make other batches.

        Raises:
            UsageError: it has ``overfit_batches``.
        """
        refuse_overfit_batches(self.trainer)

    def train_dataloader(self) -> DataLoader[list[ClientRows]]:
        """One batch per round."""
        sampler = RoundSampler(len(self.partition), self.n_sampled, self.seed)
        return batch_loader(_Clients(self.train, self.partition), sampler)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]] | list[DataLoader[tuple[Tensor, ...]]]:
        """The validation rows in order; without any, an empty list, which Lightning takes for no validation."""
        return [] if self.validation is None else _in_order(self.validation)

    def test_dataloader(self) -> DataLoader[tuple[Tensor, ...]] | list[DataLoader[tuple[Tensor, ...]]]:
        """The test rows in order."""
        return [] if self.test is None else _in_order(self.test)


class _Clients(Dataset[list[ClientRows]]):
    """Several clients at once by their numbers."""

    def __init__(self, rows: TensorDataset, partition: Sequence[Tensor]) -> None:
        self.rows = rows
        self.partition = partition

    def __getitem__(self, clients: Tensor) -> list[ClientRows]:
        return [ClientRows(client, *self.rows[self.partition[client]]) for client in clients.tolist()]


def _in_order(rows: TensorDataset) -> DataLoader[tuple[Tensor, ...]]:
    return batch_loader(rows, BatchSampler(len(rows), EVALUATION_BATCH_SIZE))


def _count(clients_per_round: int | float, n_clients: int) -> int:
    if isinstance(clients_per_round, float):
        if not 0 < clients_per_round <= 1:
            raise UsageError(f"clients_per_round as a share must be above 0 and at most 1.0, got {clients_per_round}")
        return max(round(clients_per_round * n_clients), 1)
    if isinstance(clients_per_round, bool) or not 1 <= clients_per_round <= n_clients:
        raise UsageError(
            f"clients_per_round must be at least 1 and at most {n_clients} (clients), got {clients_per_round!r}"
        )
    return clients_per_round


def _checked(partition: Sequence[Sequence[int] | np.ndarray], n_rows: int) -> tuple[Tensor, ...]:
    if not len(partition):
        raise UsageError("a federation needs at least one client, got an empty partition")
    held = (row_indices(rows, n_rows, f"the rows of client {number}") for number, rows in enumerate(partition))
    clients = tuple(torch.as_tensor(rows) for rows in held)
    owners = torch.bincount(torch.cat(clients), minlength=n_rows)
    if int(owners.max()) > 1:
        raise DataError(f"row {int(owners.argmax())} belongs to {int(owners.max())} clients; a row must belong to one")
    return clients
