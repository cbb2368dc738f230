"""Units cut into packs: what one vectorised call takes.

Packs are fixed before anything runs, so that results do not depend on who runs them.
"""

import json
from collections.abc import Iterable
from itertools import groupby

import torch

from lightleak.attacks import ATTACKS
from lightleak.audit.unit import Unit

ROWS_PER_PACK = {"cpu": 1024, "cuda": 2**20}
"""Rows of one call, over all its updates and restarts. On a CPU more leaves the cache and less goes into overhead; a
GPU wants as many as fit."""

SHAPE = (
    "dataset",
    "target",
    "batch_size",
    "source",
    "epoch",
    "protocol",
    "local_epochs",
    "local_batch_size",
    "n_clients",
    "defense_strength",
)
"""Facts in which the units of a pack agree."""


def plan_packs(units: Iterable[Unit], device: torch.device) -> list[list[Unit]]:
    """Cut neighbouring units of the same attack, settings and shape into packs, in the order of the plan."""
    packs: list[list[Unit]] = []

    def alike(unit: Unit) -> str:
        shape = {key: unit.facts.get(key) for key in SHAPE}
        return json.dumps([unit.attack, unit.options, shape], sort_keys=True, default=str)

    for _, group in groupby(units, alike):
        members = list(group)
        restarts = ATTACKS.get(members[0].attack)(**members[0].options).options().get("restarts", 1)
        size = max(1, ROWS_PER_PACK[device.type] // (restarts * members[0].rows))
        packs += [members[i : i + size] for i in range(0, len(members), size)]
    return packs
