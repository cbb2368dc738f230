"""How many steps the attacks of a trial take: what a budget of steps or of seconds allows."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lightleak.attacks import ATTACKS
from lightleak.core.devices import resolve_device
from lightleak.core.errors import UsageError
from lightleak.core.stored import read_json, write_json
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.load import parse_config
from lightleak.experiments.settings import named_settings, plain
from lightleak.experiments.unit import Unit
from lightleak.tuning.config import BudgetConfig, StudyConfig

TIMED_STEPS = (10, 60)
"""Steps of two short runs; their difference is the time of steps alone, without what comes before and after them."""

REPETITIONS = 2


def with_steps(tree: Mapping[str, Any], budget: BudgetConfig) -> dict[str, Any]:
    """A config in which every attack that takes steps takes as many as ``restart_steps`` allows its restarts.

    Raises:
        UsageError: an attack or a setting that there is not, or more restarts than steps.

    >>> tree = {"attacks": {"tableak": {"restarts": 10}, "random": {}}}
    >>> with_steps(tree, BudgetConfig(restart_steps=5000))["attacks"]
    {'tableak': {'restarts': 10, 'steps': 500}, 'random': {}}
    """
    filled: dict[str, Any] = plain(tree)
    if budget.restart_steps is None:
        return filled
    filled["attacks"] = named_settings("attacks", filled.get("attacks", {}))
    for name, options in filled["attacks"].items():
        known = ATTACKS.get(name)(**options).options() if name in ATTACKS else {}
        if {"steps", "restarts"} <= set(known):
            if known["restarts"] > budget.restart_steps:
                raise UsageError(
                    f"study.budget.restart_steps must be at least the restarts of {name}, {known['restarts']}, "
                    f"got {budget.restart_steps}"
                )
            options["steps"] = budget.restart_steps // known["restarts"]
    return filled


def with_measured_steps(study: StudyConfig, tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the trial's config with the steps that a budget of seconds allows its attacks.

    They are measured once and stored next to the folder, so that a resumed trial and the best config take the same
    number.
    """
    filled: dict[str, Any] = plain(tree)
    if study.budget.seconds is None:
        return filled
    filled["attacks"], file = named_settings("attacks", filled["attacks"]), folder.with_suffix(".json")
    if not file.is_file():
        config = parse_config(tree)
        units = plan_units(config, prepare_experiment(config), Path(os.devnull))
        first = {unit.attack: unit for unit in reversed(units)}
        stepped = [
            name
            for name in first
            if "steps" in ATTACKS.get(name)().options() and "steps" not in filled["attacks"][name]
        ]
        device = resolve_device(config.device)
        measured = {name: steps_within(first[name], study.budget.seconds, device) for name in stepped}
        write_json(file, measured)
    for name, steps in read_json(file).items():
        filled["attacks"][name]["steps"] = steps
    return filled


def steps_within(unit: Unit, seconds: float, device: torch.device) -> int:
    """Steps of a unit's attack that fit into ``seconds`` on its update, at least 1; measured on ``device``."""
    update, _ = unit.observe()

    def timed(steps: int) -> float:
        attack = unit.make_attack(steps=steps)
        began = time.perf_counter()
        attack.run_many([update], [unit.seed], device)
        return time.perf_counter() - began

    few, many = TIMED_STEPS
    timed(1)
    best = {steps: min(timed(steps) for _ in range(REPETITIONS)) for steps in TIMED_STEPS}
    of_step = max((best[many] - best[few]) / (many - few), 1e-9)
    return max(1, int((seconds - max(0.0, best[few] - few * of_step)) / of_step))
