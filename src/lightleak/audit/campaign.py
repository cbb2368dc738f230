"""Many attacks on many observations: planned in packs, run by several workers, resumed where they stopped.

A unit is one attack on one observation; a pack is what one vectorised call takes. Packs are fixed in the plan, and
every unit has a seed of its own, so results do not depend on how many workers run or on what was interrupted.
"""

import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lightleak.attacks import ATTACKS
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.score import matched, score

ROWS_PER_PACK = {"cpu": 1024, "cuda": 2**20}
"""Rows of one call, over all its updates and restarts. On a CPU more leaves the cache and less is spent on overhead;
a GPU wants as many as fit."""

Observed = tuple[ClientUpdate, GroundTruth | None]


@dataclass(frozen=True)
class Unit:
    """One attack on one observation.

    Attributes:
        id: unique in the run, and a file name.
        attack: attack name.
        options: its settings.
        observe: makes or reads the observation (and the truth, where the run owns it).
        facts: what the results row says besides the scores; ``batch_size`` is needed.
        seed: root of the unit's random streams.
    """

    id: str
    attack: str
    options: dict[str, Any]
    observe: Callable[[], Observed]
    facts: dict[str, Any]
    seed: int

    @property
    def cost(self) -> float:
        """Relative work, for the progress bar: candidates, rows and steps."""
        settings = ATTACKS.get(self.attack)(**self.options).options()
        return float(settings.get("restarts", 1) * settings.get("steps", 1) * self.facts["batch_size"])


@dataclass(frozen=True)
class Outcome:
    """What became of the units: their rows, in the order of the plan, and how many had been done before."""

    rows: list[dict[str, Any]]
    resumed: int


@dataclass
class _Shared:
    """State the workers share."""

    progress: Progress
    task: Any
    stop: threading.Event = field(default_factory=threading.Event)


class _Stopped(Exception):
    """Raised inside a worker when the run is being interrupted."""


def plan_packs(units: Iterable[Unit], device: torch.device) -> list[list[Unit]]:
    """Cut neighbouring units of the same attack, settings and shape into packs, in the order of the plan."""
    packs: list[list[Unit]] = []

    def alike(unit: Unit) -> str:
        shape = {key: unit.facts.get(key) for key in ("dataset", "target", "batch_size", "source", "epoch")}
        return json.dumps([unit.attack, unit.options, shape], sort_keys=True, default=str)

    for _, group in groupby(units, alike):
        members = list(group)
        restarts = ATTACKS.get(members[0].attack)(**members[0].options).options().get("restarts", 1)
        size = max(1, ROWS_PER_PACK[device.type] // (restarts * members[0].facts["batch_size"]))
        packs += [members[i : i + size] for i in range(0, len(members), size)]
    return packs


def run_units(
    units: Sequence[Unit],
    folder: Path,
    device: torch.device,
    workers: int = 0,
    redact: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Run what is not done yet, and keep every finished unit in ``folder/units``.

    Args:
        units: the plan.
        folder: the run folder.
        device: where attacks run.
        workers: packs run at once on a CPU, one thread each; 0 takes one per core. A GPU takes one pack at a time.
        redact: keep no true or reconstructed value.
        quiet: no progress bar.

    Raises:
        LightLeakError: an observation cannot be attacked; finished units are kept.
        KeyboardInterrupt: passed on once the workers have stopped; finished units are kept.
    """
    kept = folder / "units"
    kept.mkdir(parents=True, exist_ok=True)
    missing = [unit for unit in units if not (kept / f"{unit.id}.json").is_file()]
    packs = [left for pack in plan_packs(units, device) if (left := [u for u in pack if u in missing])]
    workers = 1 if device.type != "cpu" else min(workers or os.cpu_count() or 1, max(1, len(packs)))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with _one_thread_per_worker(device), Progress(*columns, disable=quiet or not packs) as progress:
        total = sum(unit.cost for unit in missing)
        shared = _Shared(progress, progress.add_task(f"{len(missing)} attacks", total=total))
        with ThreadPoolExecutor(workers) as pool:
            jobs = [pool.submit(_run_pack, pack, folder, device, redact, shared) for pack in packs]
            try:
                wait(jobs, return_when=FIRST_EXCEPTION)
            finally:
                # Reached by an interrupt or a failed pack as well: running packs stop at their next step.
                if any(not job.done() or job.exception() is not None for job in jobs):
                    shared.stop.set()
                    pool.shutdown(cancel_futures=True)
        for job in jobs:
            if not job.cancelled() and (error := job.exception()) is not None and not isinstance(error, _Stopped):
                raise error
    return Outcome([json.loads((kept / f"{unit.id}.json").read_text()) for unit in units], len(units) - len(missing))


def finished_rows(units: Sequence[Unit], folder: Path) -> list[dict[str, Any]]:
    """Rows of the units that are done, in the order of the plan."""
    files = (folder / "units" / f"{unit.id}.json" for unit in units)
    return [json.loads(file.read_text()) for file in files if file.is_file()]


def _run_pack(pack: Sequence[Unit], folder: Path, device: torch.device, redact: bool, shared: _Shared) -> None:
    if shared.stop.is_set():
        raise _Stopped
    observed = [unit.observe() for unit in pack]
    attack = ATTACKS.get(pack[0].attack)(**pack[0].options)
    cost = pack[0].cost

    def report(fraction: float) -> None:
        if shared.stop.is_set():
            raise _Stopped
        shared.progress.advance(shared.task, fraction * cost)

    seeds = [derive_seed(unit.seed, unit.attack, unit.id) for unit in pack]
    found = attack.run_many([update for update, _ in observed], seeds, device, report)
    for unit, (update, truth), reconstruction in zip(pack, observed, found, strict=True):
        row = _row(unit, update, truth, reconstruction, attack.options(), folder, redact)
        _write(folder / "units" / f"{unit.id}.json", json.dumps(row))


def _row(
    unit: Unit,
    update: ClientUpdate,
    truth: GroundTruth | None,
    reconstruction: Reconstruction,
    options: dict[str, Any],
    folder: Path,
    redact: bool,
) -> dict[str, Any]:
    encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
    row = {"unit": unit.id, **unit.facts, "attack": unit.attack, "seed": unit.seed}
    if truth is not None:
        row |= score(reconstruction, truth, encoder)
    row |= {
        "seconds": reconstruction.seconds,
        "loss": reconstruction.loss,
        "threat_model": reconstruction.threat_model.describe(),
        "options": options,
        "reconstruction": None,
    }
    if not redact:
        rows = matched(reconstruction, truth, encoder) if truth is not None else reconstruction.rows
        file = Path("reconstructions") / f"{unit.id}.csv"
        (folder / file).parent.mkdir(exist_ok=True)
        _write(folder / file, rows.to_csv(index=False))
        row["reconstruction"] = str(file)
    cleaned: dict[str, Any] = without_nan(row)
    return cleaned


def without_nan(value: Any) -> Any:
    """``value`` with NaN and infinities as ``None``: JSON has no word for them."""
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> None:
    """Write whole or not at all: a file that exists is complete."""
    partial = path.with_suffix(path.suffix + ".part")
    partial.write_text(text)
    partial.replace(path)


class _one_thread_per_worker:
    """One torch thread per worker on a CPU: faster than threads inside operations, and equal on any number of cores."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        if self.device.type == "cpu":
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)
