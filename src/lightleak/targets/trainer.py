"""Run a Lightning Trainer within a larger program: quietly, on one device, and with Ctrl-C passed on."""

import logging
import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment

# pytorch-tabular imports Lightning's other packages, and the last one imported configures logging for all of them.
LOGGERS = ("lightning", "lightning.pytorch", "lightning.fabric", "pytorch_lightning", "lightning_fabric")

SPREAD = frozenset({"devices", "num_nodes", "strategy"})
"""Arguments of the Trainer that may ask for several processes; without them an audit trains on one device."""


def on_device(device: torch.device | str) -> dict[str, Any]:
    """Arguments of ``lightning.Trainer`` for one device.

    >>> on_device("cpu")
    {'accelerator': 'cpu', 'devices': 1}
    """
    where = torch.device(device)
    if where.type == "cpu":
        return {"accelerator": "cpu", "devices": 1}
    return {"accelerator": "gpu" if where.type == "cuda" else where.type, "devices": [where.index or 0]}


class OneProcess(LightningEnvironment):
    """Cluster environment of a process that trains alone, whatever launcher started it.

    Hand it to a Trainer as a plugin: otherwise Lightning reads torchrun's or SLURM's variables and, where it does not
    wait for the other processes, refuses some of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._port = 0

    @property
    def creates_processes_externally(self) -> bool:
        """No process is to be started."""
        return True

    @property
    def main_address(self) -> str:
        """This machine."""
        return "127.0.0.1"

    @property
    def main_port(self) -> int:
        """A free port of it."""
        self._port = self._port or find_free_port()
        return self._port

    def local_rank(self) -> int:
        """The only one."""
        return 0

    def node_rank(self) -> int:
        """The only one."""
        return 0

    def teardown(self) -> None:
        """Leave the launcher's variables."""


def alone_on(device: torch.device | str) -> dict[str, Any]:
    """Arguments of ``lightning.Trainer`` for one device, whatever launcher started this process."""
    return {**on_device(device), "plugins": [OneProcess()]}


def find_free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


@contextmanager
def loggers_at(level: int, *names: str) -> Iterator[None]:
    """Within the block these loggers have that level; afterwards each has its own."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in zip(loggers, before, strict=True):
            logger.setLevel(own)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Within the block Lightning announces no devices and gives no tips, in a worker process either."""
    with loggers_at(logging.ERROR, *LOGGERS), warnings.catch_warnings():
        # Loader workers and log intervals, which one tensor in memory does not need.
        warnings.filterwarnings("ignore", module="lightning")
        # Rare classes: a fact of the table. That a network has diverged is said.
        warnings.filterwarnings("ignore", "AUROC (is undefined: all rows are of one class|leaves out)")
        yield


def _leave(*_: object) -> None:
    """Handle a signal by doing nothing."""


@contextmanager
def interrupts(trainer: lightning.Trainer) -> Iterator[None]:
    """Pass Ctrl-C on: Lightning shuts down and then exits with code 1, or, before 2.5, continues.

    SIGTERM keeps its current handler: Lightning's own handler would first wait, in a process group, for
    the other processes, which have received none.

    Raises:
        KeyboardInterrupt: the Trainer was interrupted inside the block.
    """
    if callable(signal.getsignal(signal.SIGTERM)):
        vars(trainer._signal_connector)["_sigterm_notifier_fn"] = _leave
    try:
        yield
    except SystemExit:
        if not trainer.interrupted:
            raise
    if trainer.interrupted:
        raise KeyboardInterrupt
