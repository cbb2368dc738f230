"""The Trainers of targets, and the processes that train one target together: one for each device.

torchrun and srun start the whole command once for each device. A command that was started by itself trains in a program
of its own, `lightleak.experiments.train_on_devices`, which Lightning starts again for every further device.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
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

from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.ranks import detect_ranks
from lightleak.experiments.pack import Knowledge
from lightleak.targets.trainer import SPREAD, OneProcess, on_device, quiet_lightning

PROGRAM = "lightleak.experiments.train_on_devices"

POLL_SECONDS = 0.5

PATIENCE_SECONDS = 5.0
"""What the processes of a training have to finish their step after Ctrl-C; then they are killed."""

FILES_SECONDS = 60.0
"""How long files that another machine has written may take to be seen."""


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


OURS = (
    "callbacks",
    "default_root_dir",
    "enable_checkpointing",
    "enable_model_summary",
    "enable_progress_bar",
    "logger",
    "max_epochs",
    "plugins",
)
"""Arguments of the Trainer that an audit sets itself."""


def make_trainer(
    settings: Mapping[str, Any], device: str, environment: ClusterEnvironment | None = None, **ours: Any
) -> lightning.Trainer:
    """A Trainer with the arguments a config names; ``ours`` are what the audit sets itself.

    On one device it trains by itself, whatever launcher started this process. ``environment`` is known
    where another program, such as Ray, has started the processes.

    Raises:
        UsageError: an argument the Trainer does not have, refuses, or that is the audit's own, one that leaves it
            without its batches, or processes that were not started.
    """
    if taken := sorted(set(settings) & set(OURS)):
        raise UsageError(f"training.trainer cannot set {', '.join(taken)}: the audit sets them itself")
    if settings.get("overfit_batches"):
        raise UsageError(
            "training.trainer cannot set overfit_batches, which replaces the sampler that makes the batches; to train "
            "on the first ones alone set limit_train_batches"
        )
    if settings.get("limit_test_batches") == 0:
        raise UsageError("training.trainer.limit_test_batches must be above 0, as the network is tested; got 0")
    if environment is None and SPREAD & settings.keys() and (places := places_of(settings, device)).world > 1:
        check_started(places)
        environment = cluster_environment()
    elif environment is None:
        environment = OneProcess()
        # Lightning else takes the launcher's rank and leaves logging to another process.
        rank_zero_only.rank = 0  # type: ignore[attr-defined]
    return new_trainer(settings, device, environment, **ours)


def new_trainer(
    settings: Mapping[str, Any], device: str, environment: ClusterEnvironment, **ours: Any
) -> lightning.Trainer:
    """A Trainer of these arguments in this environment; ``ours`` win.

    Raises:
        UsageError: an argument the Trainer does not have or refuses.
    """
    arguments = {
        **settings,
        **chosen_devices(settings, device),
        "enable_model_summary": False,
        **ours,
        "plugins": [environment],
    }
    try:
        return lightning.Trainer(**arguments)
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
                "process then trains on one device"
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


def cluster_environment() -> ClusterEnvironment:
    """Return the cluster environment of this process, from the variables of torchrun, srun or its own launcher."""
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    ranks = detect_ranks()
    if ranks.world == 1 or "LOCAL_RANK" in os.environ:
        return LightningEnvironment()
    # Lightning insists on the number, which srun exports only if it was given as a flag.
    os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(ranks.local_world))
    # A run that is requeued resumes at its last finished epoch; Lightning's own requeueing would do so in the middle.
    return SLURMEnvironment(auto_requeue=False)


@contextmanager
def joined(folder: Path, patterns: Collection[str]) -> Iterator[None]:
    """Within the block this process trains with those that its launcher started; then the process group is left.

    Args:
        folder: what they share.
        patterns: files in it that each of them sees when the block has ended.

    Raises:
        UsageError: see `see_each_others_files`.
    """
    try:
        yield
        see_each_others_files(folder, patterns)
    finally:
        if torch.distributed.is_initialized():
            with suppress(RuntimeError):  # of a group whose other processes have died
                torch.distributed.destroy_process_group()


def run_on_devices(work: Callable[..., None], *arguments: Any) -> None:
    """Call ``work(*arguments)`` in a program that Lightning may start again for further devices, and wait for it.

    Raises:
        Exception: what ``work`` raised in the first process.
        LightLeakError: a process died.
        KeyboardInterrupt: passed on; what is finished is kept.
    """
    with TemporaryDirectory(prefix="lightleak-") as folder:
        task = Path(folder) / "task"
        task.write_bytes(pickle.dumps((Knowledge(), pickle.dumps((work, arguments)))))
        # A process group of its own: whatever happens, all of its processes can be ended. It ends with its input.
        program = subprocess.Popen([sys.executable, "-m", PROGRAM, task], stdin=subprocess.PIPE, start_new_session=True)
        try:
            code = program.wait()
        except KeyboardInterrupt:
            os.killpg(program.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                program.wait(PATIENCE_SECONDS)
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
        file = task.with_suffix(".error")
        error = pickle.loads(file.read_bytes()) if file.is_file() else None
        if error is not None and type(error) is not RuntimeError:  # which is what a lost connection is
            raise error
        if code:
            raise LightLeakError(f"a process of the training ended before it was over, with code {code}") from error


def see_each_others_files(folder: Path, patterns: Collection[str]) -> None:
    """Return when this process sees all files that any of the group sees; other machines' may show late.

    Args:
        folder: what they share.
        patterns: which files in it.

    Raises:
        UsageError: they still do not after `FILES_SECONDS`.
    """

    def seen() -> set[str]:
        return {str(path.relative_to(folder)) for pattern in patterns for path in folder.glob(pattern)}

    others: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(others, seen())
    expected = set().union(*others)
    until = time.monotonic() + FILES_SECONDS
    while missing := expected - seen():
        if time.monotonic() > until:
            raise UsageError(f"{folder} must be a folder that all processes share; {sorted(missing)[0]} is not seen")
        time.sleep(POLL_SECONDS)
