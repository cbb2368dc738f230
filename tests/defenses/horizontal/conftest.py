"""A gradient of odd values, a small table with its data, and a way to train on it."""

from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from lightleak.data.datamodule import TableDataModule
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.table import Table
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig


@pytest.fixture
def gradient() -> dict[str, Tensor]:
    """Tensors of three shapes and very different sizes; some entries are zero, one tensor is."""
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(40, 30, generator=draws)
    weight[3] = 0
    return {"weight": weight, "bias": 1e-3 * torch.randn(40, generator=draws), "scale": torch.zeros(7)}


@pytest.fixture(scope="session")
def table() -> Table:
    """192 rows to train on and 48 to test on."""
    return load_dataset("synthetic", n_discrete=2, n_continuous=2, n_rows=240)


@pytest.fixture(scope="session")
def make_data(table: Table) -> Callable[..., TableDataModule]:
    encoder = TableEncoder(table.schema).fit(table.train)

    def make(batch_size: int = 32, **settings: Any) -> TableDataModule:
        return TableDataModule(table, encoder, batch_size, **{"validation_fraction": 0.0} | settings)

    return make


@pytest.fixture(scope="session")
def make_model(make_data: Callable[..., TableDataModule]) -> Callable[..., TabularClassifier]:
    layout = make_data().encoder.layout

    def make(
        name: str = "mlp", optimizer: OptimizerConfig | None = None, seed: int = 0, **options: Any
    ) -> TabularClassifier:
        options = {"hidden": [8], **options} if name == "mlp" else options
        return TabularClassifier(
            NetworkSpec(name, 2, layout, options), optimizer or OptimizerConfig("sgd", 0.5), seed=seed
        )

    return make


@pytest.fixture(scope="session")
def make_trainer() -> Callable[..., lightning.Trainer]:
    def make(*callbacks: lightning.Callback, **settings: Any) -> lightning.Trainer:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        usual = {"accelerator": "cpu", "max_epochs": 1, "enable_checkpointing": False, "callbacks": list(callbacks)}
        return lightning.Trainer(**quiet | usual | settings)

    return make
