"""The units of a frontier: trainings and attacks at every point."""

import os
import time
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from lightleak.experiments.campaign import UpdatePack, find_sizes, plan_packs
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment, target_name
from lightleak.experiments.federation_config import NO_DEFENSE
from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.kinds.frontier.points import Point
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.pack import Pack, Place, Task
from lightleak.experiments.row_facts import PRIVACY, release_facts
from lightleak.experiments.training import one_training, prepare_training
from lightleak.experiments.unit import Unit, kept_cells
from lightleak.experiments.whole_epochs import SeedEveryEpoch


def frontier_packs(
    config: FrontierConfig, experiment: Experiment, device: torch.device, folder: Path | None = None
) -> list[Pack]:
    """Return every attack and every training, point by point; the run folder keeps what one call takes."""
    units = {point.id: attack_units(config, point, experiment) for point in config.points}
    sizes = {} if folder is None else find_sizes(list(chain(*units.values())), device, folder)
    kept = kept_cells(config.redact, config.raw_csv)
    packs: list[Pack] = []
    for point in config.points:
        packs += [UpdatePack(members, kept) for members in plan_packs(units[point.id], device, sizes)]
        packs += [training_task(config, point, index, experiment) for index in range(config.seeds)]
    return packs


def attack_units(config: FrontierConfig, point: Point, experiment: Experiment) -> list[Unit]:
    """Every attack on every client under one defense; what reads no update runs without a defense alone.

    Clients, the draws of their defense and the starts of the attack are the same at every point.
    """
    units = plan_units(config.audit_at(point), experiment, Path(os.devnull))
    facts = common_facts(config, experiment) | point.facts() | release_facts(point.config, experiment.spec)
    return [
        replace(unit, id=f"{unit.id}-{point.id}", stream=unit.id, facts=unit.facts | facts)
        for unit in units
        if point.name == NO_DEFENSE or unit.make_attack().threat_model.update
    ]


ROW_KIND = "defense-frontier"
"""The kind as rows of results.json name it."""

COST_OF_A_STEP = 750.0
"""Progress of one training step, relative to a row of an attack in one restart and step."""


def training_task(config: FrontierConfig, point: Point, index: int, experiment: Experiment) -> Task:
    """Return one training under one defense; those of the same index share first weights and order of rows."""
    passes, size = config.training.epochs, config.training.batch_size
    if config.protocol.is_fedavg:
        passes = config.protocol.rounds * config.protocol.local_epochs
        size = config.protocol.local_batch_size or size
    cost = COST_OF_A_STEP * passes * len(experiment.table.train) / size
    unit = f"training-{point.id}-s{index}"
    facts = {
        "unit": unit,
        **common_facts(config, experiment),
        **point.facts(),
        **release_facts(point.config, experiment.spec),
        "attack": "none",
        "source": "training",
        "seed": config.training_seed(index),
    }
    return Task([unit], partial(_train, config.audit_at(point, index), experiment, facts, cost), cost)


def _train(
    config: AuditConfig, experiment: Experiment, facts: dict[str, Any], cost: float, at: Place
) -> list[dict[str, Any]]:
    """Train and test; return the row."""
    prepared, began = prepare_training(config, experiment), time.perf_counter()
    with one_training(
        config.training.trainer,
        str(at.device),
        config.rounds,
        [*prepared.callbacks, SeedEveryEpoch(config.seed)],
        lambda epochs: at.report(epochs * cost / config.rounds),
    ) as trainer:
        trainer.fit(prepared.model, datamodule=prepared.data)
        seconds = time.perf_counter() - began
        test = trainer.test(prepared.model, datamodule=prepared.data, verbose=False)[0]
    privacy = {name: value for name, value in prepared.facts().items() if name in PRIVACY}
    scores = {"accuracy": test["test/accuracy"], "auroc": test["test/auroc"]}
    return [{**facts, **scores, **privacy, "seconds": seconds}]


def common_facts(config: FrontierConfig, experiment: Experiment) -> dict[str, Any]:
    """What all rows of an audit share."""
    return {
        "kind": ROW_KIND,
        "dataset": experiment.table.card.name,
        "target": target_name(experiment.spec),
        "protocol": config.protocol.name,
        "batch_size": config.initial.batch_sizes[0] * config.protocol.aggregate,
        "training": training_words(config),
        "label_setting": config.labels,
    }


def training_words(config: FrontierConfig) -> str:
    """How the target is trained, in one phrase."""
    if config.protocol.is_fedavg:
        at = config.protocol
        clients = f"{at.clients_per_round or at.clients} of {at.clients} clients"
        return (
            f"{_counted(at.rounds, 'round')} of {clients}, {_counted(at.local_epochs, 'local epoch')}, "
            f"sgd at {at.learning_rate:g}"
        )
    settings = config.training
    epochs, sgd = _counted(settings.epochs, "epoch"), settings.optimizer
    return f"{epochs}, batches of {settings.batch_size}, {sgd.name} at {sgd.learning_rate:g}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
