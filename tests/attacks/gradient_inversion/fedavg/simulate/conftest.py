"""FedAvg updates of small networks, on the synthetic table and on made images."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.image_scale import ImageScale
from lightleak.data.table import Table
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import client_update
from lightleak.targets.spec import NetworkSpec, build_network

TWO_EPOCHS = LocalTraining(2, 3, 0.05)
MakeFedAvg = Callable[..., tuple[ClientUpdate, GroundTruth]]


@pytest.fixture(scope="session")
def make_fedavg(table: Table) -> MakeFedAvg:
    """A client's FedAvg update on ``n`` random rows, and the truth behind it."""

    def make(
        n: int = 6,
        network: str = "mlp",
        seed: int = 0,
        share_labels: str = "batches",
        dtype: torch.dtype = torch.float32,
        training: LocalTraining = TWO_EPOCHS,
        facts: dict[str, Any] | None = None,
        encoding: Encoding = "standardized",
        **options: Any,
    ) -> tuple[ClientUpdate, GroundTruth]:
        encoder = TableEncoder(table.schema, encoding).fit(table.train)
        inputs, labels = encoder.encode(table.train), encoder.encode_labels(table.train)
        rows = torch.randperm(len(inputs), generator=generator(seed, "rows"))[:n]
        spec = NetworkSpec(network, 2, encoder.layout, options)
        update, truth = client_update(
            build_network(spec, 0).to(dtype),
            spec,
            encoder,
            inputs[rows].to(dtype),
            labels[rows],
            training,
            share_labels=share_labels,
            seed=seed,
        )
        return replace(update, facts=replace(update.facts, **(facts or {}))), truth

    return make


@pytest.fixture(scope="session")
def make_images() -> MakeFedAvg:
    """The same for images of 6 x 6 with smooth content."""
    scale = ImageScale((1, 6, 6), (0.4,), (0.3,))

    def make(n: int = 4, seed: int = 0, training: LocalTraining = TWO_EPOCHS) -> Any:
        spec = NetworkSpec("image_cnn", 3, scale.layout, {"shape": [1, 6, 6], "channels": [4, 5], "hidden": 12})
        draws = generator(seed, "images")
        coarse = torch.rand(n, 1, 3, 3, generator=draws)
        inputs = scale.encode(torch.nn.functional.interpolate(coarse, (6, 6), mode="bilinear"))
        labels = torch.randint(3, (n,), generator=draws)
        return client_update(
            build_network(spec, 0), spec, scale, inputs, labels, training, share_labels="counts", seed=seed
        )

    return make
