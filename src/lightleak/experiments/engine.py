"""Where packs run: worker processes of this machine by default, or a Ray cluster.

One driver process plans the packs, hands them out and writes the run folder. Packs are fixed in the plan and every unit
has a seed of its own, so results do not depend on the engine, the number of workers or interruptions.
"""

import hashlib
import math
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import chain, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self
from uuid import uuid4

import torch

from lightleak.core.devices import resolve_device
from lightleak.core.errors import LightLeakError
from lightleak.experiments.machine import core_quota, usable_cores
from lightleak.experiments.pack import Finished, Knowledge, Pack, Parcels, Result, run_in, unpack
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.unit import file_name

SCRATCH = "work"
"""Subfolder of a run folder with the scratch folders of packs that have not finished."""

MAX_RETRIES = 2
"""Maximum retries of a pack after its worker process dies."""

PRELOADED = ["lightleak.experiments.preloaded"]
"""What the server that workers are forked from imports."""

POLL_SECONDS = 0.5
"""Between two looks at the progress of workers."""

Watch = Callable[[Pack, float], None]
"""Called with a pack that a worker is given, and now and then while it runs, with the work done on it so far."""


class Engine(ABC):
    """Runs packs; a context manager that stops its workers at the end of the block.

    Attributes:
        device: type of the device that packs compute on.
    """

    device: torch.device

    @property
    @abstractmethod
    def slots(self) -> int:
        """Packs that run at once."""

    @abstractmethod
    def run(self, packs: Iterable[Pack], folder: Path, watch: Watch = lambda pack, work: None) -> Iterator[Finished]:
        """Run packs and yield each as soon as it has ended; a pack that fails does not stop the others.

        Args:
            packs: in the order in which they begin. An iterator is asked for a pack when a worker is free.
            folder: the run folder; packs read their inputs there, nothing is written outside `SCRATCH`.
            watch: see `Watch`.

        Raises:
            KeyboardInterrupt: passed on; the workers have been stopped.
        """

    def within(self, share: float) -> "Engine":
        """Return what runs packs for at most a share of the time that is left, where time is limited: else this one."""
        return self

    @abstractmethod
    def close(self) -> None:
        """Stop the workers at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_engine(where: RunConfig) -> Engine:
    """Return the engine that a config asks for.

    Raises:
        UsageError: a device that is not on this machine, a cluster that cannot be reached, or Ray is not installed.
    """
    if where.engine == "ray":
        from lightleak.experiments.ray_engine import RayEngine

        return RayEngine(where.device, where.workers, where.ray_address, where.gpus_per_pack)
    return LocalEngine(resolve_device(where.device), where.workers)


class LocalEngine(Engine):
    """Runs packs on this machine: one worker process per core or GPU, or this process where one worker suffices.

    Workers are processes because threads would wait for each other at every one of the many small operations of a step.
    A worker that dies is replaced, and its pack runs again, at most `MAX_RETRIES` times.

    Args:
        device: ``cpu``, ``cuda`` (all GPUs of this machine) or ``cuda:N``.
        workers: processes; 0 takes one per core, or one per GPU.
    """

    def __init__(self, device: torch.device, workers: int = 1) -> None:
        self.device = device
        self._devices = worker_devices(device, workers)
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        """See `Engine.slots`."""
        return len(self._devices)

    def run(self, packs: Iterable[Pack], folder: Path, watch: Watch = lambda pack, work: None) -> Iterator[Finished]:
        """See `Engine.run`."""
        queue = iter(packs)
        first = list(islice(queue, min(2, self.slots)))
        queue = chain(first, queue)
        if len(first) > 1:
            yield from self._run_in_workers(queue, folder, watch)
            return
        for pack in queue:
            yield _finished(pack, folder, _run_here(pack, folder, self._devices[0], watch))

    def _run_in_workers(self, packs: Iterator[Pack], folder: Path, watch: Watch) -> Iterator[Finished]:
        store = Path(mkdtemp(prefix="lightleak-"))
        parcels = Parcels(lambda content: _stored(store, content))
        running: dict[Future[Path], tuple[_Worker, Pack, int]] = {}
        lost: list[tuple[Pack, int]] = []
        try:
            while True:
                for worker in self._idle([worker for worker, *_ in running.values()]):
                    pack, deaths = lost.pop() if lost else (next(packs, None), 0)
                    if pack is None:
                        break
                    running[worker.submit(pack, parcels, folder, store)] = worker, pack, deaths
                    watch(pack, 0.0)
                if not running:
                    return
                done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    worker, pack, deaths = running.pop(future)
                    if not isinstance(future.exception(), BrokenProcessPool):
                        yield _finished(pack, folder, _taken(future.result()))
                        continue
                    worker.restart()
                    if deaths < MAX_RETRIES:
                        lost.append((pack, deaths + 1))
                    else:
                        reason = f"its worker process died {deaths + 1} times; perhaps it ran out of memory"
                        yield Finished(pack, error=LightLeakError(reason))
                for worker, pack, _ in running.values():
                    watch(pack, worker.work.value)
        except BaseException:
            self.close()
            raise
        finally:
            shutil.rmtree(store, ignore_errors=True)

    def _idle(self, busy: list["_Worker"]) -> Iterator["_Worker"]:
        """Yield the workers that have nothing to do, and start new ones as long as there may be more."""
        yield from [worker for worker in self._workers if worker not in busy]
        while len(self._workers) < self.slots:
            self._workers.append(_Worker(self._devices[len(self._workers)]))
            yield self._workers[-1]

    def close(self) -> None:
        """See `Engine.close`."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()


