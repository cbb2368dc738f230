"""A small synthetic table, updates of small networks on it, and an independent measure of what came back."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.table import Table
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

MakeUpdate = Callable[..., tuple[ClientUpdate, GroundTruth]]


@pytest.fixture(scope="session")
def table() -> Table:
    """Three discrete and two continuous columns, 400 rows."""
    return load_dataset("synthetic", n_discrete=3, n_continuous=2, n_rows=400)


@pytest.fixture(scope="session")
def encoder(table: Table) -> TableEncoder:
    """TabLeak's encoding of it."""
    return TableEncoder(table.schema).fit(table.train)


@pytest.fixture(scope="session")
def make_update(table: Table, encoder: TableEncoder) -> MakeUpdate:
    """A client's update on ``n`` random rows, and the truth behind it."""
    inputs, labels = encoder.encode(table.train), encoder.encode_labels(table.train)
    marginals = Marginals.of(table.schema, table.test)

    def make(
        n: int = 4,
        network: str = "mlp",
        seed: int = 0,
        share_labels: bool = True,
        n_classes: int = 2,
        dtype: torch.dtype = torch.float32,
        training_mode: bool = True,
        share: dict[str, Any] | None = None,
        **options: Any,
    ) -> tuple[ClientUpdate, GroundTruth]:
        draw = generator(seed, "rows")
        rows = torch.randperm(len(inputs), generator=draw)[:n]
        y = labels[rows] if n_classes == 2 else torch.randint(n_classes, (n,), generator=draw)
        spec = NetworkSpec(network, n_classes, encoder.layout, options)
        built = build_network(spec, seed).to(dtype)
        update, _ = client_update(
            built,
            spec,
            encoder,
            inputs[rows].to(dtype),
            y,
            share_labels=share_labels,
            training_mode=training_mode,
            **{"marginals": marginals, "share_statistics": True, **(share or {})},
        )
        return update, GroundTruth(inputs[rows].clone(), y.clone())

    return make


@pytest.fixture(scope="session")
def cell_accuracy(encoder: TableEncoder) -> Callable[[Reconstruction, GroundTruth], float]:
    """Right cells (TabLeak Eq. 6) under the best pairing of the rows, found row by row."""
    from scipy.optimize import linear_sum_assignment

    def right(true: pd.Series, guess: pd.Series) -> int:
        deviation = dict(zip([c.name for c in encoder.schema.numerical], encoder.deviation.tolist(), strict=True))
        return sum(
            abs(true[c.name] - guess[c.name]) <= 0.319 * deviation[c.name]
            if c.is_numerical
            else true[c.name] == guess[c.name]
            for c in encoder.schema.columns
        )

    def measure(reconstruction: Reconstruction, truth: GroundTruth) -> float:
        true_rows = encoder.decode(truth.inputs)
        hits = [[right(t, g) for _, g in reconstruction.rows.iterrows()] for _, t in true_rows.iterrows()]
        rows, guesses = linear_sum_assignment(hits, maximize=True)
        return sum(hits[i][j] for i, j in zip(rows, guesses, strict=True)) / true_rows.size

    return measure


@pytest.fixture(scope="session")
def stack() -> Callable[[list[ClientUpdate], str, torch.dtype], dict[str, Tensor]]:
    """One group of tensors of several updates, with a leading dimension over updates."""

    def stacked(updates: list[ClientUpdate], group: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        named = [getattr(update, group) for update in updates]
        return {name: torch.stack([one[name] for one in named]).to(dtype) for name in named[0]}

    return stacked
