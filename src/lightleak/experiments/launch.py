"""The processes that train one target together: who they are, how they start, and how they end with each other.

A cluster starts them (torchrun, srun). A command that was started by itself starts the others on its machine: each runs
the same command again. Lightning could do that too, but it kills the whole run as soon as one of them ends with an
error, be it long after the training.
"""

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch.distributed
from lightning.fabric.plugins import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from rich.console import Console

from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.ranks import detect_ranks
from lightleak.targets.trainer import OneProcess, find_free_port, on_device, quiet_lightning

TOLD = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables by which a process knows its place; Lightning sets and deletes some of them as it trains."""

PARENT = "LIGHTLEAK_PARENT"
"""Variable by which a process that `together` started knows the process that started it."""

POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0
"""What a process has to notice by itself that another of the training has died; then it is ended."""

PATIENCE_SECONDS = 60.0
"""How long files of another machine may take to be seen, and a process to end that another waits for."""


@dataclass(frozen=True)
class Places:
    """Where a Trainer wants to train.

    Attributes:
        devices: processes on each machine, one device each.
        nodes: machines.
        strategy: how they share the work.
    """

    devices: int
    nodes: int
    strategy: Strategy

    @property
    def world(self) -> int:
        """All processes."""
        return self.devices * self.nodes


def places_of(settings: Mapping[str, Any], device: str) -> Places:
    """Where a Trainer with these arguments trains, by Lightning's own reading of them.

    Args:
        settings: arguments of ``lightning.Trainer``.
        device: where it trains if they do not say.

    Raises:
        UsageError: arguments that the Trainer does not have or refuses, or a strategy that forks.
    """
    rank = rank_zero_only.rank  # type: ignore[attr-defined]
    try:
        with quiet_lightning():
            quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
            trainer = new_trainer(settings, device, OneProcess(), **quiet)
    finally:
        rank_zero_only.rank = rank  # type: ignore[attr-defined]
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise UsageError(
            f"training.trainer.strategy {settings['strategy']!r} trains in copies of this process, of which nothing "
            "that they have recorded comes back; use ddp"
        )
    return Places(trainer.num_devices, trainer.num_nodes, trainer.strategy)


def new_trainer(
    settings: Mapping[str, Any], device: str, environment: ClusterEnvironment, **ours: Any
) -> lightning.Trainer:
    """A Trainer of these arguments in this environment; ``ours`` win.

    Raises:
        UsageError: an argument the Trainer does not have or refuses.
    """
    chosen = chosen_devices(settings, device)
    try:
        return lightning.Trainer(
            **{**settings, **chosen, "enable_model_summary": False, **ours, "plugins": [environment]}
        )
    except (ImportError, RuntimeError, TypeError, ValueError, MisconfigurationException) as error:
        raise UsageError(f"training.trainer: {error}") from error


def chosen_devices(settings: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The arguments ``accelerator`` and ``devices`` of a Trainer: what is set wins, and a single GPU is ``device``'s.

    >>> chosen_devices({"devices": 1}, "cuda:3")
    {'accelerator': 'gpu', 'devices': [3]}
    >>> chosen_devices({"devices": 2}, "cuda:3")
    {'accelerator': 'gpu', 'devices': 2}
    """
    asked = {name: settings[name] for name in ("accelerator", "devices") if name in settings}
    if device == "auto":
        return {"accelerator": "auto", "devices": 1, **asked}
    here = on_device(device)
    is_gpu = here["accelerator"] == "gpu" and asked.get("accelerator", "gpu") in ("auto", "cuda", "gpu")
    if not asked or (is_gpu and asked.get("devices", 1) in (1, "1")):
        return here
    return {**here, "devices": 1, **asked}  # the number of a GPU means nothing elsewhere


