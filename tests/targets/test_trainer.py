"""A Trainer inside a larger piece of work: quiet, and Ctrl-C arrives."""

import logging

import lightning
import pytest

from lightleak.targets.trainer import LOGGERS, interrupts, on_device, quiet_lightning


@pytest.mark.parametrize("name", LOGGERS)
def test_within_the_block_only_errors_are_said_and_after_it_all_is_as_before(name: str) -> None:
    logger = logging.getLogger(name)
    before = logger.level
    with pytest.raises(ValueError, match="inside"), quiet_lightning():
        assert not logger.isEnabledFor(logging.WARNING) and logger.isEnabledFor(logging.ERROR)
        raise ValueError("inside")
    assert logger.level == before


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
