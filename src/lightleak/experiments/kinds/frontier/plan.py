"""The units of a frontier: trainings and attacks at every point."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from lightleak.attacks import ATTACKS
from lightleak.experiments.campaign import UpdatePack
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import NO_DEFENSE
from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.kinds.frontier.points import Point
from lightleak.experiments.kinds.frontier.training import TrainingJob, common_facts
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.pack import Pack
from lightleak.experiments.packing import find_sizes, plan_packs
from lightleak.experiments.unit import Unit, kept_cells


def prepare_frontier(config: FrontierConfig) -> Experiment:
    """Table, encoder and network; errors as for `prepare_experiment`."""
    return prepare_experiment(config.audit_at(Point()))


def frontier_packs(config: FrontierConfig, experiment: Experiment, folder: Path, device: torch.device) -> list[Pack]:
    """Return every attack and every training, point by point."""
    units = [unit for point in config.points for unit in attack_units(config, point, experiment)]
    return packs_of(config, experiment, device, find_sizes(units, device, folder))


def packs_of(
    config: FrontierConfig, experiment: Experiment, device: torch.device, sizes: Mapping[str, int] | None = None
) -> list[Pack]:
    """As `frontier_packs`, with the number of units that one call takes by `pack_key`."""
    packs: list[Pack] = []
    for point in config.points:
        units = attack_units(config, point, experiment)
        packs += [
            UpdatePack(members, kept_cells(config.redact, config.raw_csv))
            for members in plan_packs(units, device, sizes)
        ]
        packs += [TrainingJob(config, point, index, experiment) for index in range(config.seeds)]
    return packs


def attack_units(config: FrontierConfig, point: Point, experiment: Experiment) -> list[Unit]:
    """Every attack on every client under one defense; what reads no update runs without a defense alone.

    Clients, the draws of their defense and the starts of the attack are the same at every point.
    """
    units = plan_units(config.audit_at(point), experiment, Path(os.devnull))
    facts = common_facts(config, experiment) | point.facts()
    return [
        replace(unit, id=f"{unit.id}-{point.id}", stream=unit.id, facts=unit.facts | facts)
        for unit in units
        if point.name == NO_DEFENSE or _reads(unit)
    ]


def _reads(unit: Unit) -> bool:
    return ATTACKS.get(unit.attack)(**unit.options).threat_model.update