def check_started(places: Places) -> None:
    """Refuse a training whose processes are not those that were started, and that this one cannot start.

    Raises:
        UsageError: see the messages.
    """
    ranks, devices, nodes = detect_ranks(), places.devices, places.nodes
    if ranks.world > 1 or TorchElasticEnvironment.detect():
        started = (ranks.local_world, max(1, ranks.world // ranks.local_world))
        if (devices, nodes) != started:
            raise UsageError(
                f"training.trainer asks for devices {devices} and num_nodes {nodes}; the launcher started "
                f"{started[0]} processes on each of {started[1]} nodes. Make them equal, or leave both out: one "
                "process then trains on one device, and all share the attacks"
            )
    elif nodes > 1:
        raise UsageError(
            f"training.trainer.num_nodes {nodes} needs {devices} processes on every node, and this one was started by "
            f"itself. Start the command by `srun --nodes={nodes} --ntasks-per-node={devices}`, or on every node by "
            f"`torchrun --nnodes={nodes} --nproc-per-node={devices} --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT -m "
            "lightleak`"
        )
    elif places.strategy.root_device.type == "cpu" and devices > (cores := os.cpu_count() or 1):
        raise UsageError(f"training.trainer.devices must be at most {cores} (CPU cores), got {devices}")
    elif devices > 1 and not hasattr(sys.modules["__main__"], "__file__"):
        raise UsageError(
            f"training.trainer.devices {devices} starts this program again for every further device, which cannot be "
            "done for a notebook or an interactive Python. Put the audit into a file, or use `lightleak audit`"
        )


def check_one_device(settings: Mapping[str, Any], device: str) -> None:
    """Refuse to train on several devices where trainings run side by side, each in a process of a campaign.

    Raises:
        UsageError: see the message, or no such device.
    """
    resolve_device(device)
    places = places_of(settings, device)
    if places.world > 1:
        raise UsageError(
            "an audit of this kind runs its trainings side by side, each on one device, and shares them among the "
            f"processes of torchrun or srun; training.trainer asks for devices {places.devices} and num_nodes "
            f"{places.nodes} in each"
        )


def cluster_environment() -> ClusterEnvironment:
    """What tells Lightning the place of this process: torchrun's or srun's variables, or those of `together`."""
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    ranks = detect_ranks()
    if ranks.world == 1 or "LOCAL_RANK" in os.environ:
        return LightningEnvironment()
    # Lightning insists on the number that srun tells only where it was given as a flag.
    os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(ranks.local_world))
    # A run that is requeued goes on from its last finished epoch; Lightning's own requeueing would do so in the middle.
    return SLURMEnvironment(auto_requeue=False)


@contextmanager
def together(places: Places) -> Iterator[None]:
    """Within the block this process is one of those that train together; started by itself, it starts the others.

    Processes that were started go on with what the command does next, and each can still tell its place; no process
    group is left. So a further training of the same program finds them there again: each runs the whole program. They
    are ended where the block is left by an error, and this process is then alone, as before; and they end by themselves
    when this process is gone, however it ended.

    Raises:
        LightLeakError: one of them ended before the block did.
    """
    if is_companion():
        threading.Thread(target=_end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
    alone = {name: os.environ[name] for name in (*TOLD, "RANK") if name in os.environ}
    companions = _Companions(places.devices) if detect_ranks().world == 1 else None
    place = {name: os.environ[name] for name in TOLD if name in os.environ}
    try:
        yield
    except BaseException as error:
        lost = isinstance(error, RuntimeError)  # what a lost connection is called differs by backend
        if lost and companions is not None:
            time.sleep(POLL_SECONDS)  # it is lost before the other process has quite ended
        codes: list[int] = []
        if companions is not None:
            codes, place = companions.kill(), alone
        if codes and lost:
            raise LightLeakError(f"a process of the training ended before it was over, with code {codes[0]}") from error
        raise
    finally:
        if companions is not None:
            companions.over.set()
        if torch.distributed.is_initialized():
            with suppress(RuntimeError):  # of a group whose other processes have died
                torch.distributed.destroy_process_group()
        if place is alone:
            for name in TOLD:
                os.environ.pop(name, None)
        os.environ.update(place)


def is_companion() -> bool:
    """Whether `together` of another process started this one."""
    return PARENT in os.environ


def _end_with(parent: int) -> None:
    """End this process when its parent is no longer the one that started it; that one was killed, or has ended."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


def see_each_others_files(folder: Path, patterns: Collection[str]) -> None:
    """Return when this process sees all files that any of the group sees; other machines' may show late.

    Args:
        folder: what they share.
        patterns: which files in it.

    Raises:
        UsageError: they still do not after `PATIENCE_SECONDS`.
    """

    def seen() -> set[str]:
        return {str(path.relative_to(folder)) for pattern in patterns for path in folder.glob(pattern)}

    others: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(others, seen())
    expected = set().union(*others)
    until = time.monotonic() + PATIENCE_SECONDS
    while missing := expected - seen():
        if time.monotonic() > until:
            raise UsageError(f"{folder} must be a folder that all processes share; {sorted(missing)[0]} is not seen")
        time.sleep(POLL_SECONDS)


class _Companions:
    """The other processes of a training on this machine: each runs this process's command again.

    Attributes:
        over: set when the training is over; then one that ends is no longer missed.
    """

    def __init__(self, count: int) -> None:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port()), "NODE_RANK": "0"}
        place |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        os.environ.update(place, LOCAL_RANK="0")
        os.environ.pop("RANK", None)  # torchrun's: another launcher's would be wrong in all processes but one
        self.over = threading.Event()
        told = {**os.environ, PARENT: str(os.getpid())}
        self._processes = [
            subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env={**told, "LOCAL_RANK": str(rank)})
            for rank in range(1, count)
        ]
        threading.Thread(target=self._watch, daemon=True).start()
        atexit.register(self._wait)

    def kill(self) -> list[int]:
        """End them at once, as what they write is whole or absent; returns the exit codes of those that had ended."""
        codes = self._ended()
        for process in self._processes:
            process.kill()
        return codes

    def _ended(self) -> list[int]:
        return [process.returncode for process in self._processes if process.poll() is not None]

    def _watch(self) -> None:
        """End this process where another died in the training and a collective operation waits for it in vain."""
        while not self.over.wait(POLL_SECONDS):
            if self._ended() and not self.over.wait(GRACE_SECONDS):
                Console(stderr=True).print(
                    f"lightleak: a process of the training ended before it was over, with code {self.kill()[0]}. "
                    "Finished epochs are kept; run the same command again",
                    soft_wrap=True,
                )
                os._exit(1)

    def _wait(self) -> None:
        for process in self._processes:
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
