"""Units cut into packs: what one vectorised call takes.

Packs are fixed before anything runs, so that results do not depend on where they run. How many units a GPU takes is
found by trying, once for a run folder, and remembered there: a run that is resumed keeps the packs it began with.

The trying, the share of a GPU's memory and TF32 have been tested with stand-ins for a card, never run on one.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from lightleak.attacks import ATTACKS, UpdateAttack
from lightleak.core.errors import UsageError
from lightleak.experiments.unit import Unit, candidates, write_whole

ROWS_PER_PACK = {"cpu": 1024, "cuda": 2**17}
"""Rows of one call, over all its updates and restarts. On a CPU more leaves the cache and less goes into overhead. On a
GPU it bounds the search of `find_sizes`: at so many rows a kernel takes several times as long as its launch (reckoned
from bandwidths, not measured), so more would save nothing and leave the other devices of a run without work."""

PACKS_FILE = "packs.json"

TRIAL_STEPS = 2
MARGIN = 1.25
"""A GPU must run this many times the units of a call in a trial: memory in use there is not always the same."""

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

Trial = Callable[[Unit, int, torch.device], bool]
"""Whether a device has the memory for one call on so many units like this one."""


def plan_packs(units: Iterable[Unit], device: torch.device, sizes: Mapping[str, int] | None = None) -> list[list[Unit]]:
    """Cut neighbouring units of the same attack, settings and shape into packs, in the order of the plan.

    Args:
        units: the plan.
        device: where packs run.
        sizes: units of a pack by `pack_key`, from `find_sizes`; `ROWS_PER_PACK` says it for those left out.
    """
    packs: list[list[Unit]] = []
    for key, group in groupby(units, pack_key):
        members = list(group)
        size = (sizes or {}).get(key) or _size_by_rows(members[0], device)
        packs += [members[i : i + size] for i in range(0, len(members), size)]
    return packs


def find_sizes(units: Sequence[Unit], device: torch.device, folder: Path, fits: Trial | None = None) -> dict[str, int]:
    """How many units of each kind one call takes on a GPU, for `plan_packs`; empty for a CPU, where nothing is tried.

    The number is that of the device, however few units there are: more may come to the same folder later. The result
    is kept in ``folder/packs.json``. Where this process has no GPU, as on the head node of a cluster, nothing is tried.

    Args:
        units: the plan.
        device: where packs run.
        folder: the run folder.
        fits: tries a number of units; by default `runs_at_once`.

    Returns:
        Units by `pack_key`.

    Raises:
        UsageError: not even one unit fits into the memory of the device.
    """
    if device.type == "cpu" or not (fits or torch.cuda.is_available()):
        return {}
    file = folder / PACKS_FILE
    firsts: dict[str, Unit] = {}
    for unit in units:
        firsts.setdefault(pack_key(unit), unit)
    tried = [key for key in firsts if _attack(firsts[key]).packs_updates]

    known = _read_sizes(file)
    if missing := [key for key in tried if key not in known]:
        known |= {key: _find_size(firsts[key], device, fits or runs_at_once) for key in missing}
        entries = [{**json.loads(key), "units": size} for key, size in known.items()]
        write_whole(file, json.dumps({"units_of_a_call": entries}, indent=1))
    return known


def runs_at_once(unit: Unit, number: int, device: torch.device) -> bool:
    """Whether the attack of ``unit`` runs on so many copies of its observation for a few steps."""
    update, _ = unit.observe()
    attack = ATTACKS.get(unit.attack)(**{**unit.options, "steps": TRIAL_STEPS})
    attack = attack.on_card(device)
    if not attack.is_cut(update, device):
        attack = attack.uncut(update, number)  # else a trial beyond the budget would be several small calls
    try:
        attack.run_many([update] * number, range(number), device)
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def pack_key(unit: Unit) -> str:
    """Attack, settings and shape of a unit as JSON: equal for the units that may share a pack."""
    shape = {key: unit.facts.get(key) for key in SHAPE}
    return json.dumps({"attack": unit.attack, "options": unit.options, "shape": shape}, sort_keys=True, default=str)


def largest_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """The number of units to take, at most ``most``, such that `MARGIN` times as many fit; 0 where not even one does.

    Numbers are doubled until one is too large; then the middle is tried, once.

    >>> largest_that_fits(lambda units: units <= 20, most=100)
    16
    """
    found, tried = 0, 1
    while found < most and fits(math.ceil(MARGIN * tried)):
        found, tried = tried, min(2 * tried, most)
    if not found:
        return int(fits(1))
    middle = (found + tried) // 2
    return middle if middle > found and fits(math.ceil(MARGIN * middle)) else found


def _find_size(unit: Unit, device: torch.device, fits: Trial) -> int:
    attack = _attack(unit)
    uncut = attack.on_card(device).updates_at_once(unit.observe()[0], device)
    most = min(uncut, _size_by_rows(unit, device))
    found = largest_that_fits(partial(_fits, fits, unit, device), most)
    if not found:
        raise UsageError(
            f"one call of {unit.attack} on an update of batch size {unit.facts['batch_size']} does not fit into the "
            f"memory that {device} has free: set memory_mb of the attack, or take fewer restarts"
        )
    return found


def _fits(fits: Trial, unit: Unit, device: torch.device, number: int) -> bool:
    return fits(unit, number, device)


def _size_by_rows(unit: Unit, device: torch.device) -> int:
    return max(1, int(ROWS_PER_PACK[device.type] // (candidates(_attack(unit).options()) * unit.rows)))


def _attack(unit: Unit) -> UpdateAttack:
    return ATTACKS.get(unit.attack)(**unit.options)


def _read_sizes(file: Path) -> dict[str, int]:
    if not file.is_file():
        return {}
    entries = json.loads(file.read_text())["units_of_a_call"]
    return {json.dumps({k: v for k, v in e.items() if k != "units"}, sort_keys=True): e["units"] for e in entries}


def packs_without_a_run(units: Sequence[Unit], device: torch.device) -> list[list[Unit]]:
    """The packs that a run would have; no folder remembers what was found for them."""
    with TemporaryDirectory() as folder:
        return plan_packs(units, device, find_sizes(units, device, Path(folder)))
