"""Running a Lightning Trainer inside a larger piece of work: quietly, on one device, and so that Ctrl-C arrives."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning
import torch

# pytorch-tabular brings Lightning's other packages, and whichever is imported last speaks for all of them.
LOGGERS = ("lightning", "lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")


def on_device(device: torch.device | str) -> dict[str, Any]:
    """Arguments of ``lightning.Trainer`` for one device.

    >>> on_device("cpu")
    {'accelerator': 'cpu', 'devices': 1}
    """
    where = torch.device(device)
    if where.type == "cpu":
        return {"accelerator": "cpu", "devices": 1}
    return {"accelerator": "gpu" if where.type == "cuda" else where.type, "devices": [where.index or 0]}


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Within the block Lightning announces no devices and gives no tips, in a worker process either."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # Loader workers and log intervals, which one tensor in memory does not need.
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def interrupts(trainer: lightning.Trainer) -> Iterator[None]:
    """Hand Ctrl-C on: Lightning shuts down in order and then exits with code 1, or, before 2.5, goes on.

    Raises:
        KeyboardInterrupt: the Trainer was interrupted inside the block.
    """
    try:
        yield
    except SystemExit:
        if not trainer.interrupted:
            raise
    if trainer.interrupted:
        raise KeyboardInterrupt
