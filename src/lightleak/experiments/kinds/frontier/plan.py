"""The units of a frontier: trainings and attacks at every point."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from lightleak.core.records import to_json
from lightleak.experiments.campaign import UpdatePack, find_sizes, plan_packs
from lightleak.experiments.experiment import Experiment, target_name
from lightleak.experiments.federation_config import NO_DEFENSE
from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.kinds.frontier.points import Point
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.pack import Pack
from lightleak.experiments.row_facts import PRIVACY, release_facts
from lightleak.experiments.training import one_training, prepare_training
from lightleak.experiments.unit import Unit, kept_cells, unit_file, write_whole
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
        packs += [TrainingJob(config, point, index, experiment) for index in range(config.seeds)]
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


@dataclass(frozen=True)
class TrainingJob(Pack):
    """One training under one defense: a pack of one unit.

    Attributes:
        config: the audit.
        point: the defense and its strength.
        index: number of the training; those of the same number share first weights and order of rows.
        experiment: table, encoder and network.
    """

    config: FrontierConfig
    point: Point
    index: int
    experiment: Experiment

    @property
    def ids(self) -> Sequence[str]:
        """Its one unit."""
        return [f"training-{self.point.id}-s{self.index}"]

    @property
    def cost(self) -> float:
        """Steps of the training, in the measure of an attack's work."""
        config = self.config
        if config.protocol.is_fedavg:
            passes = config.protocol.rounds * config.protocol.local_epochs
            size = config.protocol.local_batch_size or config.training.batch_size
        else:
            passes, size = config.training.epochs, config.training.batch_size
        return COST_OF_A_STEP * passes * len(self.experiment.table.train) / size

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Train, test, and keep the row."""
        config = self.config.audit_at(self.point, self.index)
        prepared = prepare_training(config, self.experiment)
        began = time.perf_counter()
        with one_training(
            config.training.trainer,
            str(device),
            config.rounds,
            [*prepared.callbacks, SeedEveryEpoch(config.seed)],
            lambda epochs: report(epochs * self.cost / config.rounds),
        ) as trainer:
            trainer.fit(prepared.model, datamodule=prepared.data)
            seconds = time.perf_counter() - began
            test = trainer.test(prepared.model, datamodule=prepared.data, verbose=False)[0]
        row = {"unit": self.ids[0], **self._facts(), "accuracy": test["test/accuracy"], "auroc": test["test/auroc"]}
        privacy = prepared.facts()
        row |= {name: privacy[name] for name in PRIVACY if name in privacy}
        write_whole(unit_file(folder, self.ids[0]), json.dumps(to_json(row | {"seconds": seconds})))

    def _facts(self) -> dict[str, Any]:
        return {
            **common_facts(self.config, self.experiment),
            **self.point.facts(),
            **release_facts(self.point.config, self.experiment.spec),
            "attack": "none",
            "source": "training",
            "seed": self.config.training_seed(self.index),
        }


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