class _Worker:
    """A worker process on one device: a pool of one, so that its death concerns no other pack.

    Attributes:
        work: work done on its current pack; shared memory without a lock, which a killed process could not release.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._context = _context(device)
        self.work = self._context.RawValue("d", 0.0)
        self.restart()

    def restart(self) -> None:
        """Have the next pack start a new process."""
        life, self._life = self._context.Pipe(duplex=False)
        given = (self._device, self.work, life, Knowledge(), dict(os.environ))
        self._pool = ProcessPoolExecutor(1, self._context, initializer=_start, initargs=given)

    def submit(self, pack: Pack, parcels: Parcels, folder: Path, store: Path) -> Future[Path]:
        """Have the process run a pack and leave its result in a file in ``store``.

        A result that travels through the pool's pipe in several pieces would have the driver wait for the rest if the
        process is ended in between; the name of a file is one piece.
        """
        self.work.value = 0.0
        inputs, scratch = pack.inputs(folder), scratch_folder(pack, folder)
        work = (*parcels.pack_up(pack), inputs, scratch, store / f"{uuid4().hex}.result")
        try:
            return self._pool.submit(_run_parcel, *work)
        except BrokenProcessPool:  # it died while it had nothing to do
            self.restart()
            return self._pool.submit(_run_parcel, *work)

    def stop(self) -> None:
        """End the process at once, whatever it does."""
        self._life.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _context(device: torch.device) -> BaseContext:
    """Return how the worker processes of a device are started.

    A fork of this process would have the locks of threads that it does not have. Workers are forked from a server that
    has only imported: it has no CUDA, and no threads but those of libraries that allow for a fork (OpenBLAS, jemalloc).
    Elsewhere than on Linux, libraries of the system do not survive a fork.
    """
    if device.type != "cpu" or sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    return _server()


@cache
def _server() -> BaseContext:
    """Start the server, and wait until it has imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    resource_tracker.ensure_running()  # it lets Ctrl-C through once it runs
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()  # inherits that Ctrl-C waits: while it imports, it would end with a traceback
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # Ctrl-C meanwhile ends this wait; a worker's pool would be gone when the server came to start the worker.
    first = context.Process(target=_nothing)
    first.start()
    first.join()
    return context


def _nothing() -> None:
    pass


def _start(
    device: torch.device, work: Any, life: Connection, knowledge: Knowledge, environment: Mapping[str, str]
) -> None:
    """Prepare a worker process."""
    global _device, _work
    _device, _work = device, work
    os.environ.clear()  # a server that started long ago has the environment of then
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the driver decides
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # Lightning would finish its step first
    threading.Thread(target=_end_with_the_driver, args=(life,), daemon=True).start()
    knowledge.load()


_device = torch.device("cpu")
_work: Any = None


def _end_with_the_driver(life: Connection) -> None:
    """End this process when the driver closes the other end of a pipe, or dies."""
    try:
        life.recv()
    except (EOFError, OSError):
        os._exit(1)


def _run_parcel(
    parcel: bytes, handles: Mapping[str, Path], inputs: Mapping[str, Path], scratch: Path, result: Path
) -> Path:
    def report(amount: float) -> None:
        _work.value += amount

    pack = unpack(parcel, handles, Path.read_bytes)
    result.write_bytes(pickle.dumps(run_in(scratch, pack, inputs, _device, report)))
    return result


def _taken(result: Path) -> Result:
    """Read a result, and remove its file."""
    found: Result = pickle.loads(result.read_bytes())
    result.unlink()
    return found


def _run_here(pack: Pack, folder: Path, device: torch.device, watch: Watch) -> Result:
    done = 0.0

    def report(amount: float) -> None:
        nonlocal done
        done += amount
        watch(pack, done)

    watch(pack, done)
    return run_in(scratch_folder(pack, folder), pack, pack.inputs(folder), device, report)


def _finished(pack: Pack, folder: Path, result: Result) -> Finished:
    files, error = result
    if error is None:
        shutil.rmtree(scratch_folder(pack, folder), ignore_errors=True)
    return Finished(pack, files, error)


def _stored(folder: Path, content: bytes) -> Path:
    file = folder / hashlib.sha256(content).hexdigest()
    file.write_bytes(content)
    return file


def scratch_folder(pack: Pack, folder: Path) -> Path:
    """Return the scratch folder of a pack, the same whenever the run is resumed."""
    return folder / SCRATCH / file_name(f"{pack.ids[0]}-{hashlib.sha256(' '.join(pack.ids).encode()).hexdigest()[:8]}")


def worker_devices(device: torch.device, workers: int) -> list[torch.device]:
    """Return the device of each worker: a core of this machine for each, or a GPU.

    Args:
        device: ``cpu``, ``cuda`` (all GPUs) or ``cuda:N``, which one worker takes.
        workers: how many; 0 for as many as the machine has cores or GPUs.

    >>> worker_devices(torch.device("cpu"), 2)
    [device(type='cpu'), device(type='cpu')]
    """
    if device.type == "cpu":
        quota = core_quota()
        cores = usable_cores() if quota is None else min(usable_cores(), math.ceil(quota))
        return [device] * (workers or max(1, cores))
    if device != torch.device("cuda"):
        return [device]
    gpus = torch.cuda.device_count()
    return [torch.device("cuda", index) for index in range(min(workers or gpus, gpus))]
