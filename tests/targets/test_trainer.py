"""A Trainer inside a larger piece of work: quiet, and Ctrl-C arrives."""

import logging
import warnings

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.evaluation import DIVERGED, classification_metrics
from lightleak.targets.trainer import LOGGERS, OneProcess, interrupts, on_device, quiet_lightning


@pytest.mark.parametrize("name", LOGGERS)
def test_within_the_block_only_errors_are_said_and_after_it_all_is_as_before(name: str) -> None:
    logger = logging.getLogger(name)
    before = logger.level
    with pytest.raises(ValueError, match="inside"), quiet_lightning():
        assert not logger.isEnabledFor(logging.WARNING) and logger.isEnabledFor(logging.ERROR)
        raise ValueError("inside")
    assert logger.level == before


def test_rare_classes_are_no_warning_and_a_diverged_network_is() -> None:
    with warnings.catch_warnings(record=True) as caught, quiet_lightning():
        for labels in ([1, 1], [0, 1]):
            computed = classification_metrics(3, "val/")
            computed.update(torch.tensor([[0.2, 0.7, 0.1]] * 2), torch.tensor(labels))
            computed.compute()
        computed = classification_metrics(2, "val/")
        computed.update(torch.full((2,), torch.nan), torch.tensor([0, 1]))
        computed.compute()
    assert [str(one.message) for one in caught] == [f"AUROC is undefined: {DIVERGED}"]


def test_an_interrupted_trainer_hands_ctrl_c_on() -> None:
    with quiet_lightning():
        trainer = lightning.Trainer(**on_device("cpu"), logger=False, enable_checkpointing=False)
    with pytest.raises(KeyboardInterrupt), interrupts(trainer):
        trainer.state.status = lightning.pytorch.trainer.states.TrainerStatus.INTERRUPTED
        raise SystemExit(1)
    trainer.state.status = lightning.pytorch.trainer.states.TrainerStatus.FINISHED
    with pytest.raises(SystemExit), interrupts(trainer):
        raise SystemExit(1)


def test_a_gpu_is_named_by_its_index() -> None:
    assert on_device("cuda:1") == {"accelerator": "gpu", "devices": [1]}
    assert on_device("cuda") == {"accelerator": "gpu", "devices": [0]}


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
@pytest.mark.parametrize(
    "launcher",
    [
        {"TORCHELASTIC_RUN_ID": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_PORT": "1"},
        {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0"},
    ],
    ids=["torchrun", "srun"],
)
def test_one_process_trains_by_itself_beside_others(
    monkeypatch: pytest.MonkeyPatch, launcher: dict[str, str], strategy: str
) -> None:
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")  # where nobody is
    module = TabularClassifier(torch.nn.Linear(2, 2), n_classes=2)
    with quiet_lightning():
        trainer = lightning.Trainer(
            **on_device("cpu"),
            strategy=strategy,
            plugins=[OneProcess()],
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        rows = TensorDataset(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
        trainer.fit(module, DataLoader(rows, batch_size=2))
    assert (trainer.world_size, trainer.global_rank, trainer.global_step) == (1, 0, 2)
    if strategy == "ddp":
        torch.distributed.destroy_process_group()
