"""``kind: defense-frontier``: the target is trained and attacked under every defense and strength."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console

from lightleak.core.errors import UsageError
from lightleak.experiments.attack_settings import check_attacks
from lightleak.experiments.campaign import packs_without_a_run
from lightleak.experiments.engine import Engine
from lightleak.experiments.experiment import Experiment, prepare_experiment, target_name
from lightleak.experiments.kind import Checked, Kind, Rows, Stage
from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.kinds.frontier.games import game_packs, write_games
from lightleak.experiments.kinds.frontier.plan import attack_units, frontier_packs, training_words
from lightleak.experiments.kinds.frontier.points import Point
from lightleak.experiments.kinds.frontier.summary import frontier_tables, write_frontier
from lightleak.experiments.kinds.updates.plan import check_served
from lightleak.experiments.pack import Task
from lightleak.experiments.probe import Cost, Estimate, Probed, RunPlan, estimate, probe_training
from lightleak.experiments.terminal import Lines
from lightleak.experiments.training import check_trainer
from lightleak.experiments.unit import kept_cells
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
                try:
                    check_served(config.audit_at(point), experiment)
                except UsageError as error:
                    raise type(error)(f"{point.words}: {error}") from error
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
        table = experiment.table
        lines = {
            "table": f"{table.card.name}: {len(table.train)} training and {len(table.test)} test rows, "
            f"encoded width {experiment.encoder.width}",
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
    units = [unit for point in config.points for unit in attack_units(config, point, experiment)]
    found = estimate(packs_without_a_run(units, device), device, kept_cells(config.redact), seconds)
    alike: dict[tuple[str, str], list[Point]] = {}
    for point in config.points:
        alike.setdefault((point.name, point.acts_on), []).append(point)
    for (name, _), points in alike.items():
        audit = config.audit_at(points[0], 0)
        cost = probe_training(audit, experiment)
        whole = Cost(0.0, cost.epoch, audit.rounds, cost.memory)
        rows = config.training.batch_size
        found.append(Estimate("training", rows, name, (1,) * (len(points) * config.seeds), whole))
    return Probed([found])
