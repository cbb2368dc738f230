"""Leakage reaches every logger that a Trainer may have: TensorBoard, MLflow's file store, Weights & Biases offline."""

import importlib.util
import time
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightleak.data.described_inputs import describe_inputs
from lightleak.experiments.leakage_callback import LeakageCallback
from lightleak.targets.classifier import TabularClassifier

NAME = "reconstruction/inverting_gradients/cell_accuracy"
EPOCHS = 2


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'lightleak[tracking]'")


def train(logger: Logger) -> float:
    """Two epochs; returns the value of the last."""
    torch.manual_seed(0)
    inputs = torch.randn(32, 4)
    watch = LeakageCallback(describe_inputs(inputs), {"inverting_gradients": {"steps": 5}})
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[watch],
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = TabularClassifier(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), n_classes=2)
    trainer.fit(model, DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=8))
    return float(trainer.callback_metrics[NAME])


def test_tensorboard_and_csv(tmp_path: Path) -> None:
    last = train(TensorBoardLogger(str(tmp_path), "board", ""))
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    drawn = [event.value for event in events.Scalars(NAME)]
    assert len(drawn) == EPOCHS and drawn[-1] == pytest.approx(last)
    assert train(CSVLogger(str(tmp_path), "csv", "")) == last
    assert NAME in (tmp_path / "csv" / "metrics.csv").read_text().splitlines()[0]


def test_mlflow_file_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # recent versions refuse a file store without it
    last = train(MLFlowLogger("leakage", tracking_uri=f"file:{tmp_path / 'mlruns'}"))
    (file,) = (tmp_path / "mlruns").glob(f"*/*/metrics/{NAME}")
    values = [float(line.split()[1]) for line in file.read_text().splitlines()]
    assert len(values) == EPOCHS and values[-1] == pytest.approx(last)


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("wandb")
    wandb: Any = pytest.importorskip("wandb", reason="the extra tracking brings it")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    train(WandbLogger(save_dir=tmp_path, offline=True, name="leakage"))
    wandb.finish()
    (record,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    for _ in range(300):  # a process of W&B's writes the file, and may still be at it
        if NAME.encode() in record.read_bytes():
            break
        time.sleep(0.1)
    assert NAME.encode() in record.read_bytes()
