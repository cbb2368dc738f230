"""Many attacks on many observations: planned in packs, run by any number of processes, resumed where they stopped.

A pack is what one vectorised call takes, or one training with all that is attacked in it. Packs are fixed in the plan
and every unit has a seed of its own, so results do not depend on who runs them or on what was interrupted.

Processes share a folder and nothing else: the ranks of torchrun or srun on one node or many, the workers that each
starts on its own cores or GPUs, and whoever starts the same command a second time. Each makes the plan, takes the
costliest pack that waits and that nobody has claimed (`lightleak.core.claims`), runs it, and takes the next; a pack
whose process died is taken over. There is no process group of ``torch.distributed`` and nothing is reduced or
broadcast: a rank that dies, or never starts, does not keep the others from finishing. A pack that fails stops the
process that ran it; the others retry it when all else is done, and each that fails at it reports the error.

Workers are processes: threads would wait for each other at every one of the many small operations of a step.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.pytorch.utilities import rank_zero_only

from lightleak.core.claims import Claims, pauses
from lightleak.core.devices import one_thread
from lightleak.core.errors import LightLeakError
from lightleak.core.processes import run_in_processes
from lightleak.experiments.lanes import lanes_here
from lightleak.experiments.packing import find_sizes, plan_packs
from lightleak.experiments.progress import CampaignProgress
from lightleak.experiments.progress import progress_bar as progress_bar
from lightleak.experiments.unit import Kept, Unit, finished_files, run_pack, unit_file

CLAIMS = "claims"
"""Subfolder of a run in which its processes say who does what."""

Plan = Callable[[], list[Unit]]
"""Makes the same units, in the same order, in every process; it must be picklable where several workers run."""


class Pack(Protocol):
    """Work that one process does in one go."""

    @property
    def ids(self) -> Sequence[str]:
        """Its units; each leaves a file (`lightleak.experiments.unit.unit_file`)."""

    @property
    def cost(self) -> float:
        """Relative work."""

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Do it, keep every unit in ``folder``, and tell ``report`` about work done."""


@dataclass(frozen=True)
class UpdatePack:
    """Units of one attack on updates of the same shape."""

    units: Sequence[Unit]
    kept: Kept

    @property
    def ids(self) -> Sequence[str]:
        """Unit ids."""
        return [unit.id for unit in self.units]

    @property
    def cost(self) -> float:
        """Sum over the units."""
        return sum(unit.cost for unit in self.units)

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """See `run_pack`."""
        run_pack(self.units, folder, device, self.kept, report)


PackPlan = Callable[[torch.device], Sequence[Pack]]
"""As `Plan`, but makes packs."""

Done = Callable[[int, float], None]
"""Called with the number of a pack and the work done on it."""


def run_units(
    plan: Plan, folder: Path, device: torch.device, workers: int = 1, kept: Kept = "values", quiet: bool = False
) -> list[dict[str, Any]]:
    """Run what is not done yet, keep every finished unit in ``folder/units``, and return all rows in the plan's order.

    Args:
        plan: makes the units.
        folder: the run folder.
        device: where attacks run.
        workers: packs that this process runs at once, each in a process of its own; 0 takes one per core, or one per
            GPU (see `lightleak.experiments.lanes.plan_lanes`).
        kept: what is kept of each cell.
        quiet: no progress bar.

    Raises:
        LightLeakError: an observation cannot be attacked; finished units are kept.
        KeyboardInterrupt: passed on once the workers have stopped; finished units are kept.
    """
    return rows_of(run_packs(partial(update_packs, plan, kept, folder), folder, device, workers, quiet), folder)


def update_packs(plan: Plan, kept: Kept, folder: Path, device: torch.device) -> list[UpdatePack]:
    """The units of a plan, cut into packs; see `run_units` for the arguments."""
    units = plan()
    return [UpdatePack(members, kept) for members in plan_packs(units, device, find_sizes(units, device, folder))]


