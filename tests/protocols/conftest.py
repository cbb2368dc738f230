"""One small table with numbers and categories, encoded, and a client that trains on it."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import client_update
from lightleak.protocols.records import RecordedClient
from lightleak.targets import NetworkSpec, build_network

N_ROWS = 48


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": draw.integers(18, 80, N_ROWS),
            "pay": draw.normal(30.0, 5.0, N_ROWS),
            "job": draw.choice(list("abc"), N_ROWS),
            "ill": draw.choice(["0", "1"], N_ROWS),
        }
    )


@pytest.fixture(scope="session")
def encoder(frame: pd.DataFrame) -> TableEncoder:
    columns = (Column.integer("age"), Column.continuous("pay"), Column.categorical("job", "abc"))
    return TableEncoder(TableSchema(columns, Column.categorical("ill", ["0", "1"]))).fit(frame)


@pytest.fixture(scope="session")
def rows(encoder: TableEncoder, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
    return encoder.encode(frame), encoder.encode_labels(frame)


Client = Callable[..., tuple[ClientUpdate, RecordedClient]]


@pytest.fixture(scope="session")
def client(encoder: TableEncoder, rows: tuple[Tensor, Tensor]) -> Client:
    """A FedAvg client on the given rows of the table: ``client(range(11), LocalTraining(...), norm="batch")``."""

    def client(
        chosen: Any = range(11),
        training: LocalTraining | None = None,
        *,
        share_labels: Any = "batches",
        share_buffers: bool = True,
        training_mode: bool = True,
        epoch: int = 0,
        seed: int = 0,
        name: str = "mlp",
        defense: Any = None,
        defend: Any = "update",
        **options: Any,
    ) -> tuple[ClientUpdate, RecordedClient]:
        spec = NetworkSpec(name, 2, encoder.layout, options)
        return client_update(
            build_network(spec, seed=1),
            spec,
            encoder,
            rows[0][list(chosen)],
            rows[1][list(chosen)],
            training or LocalTraining(epochs=2, batch_size=4, learning_rate=0.1),
            share_labels=share_labels,
            share_buffers=share_buffers,
            training_mode=training_mode,
            epoch=epoch,
            seed=seed,
            defense=defense,
            defend=defend,
        )

    return client


@pytest.fixture(scope="session")
def plain_sgd() -> Callable[..., nn.Module]:
    """The obvious local training: a copy of the network, torch's optimizer, two loops."""

    def train(
        network: nn.Module, inputs: Tensor, labels: Tensor, training: LocalTraining, order: Tensor, dropout: int
    ) -> nn.Module:
        network = copy.deepcopy(network)
        optimizer = torch.optim.SGD(
            network.parameters(), training.learning_rate, training.momentum, weight_decay=training.weight_decay
        )
        torch.manual_seed(dropout)
        for epoch in order:
            for start in range(0, len(inputs), training.batch_size):
                batch = epoch[start : start + training.batch_size]
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
                optimizer.step()
        return network

    return train
