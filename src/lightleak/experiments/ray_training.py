"""Training the target on a Ray cluster: as a pack on one device, by Ray Train's Lightning strategies on several.

The processes share no folder: each trains in a folder of its own machine, and at the end the first has the captures of
all. A training that is interrupted starts again at its first epoch.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
import torch.distributed

from lightleak.core.errors import UsageError
from lightleak.core.stored import write_whole
from lightleak.experiments.campaign import keep
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import Engine
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.pack import Files, Finished, Knowledge, Pack, Report, files_of
from lightleak.experiments.progress import silent
from lightleak.experiments.training import TRAINING_FILE, places_of_training, train_as_one_of

STRATEGIES = {"auto": "RayDDPStrategy", "ddp": "RayDDPStrategy", "fsdp": "RayFSDPStrategy"}
"""Ray's form of a strategy of Lightning's."""

RAY_SETS = ("devices", "num_nodes", "strategy")
"""Arguments of the Trainer that follow from Ray's workers."""

MAX_FAILURES = 3
"""How often a training starts again after a worker or a node dies."""


@dataclass(frozen=True)
class TrainingPack(Pack):
    """A training on one device."""

    config: AuditConfig
    experiment: Experiment
    ids: ClassVar[Sequence[str]] = ("training",)
    """No unit: the folder holds `TRAINING_FILE` when it is done."""

    @property
    def cost(self) -> float:
        """Its epochs."""
        return float(self.config.rounds)

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Train."""
        train_as_one_of(self.config, self.experiment, folder, silent())


def train_on_ray(config: AuditConfig, experiment: Experiment, folder: Path, engine: Engine) -> None:
    """Train the target on a cluster and write what it leaves into the run folder.

    Args:
        config: the audit.
        experiment: its parts.
        folder: the run folder.
        engine: a `RayEngine`.

    Raises:
        UsageError: a strategy that Ray Train does not have.
        Exception: what the training raised.
    """
    pack = TrainingPack(config, experiment)
    if places_of_training(config).world == 1:
        for finished in engine.run([pack], folder):
            if finished.error is not None:
                raise finished.error
            _keep(finished, folder)
        return
    _keep(Finished(pack, _train_on_workers(pack, engine.device)), folder)


def _keep(finished: Finished, folder: Path) -> None:
    """Write what a training left, `TRAINING_FILE` last: where it stands, nothing of the training is missing."""
    before = {name: file for name, file in finished.files.items() if name != TRAINING_FILE}
    keep(Finished(finished.pack, before), folder)
    write_whole(folder / TRAINING_FILE, finished.files[TRAINING_FILE])


def _train_on_workers(pack: TrainingPack, device: torch.device) -> Files:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.util.queue import Queue

    strategy = pack.config.training.trainer.get("strategy", "auto")
    if strategy not in STRATEGIES:
        raise UsageError(f"training.trainer.strategy must be one of {', '.join(STRATEGIES)} on Ray, got {strategy!r}")
    result = Queue(actor_options={"num_cpus": 0})  # takes the files that the first worker sends
    task = {"knowledge": Knowledge(), "pack": ray.put(pickle.dumps(pack)), "result": result, "strategy": strategy}
    world = places_of_training(pack.config).world
    with TemporaryDirectory() as storage:  # Ray notes the state of the training there; checkpoints stay on the workers
        TorchTrainer(
            _train_on_worker,
            train_loop_config=task,
            scaling_config=ScalingConfig(num_workers=world, use_gpu=device.type == "cuda"),
            run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=MAX_FAILURES)),
        ).fit()
    files: Files = result.get_nowait()
    return files


def _train_on_worker(task: Mapping[str, Any]) -> None:
    import ray
    from ray.train import lightning as ray_lightning

    task["knowledge"].load()
    pack: TrainingPack = pickle.loads(ray.get(task["pack"]))
    settings = {name: value for name, value in pack.config.training.trainer.items() if name not in RAY_SETS}
    config = replace(pack.config, training=replace(pack.config.training, trainer=settings))
    strategy = getattr(ray_lightning, STRATEGIES[task["strategy"]])()
    with TemporaryDirectory() as folder:
        train_as_one_of(
            config,
            pack.experiment,
            Path(folder),
            silent(),
            environment=ray_lightning.RayLightningEnvironment(),
            trainer_settings={**settings, "devices": "auto", "strategy": strategy},
        )
        found = files_of(Path(folder))
        captures = {name: content for name, content in found.items() if name.startswith("captures/")}
        gathered: list[Files] = [{} for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather_object(gathered, captures)
        if torch.distributed.get_rank() == 0:
            for one in gathered:
                found |= one
            task["result"].put(found)
