"""A small table, a target on it, and a way to train it twice from the same seeds."""

from collections.abc import Callable
from typing import Any

import lightning
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

N_ROWS, BATCH_SIZE = 44, 8

Train = Callable[..., TabularClassifier]


@pytest.fixture(scope="session")
def encoder() -> TableEncoder:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.integers(18, 80, N_ROWS), "job": draw.choice(list("abc"), N_ROWS)})
    columns = (Column.integer("age"), Column.categorical("job", "abc"))
    return TableEncoder(TableSchema(columns, Column.categorical("ill", ["0", "1"]))).fit(frame)


@pytest.fixture(scope="session")
def rows(encoder: TableEncoder) -> TensorDataset:
    """44 rows in batches of 8: five full ones and one of 4."""
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(3, (N_ROWS, 1), generator=draw)
    ages = torch.randint(18, 80, (N_ROWS, 1), generator=draw).double()
    return TensorDataset(encoder.assemble(codes, ages), torch.randint(2, (N_ROWS,), generator=draw))


@pytest.fixture(scope="session")
def train(encoder: TableEncoder, rows: TensorDataset) -> Train:
    def train(
        callbacks: lightning.Callback | list[lightning.Callback] | None = None,
        options: dict[str, Any] | None = None,
        module: Callable[..., lightning.LightningModule] = TabularClassifier,
        optimizer: OptimizerConfig | None = None,
        batch_size: int = BATCH_SIZE,
        ckpt_path: str | None = None,
        data: lightning.LightningDataModule | None = None,
        **settings: Any,
    ) -> Any:
        torch.manual_seed(1)
        spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [6, 6]} | (options or {}))
        model = module(spec, optimizer or OptimizerConfig("adam", learning_rate=0.01), seed=0)
        trainer = lightning.Trainer(
            **{
                "accelerator": "cpu",
                "max_epochs": 2,
                "callbacks": callbacks,
                "logger": False,
                "enable_checkpointing": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
            }
            | settings
        )
        trainer.fit(model, data or DataLoader(rows, batch_size=batch_size, shuffle=True), ckpt_path=ckpt_path)
        return model

    return train