def run_packs(
    plan: PackPlan,
    folder: Path,
    device: torch.device,
    workers: int = 1,
    quiet: bool = False,
    noun: str = "attacks",
    packs: Sequence[Pack] | None = None,
) -> list[str]:
    """Run the packs of which a unit is not done yet and return all unit ids once every one of them is done.

    Any number of processes may call it with the same plan and folder at once and share the work; a process that comes
    late finds less to do. Arguments and errors as in `run_units`.

    Args:
        plan: makes the packs; picklable where several workers run.
        folder: the run folder.
        device: where packs run.
        workers: see `run_units`.
        quiet: no progress bar.
        noun: what the units are called.
        packs: what the plan makes, where this process has it already.

    Raises:
        LightLeakError: the workers of this process were killed before the work was done.
    """
    (folder / "units").mkdir(parents=True, exist_ok=True)
    packs = plan(device) if packs is None else packs
    waiting = [i for i, pack in enumerate(packs) if not _is_done(pack, folder)]
    missing = sum(not unit_file(folder, id).is_file() for i in waiting for id in packs[i].ids)
    total = sum(packs[i].cost for i in waiting)
    everything = sum(len(pack.ids) for pack in packs)
    with progress_bar(noun, total, quiet or not waiting, everything, everything - missing) as report:
        if waiting:
            costs = {i: packs[i].cost for i in waiting}
            files = {i: [unit_file(folder, id).name for id in packs[i].ids] for i in waiting}
            before = everything - sum(len(names) for names in files.values())
            progress = CampaignProgress(
                costs, files, folder / "units", report, lambda number: report.finished(before + number)
            )
            lanes = lanes_here(device, workers, len(waiting))
            if len(lanes) == 1:
                run_lane(packs, folder, lanes[0], progress.advance, progress.look)
            else:
                _run_in_processes(plan, folder, lanes, progress)
                present = finished_files(folder)
                if left := sum(not _is_among(present, packs[i], folder) for i in waiting):
                    raise LightLeakError(f"every worker of this process was ended; {left} packs are not done")
            progress.finish()
    return [id for pack in packs for id in pack.ids]


def run_lane(
    packs: Sequence[Pack], folder: Path, device: torch.device, done: Done, look: Callable[[], object] = lambda: None
) -> None:
    """Run packs one after the other until all are done, by this process or another.

    Costliest first, so that no long one is left to run alone at the end. Every pack is looked at once, then those that
    others held are looked at again, less and less often: thousands of packs cost a process thousands of looks, not
    thousands for each. While others work, ``look`` is called between two looks.
    """
    claims = Claims(folder / CLAIMS)
    left = sorted(range(len(packs)), key=lambda i: -packs[i].cost)
    wait = pauses()
    with one_thread(), _alone():
        while left:
            held: list[int] = []
            for i in left:
                if _is_done(packs[i], folder):
                    continue
                with claims.hold(f"pack-{packs[i].ids[0]}") as ours:
                    if not ours:
                        held.append(i)
                    elif not _is_among(finished_files(folder), packs[i], folder):
                        # A pack with a unit missing runs whole: other neighbours could round differently.
                        packs[i].run(folder, device, partial(done, i))
                        wait = pauses()
            left = held
            if left:
                time.sleep(next(wait))
                look()


def finished_rows(units: Sequence[Unit], folder: Path) -> list[dict[str, Any]]:
    """Rows of the units that are done, in the order of the plan."""
    return rows_of([unit.id for unit in units], folder)


def rows_of(ids: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """Rows of those units that are done; a unit may hold a list of rows."""
    present = finished_files(folder)
    files = (unit_file(folder, id) for id in ids)
    kept = (json.loads(file.read_text()) for file in files if file.name in present)
    return [row for rows in kept for row in (rows if isinstance(rows, list) else [rows])]


def _is_done(pack: Pack, folder: Path) -> bool:
    """A quick look; ``False`` may be out of date (`finished_files`)."""
    return all(unit_file(folder, id).is_file() for id in pack.ids)


def _is_among(present: set[str], pack: Pack, folder: Path) -> bool:
    return all(unit_file(folder, id).name in present for id in pack.ids)


def _run_in_processes(plan: PackPlan, folder: Path, lanes: Sequence[torch.device], progress: CampaignProgress) -> None:
    running: dict[int, int] = {}

    def done(worker: int, message: tuple[int, float]) -> None:
        running[worker] = message[0]
        progress.advance(*message)

    def ended(worker: int, code: int) -> None:
        if code and worker in running:
            progress.lose(running[worker])

    run_in_processes(_work, [(plan, folder, lane) for lane in lanes], done, ended, progress.look)


def _work(plan: PackPlan, folder: Path, device: torch.device, tell: Callable[[tuple[int, float]], None]) -> None:
    run_lane(plan(device), folder, device, lambda pack, amount: tell((pack, amount)))


@contextmanager
def _alone() -> Iterator[None]:
    """Let a Trainer within a pack log as rank 0: Lightning mutes its loggers on every rank but the first."""
    before = vars(rank_zero_only)["rank"]
    vars(rank_zero_only)["rank"] = 0
    try:
        yield
    finally:
        vars(rank_zero_only)["rank"] = before
