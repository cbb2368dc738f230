"""``kind: defense-frontier``: the target is trained and attacked under every defense and strength."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch
from rich.console import Console

from lightleak.core.errors import UsageError, placed
from lightleak.core.grouping import by_key
from lightleak.experiments.attack_settings import check_attacks, sends_statistics
from lightleak.experiments.campaign import UpdatePack, find_sizes, plan_packs
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import Engine
from lightleak.experiments.experiment import Experiment, prepare_experiment, target_name
from lightleak.experiments.federation_config import NO_DEFENSE
from lightleak.experiments.kind import Checked, Kind, Rows, Stage
from lightleak.experiments.kinds.frontier.config import FrontierConfig, Point
from lightleak.experiments.kinds.frontier.games import game_packs, write_games
from lightleak.experiments.kinds.frontier.summary import frontier_tables, write_frontier
from lightleak.experiments.kinds.updates.plan import check_served, plan_units
from lightleak.experiments.pack import Pack, Place, Task
from lightleak.experiments.probe import Cost, Estimate, Probed, RunPlan, estimate, probe_training
from lightleak.experiments.row_facts import PRIVACY, release_facts
from lightleak.experiments.terminal import Lines
from lightleak.experiments.training import check_trainer, majority, one_training, prepare_training
from lightleak.experiments.unit import Unit, kept_cells
from lightleak.experiments.whole_epochs import SeedEveryEpoch
from lightleak.targets.trainer import quiet_lightning


class FrontierKind(Kind[FrontierConfig, Experiment]):
    """What every defense buys and costs."""

    name = "defense-frontier"
    config = FrontierConfig
    keys = ("defense_label", "training")

    def check(self, config: FrontierConfig, pass_over: bool = False) -> Checked[FrontierConfig, Experiment]:
        """See `Kind.check`; every attack of a config is needed."""
        check_attacks(config.attacks)
        check_trainer(config.training.trainer, config.device)
        experiment = prepare_experiment(config.audit_at(Point()))
        with quiet_lightning():
            for point in config.points:
                with placed(point.words):
                    check_served(config.audit_at(point), experiment)
        return Checked(config, experiment)

    def stages(
        self, checked: Checked[FrontierConfig, Experiment], folder: Path, engine: Engine, console: Console
    ) -> Iterator[Stage]:
        """See `Kind.stages`: every attack and every training, point by point."""
        yield Stage(frontier_packs(checked.config, checked.world, engine.device, folder), "trainings and attacks")
        if games := game_packs(checked.config, checked.world):
            yield Stage(games, "guessing games", has_rows=False)
            write_games(checked.config, checked.world, folder)

    def captured(self, config: FrontierConfig, root: Path) -> NoReturn:
        """Refuse: captures say what leaked, but nothing of what a defense costs.

        Raises:
            UsageError: always; the message names what attacks captures.
        """
        raise UsageError(
            "a defense frontier trains and attacks by itself, and takes no captures; to attack those in "
            f"{root} use a config of kind: updates with attacks: [{', '.join(config.attacks)}]"
        )

    def plan(self, checked: Checked[FrontierConfig, Experiment], device: torch.device) -> RunPlan:
        """See `Kind.plan`."""
        config, experiment = checked.config, checked.world
        packs = frontier_packs(config, experiment, device)
        trainings = sum(isinstance(pack, Task) for pack in packs)
        attacks = sum(len(pack.ids) for pack in packs) - trainings
        lines = {
            "table": experiment.table_words,
            "target": f"{target_name(experiment.spec)}, {training_words(config)}",
            "points": f"{len(config.points)}: {'; '.join(point.words for point in config.points)}",
            "trainings": f"{trainings}, {config.seeds} at each point",
            "attacks": f"{attacks} on {config.initial.batches} clients of {config.initial.batch_sizes[0]} rows: "
            f"{', '.join(config.attacks)}",
        }
        if games := game_packs(config, experiment):
            lines["games"] = f"{len(games)} sets of candidates, {config.games.trials} releases each at every noise"
        return RunPlan(list(lines.items()), partial(_probe, config, experiment, device))

    def tables(self, results: Mapping[str, Any]) -> Iterator[Lines]:
        """See `Kind.tables`."""
        return frontier_tables(results)

    def leave(self, folder: Path, rows: Rows) -> None:
        """See `write_frontier`."""
        write_frontier(folder, rows)


def _probe(config: FrontierConfig, experiment: Experiment, device: torch.device, seconds: float) -> Probed:
    """Attacks, and one training under each defense; its strength does not change what it takes."""
    with TemporaryDirectory() as folder:
        packs = list(chain(*_attack_packs(config, experiment, device, Path(folder)).values()))
    found = estimate(packs, device, kept_cells(config.redact), seconds)
    for (name, _), points in by_key(config.points, lambda point: (point.name, point.acts_on)).items():
        audit = config.audit_at(points[0], 0)
        epoch = probe_training(audit, experiment)
        whole = Cost(0.0, epoch.seconds, audit.rounds, epoch.memory)
        rows = config.training.batch_size
        found.append(Estimate("training", rows, name, (1,) * (len(points) * config.seeds), whole))
    return Probed([found])


def frontier_packs(
    config: FrontierConfig, experiment: Experiment, device: torch.device, folder: Path | None = None
) -> list[Pack]:
    """Return every attack and every training, point by point; the run folder keeps what one call takes."""
    attacks, kept = _attack_packs(config, experiment, device, folder), kept_cells(config.redact, config.raw_csv)
    packs: list[Pack] = []
    for point in config.points:
        packs += [UpdatePack(members, kept) for members in attacks[point.id]]
        packs += [training_task(config, point, index, experiment) for index in range(config.seeds)]
    return packs


def _attack_packs(
    config: FrontierConfig, experiment: Experiment, device: torch.device, folder: Path | None
) -> dict[str, list[list[Unit]]]:
    """The attacks of each point; no pack holds those of two."""
    units = {point.id: attack_units(config, point, experiment) for point in config.points}
    sizes = {} if folder is None else find_sizes(list(chain(*units.values())), device, folder)
    return {point: plan_packs(of_point, device, sizes) for point, of_point in units.items()}


def attack_units(config: FrontierConfig, point: Point, experiment: Experiment) -> list[Unit]:
    """Every attack on every client under one defense; what reads no update runs without a defense alone.

    Clients, the draws of their defense and the starts of the attack are the same at every point.
    """
    units = plan_units(config.audit_at(point), experiment, Path(os.devnull))
    facts = facts_at(config, point, experiment)
    return [
        replace(unit, id=f"{unit.id}-{point.id}", stream=unit.id, facts=unit.facts | facts)
        for unit in units
        if point.name == NO_DEFENSE or unit.make_attack().threat_model.update
    ]


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
        **facts_at(config, point, experiment),
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
    scores = {"accuracy": test["test/accuracy"], "auroc": test["test/auroc"], "majority": majority(experiment)}
    return [{**facts, **scores, **privacy, "seconds": seconds}]


def facts_at(config: FrontierConfig, point: Point, experiment: Experiment) -> dict[str, Any]:
    """What all rows at one point share."""
    return {
        "kind": FrontierKind.name,
        "dataset": experiment.table.card.name,
        "target": target_name(experiment.spec),
        "protocol": config.protocol.name,
        "batch_size": config.initial.batch_sizes[0] * config.protocol.aggregate,
        "training": training_words(config),
        "label_setting": config.labels,
        **point.facts(),
        **release_facts(point.config, experiment.spec, sends_statistics(config.audit_at(point), is_training=True)),
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
    """A number of things, without the commas of a report, as results.json keeps it.

    >>> _counted(1, "epoch"), _counted(1000, "round")
    ('1 epoch', '1000 rounds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"
