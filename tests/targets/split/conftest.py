"""A small split table and a Trainer without side effects."""

from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch

from lightleak.data.vertical import VerticalDataModule, VerticalRows

MakeRows = Callable[..., VerticalRows]
MakeTrainer = Callable[..., lightning.Trainer]


@pytest.fixture
def make_rows() -> MakeRows:
    """Rows whose label depends on their columns; sample ids are not row numbers."""

    def make(n: int = 50, widths: tuple[int, ...] = (5, 3), n_classes: int = 2, seed: int = 0) -> VerticalRows:
        draw = torch.Generator().manual_seed(seed)
        inputs = torch.randn(n, sum(widths), generator=draw)
        directions = torch.randn(sum(widths), n_classes, generator=torch.Generator().manual_seed(7))
        ids = 1000 + torch.randperm(n, generator=draw)
        return VerticalRows(inputs, (inputs @ directions).argmax(1), ids, widths)

    return make


@pytest.fixture
def make_data(make_rows: MakeRows) -> Callable[..., VerticalDataModule]:
    def make(n: int = 50, widths: tuple[int, ...] = (5, 3), n_classes: int = 2, **settings: Any) -> VerticalDataModule:
        train, test = make_rows(n, widths, n_classes), make_rows(60, widths, n_classes, seed=1)
        return VerticalDataModule(train, test, **({"batch_size": 8} | settings))

    return make


@pytest.fixture
def make_trainer() -> MakeTrainer:
    def make(**settings: Any) -> lightning.Trainer:
        silent = {
            "max_epochs": 2,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        return lightning.Trainer(**(silent | settings))

    return make
