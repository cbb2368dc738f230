"""Many attacks on many observations: planned in packs, run by several processes, resumed where they stopped.

A pack is what one vectorised call takes, or one training with all that is attacked in it. Packs are fixed in the plan
and every unit has a seed of its own, so results do not depend on how many workers run or on what was interrupted. A
worker is a process that makes the plan anew and is told which packs are its own: threads would wait for each other at
every one of the many small operations of a step.
"""

import json
import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lightleak.audit.packing import plan_packs
from lightleak.audit.unit import Kept, Unit, run_pack, unit_file

PROGRESS_SECONDS = 0.2

Plan = Callable[[], list[Unit]]
"""Makes the same units, in the same order, in every process; it must be picklable where several workers run."""


class Pack(Protocol):
    """Work that one process does in one go."""

    @property
    def ids(self) -> Sequence[str]:
        """Its units; each leaves a file (`lightleak.audit.unit.unit_file`)."""

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


def run_units(
    plan: Plan, folder: Path, device: torch.device, workers: int = 1, kept: Kept = "values", quiet: bool = False
) -> list[dict[str, Any]]:
    """Run what is not done yet, keep every finished unit in ``folder/units``, and return all rows in the plan's order.

    Args:
        plan: makes the units.
        folder: the run folder.
        device: where attacks run.
        workers: packs run at once on a CPU, one process and one thread each; 0 takes one per core. A GPU takes one pack
            at a time.
        kept: what is kept of each cell.
        quiet: no progress bar.

    Raises:
        LightLeakError: an observation cannot be attacked; finished units are kept.
        KeyboardInterrupt: passed on once the workers have stopped; finished units are kept.
    """
    return rows_of(run_packs(partial(_update_packs, plan, kept), folder, device, workers, quiet), folder)


def _update_packs(plan: Plan, kept: Kept, device: torch.device) -> list[UpdatePack]:
    return [UpdatePack(units, kept) for units in plan_packs(plan(), device)]


def run_packs(
    plan: PackPlan, folder: Path, device: torch.device, workers: int = 1, quiet: bool = False, noun: str = "attacks"
) -> list[str]:
    """Run the packs of which a unit is not done yet and return all unit ids; arguments and errors as in `run_units`."""
    (folder / "units").mkdir(parents=True, exist_ok=True)
    packs = plan(device)
    missing = {id for pack in packs for id in pack.ids if not unit_file(folder, id).is_file()}
    # A pack with a unit missing runs whole: other neighbours could round differently.
    waiting = [i for i, pack in enumerate(packs) if missing.intersection(pack.ids)]
    workers = 1 if device.type != "cpu" else min(workers or os.cpu_count() or 1, len(waiting))
    total = sum(packs[i].cost for i in waiting)
    with progress_bar(f"{len(missing)} {noun}", total, quiet or not waiting) as report:
        if workers <= 1:
            with _one_thread(device):
                for i in waiting:
                    packs[i].run(folder, device, report)
        else:
            _run_in_processes(plan, waiting, workers, folder, device, report)
    return [id for pack in packs for id in pack.ids]


def finished_rows(units: Sequence[Unit], folder: Path) -> list[dict[str, Any]]:
    """Rows of the units that are done, in the order of the plan."""
    return rows_of([unit.id for unit in units], folder)


def rows_of(ids: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """Rows of those units that are done."""
    files = (unit_file(folder, id) for id in ids)
    return [json.loads(file.read_text()) for file in files if file.is_file()]


def _run_in_processes(
    plan: PackPlan,
    waiting: Sequence[int],
    workers: int,
    folder: Path,
    device: torch.device,
    report: Callable[[float], None],
) -> None:
    # Spawned, not forked: a copy of a process that has trained holds the locks of threads it does not have.
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    done = context.Queue()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (plan, folder, device, done))
    try:
        jobs = [pool.submit(_work, i) for i in waiting]
        left = set(jobs)
        while left:
            finished, left = wait(left, PROGRESS_SECONDS, FIRST_EXCEPTION)
            for job in finished:
                job.result()
            while True:
                try:
                    report(done.get_nowait())
                except queue.Empty:
                    break
    except BaseException:
        # An interrupt, or a pack that failed: what runs is abandoned. Files are written whole, so none is half there.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    pool.shutdown()


_worker: dict[str, Any] = {}
"""What a worker process keeps between its packs."""


def _start_worker(plan: PackPlan, folder: Path, device: torch.device, done: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    torch.set_num_threads(1)
    parent = os.getppid()

    def report(amount: float) -> None:
        if os.getppid() != parent:
            os._exit(1)  # the parent was killed: nobody waits for this work, and the run can be resumed
        done.put(amount)

    _worker.update(packs=plan(device), folder=folder, device=device, report=report)


def _work(index: int) -> None:
    _worker["packs"][index].run(_worker["folder"], _worker["device"], _worker["report"])


@contextmanager
def progress_bar(title: str, total: float, quiet: bool) -> Iterator[Callable[[float], None]]:
    """A bar with the time left; the function it yields is told about work done, in units of ``total``."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=quiet) as progress:
        task = progress.add_task(title, total=total)
        yield lambda amount: progress.advance(task, amount)


@contextmanager
def _one_thread(device: torch.device) -> Iterator[None]:
    """One thread on a CPU, as in a worker process: then the results are equal bit for bit."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
