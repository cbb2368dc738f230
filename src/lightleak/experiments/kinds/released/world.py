"""What a config names, made: the task, the target's encoder, and the two networks."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.data.inversion_task import InversionTask, make_inversion_task
from lightleak.experiments.config import TargetConfig
from lightleak.experiments.experiment import load_source
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.pack import Shared
from lightleak.targets import NETWORKS, NetworkSpec


@dataclass(frozen=True)
class World(Shared):
    """The parts of an audit that do not depend on any attack.

    Attributes:
        task: private and public rows.
        encoder: the target's; its statistics are those of the private training rows.
        target: specification of the released model.
        evaluation: specification of the evaluation model.
    """

    task: InversionTask
    encoder: TableEncoder
    target: NetworkSpec
    evaluation: NetworkSpec


def prepare_world(config: ReleasedConfig, seed: int) -> World:
    """The world of one seed; made once per process.

    Raises:
        DataError: the table cannot be read or has too few rows or classes.
        UsageError: no such dataset or network.
    """
    told: dict[str, Any] = config.to_dict()
    parts = {name: told[name] for name in ("data", "task", "target", "evaluation_model")}
    return _world(json.dumps(parts, sort_keys=True), seed)


@lru_cache(maxsize=2)
def _world(parts: str, seed: int) -> World:
    config = ReleasedConfig.parse(json.loads(parts))
    for model in (config.target, config.evaluation_model):
        NETWORKS.get(model.network)  # before a large table is read
    task = make_inversion_task(
        load_source(config.data, seed, config.task.group), config.task, derive_seed(seed, "task")
    )
    encoder = TableEncoder(task.schema, config.data.encoding).fit(task.private_train)

    def spec(model: TargetConfig) -> NetworkSpec:
        return NetworkSpec(model.network, task.schema.n_classes, encoder.layout, model.options)

    return World(task, encoder, spec(config.target), spec(config.evaluation_model))
