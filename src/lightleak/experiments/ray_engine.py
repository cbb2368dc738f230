"""Packs on a Ray cluster: one task each, with the data it needs in Ray's object store; nothing is shared but Ray.

Nodes need the same versions of Python and of this package; user files that `LIGHTLEAK_PLUGINS` names must be there too.
"""

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.optional import import_optional
from lightleak.experiments.engine import Engine, Watch
from lightleak.experiments.pack import Files, Finished, Knowledge, Pack, Parcels, Result, contents, run_in, unpack

MAX_RETRIES = 3
"""Maximum retries of a task after its worker or node dies."""

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer."""

AHEAD = 2
"""Tasks submitted for each that can run, so that no node waits for the driver and an autoscaler sees the demand."""


class RayEngine(Engine):
    """Runs packs as Ray tasks, each on one CPU, or on a GPU or a fraction of one.

    Args:
        device: ``auto`` takes GPUs where the cluster has any.
        workers: packs at once; 0 takes as many as the cluster has room for.
        address: of the cluster; None takes the environment variable ``RAY_ADDRESS``, or starts Ray on this machine.
        gpus_per_pack: GPUs of a pack; below 1, packs share one.

    Raises:
        UnsupportedError: Ray is not installed.
        UsageError: the cluster cannot be reached, or has no GPU where one is asked for.
    """

    def __init__(self, device: str = "auto", workers: int = 0, address: str | None = None, gpus_per_pack: float = 1.0):
        self._ray = import_optional("ray", "--engine ray needs Ray", "cluster")
        self._workers, self._gpus = workers, gpus_per_pack
        self._starts = not self._ray.is_initialized()
        if self._starts:
            self._connect(address)
        kind = device.partition(":")[0]
        if kind == "cuda" and not self._in_cluster("GPU"):
            self.close()
            raise UsageError(f"device {device!r}: the Ray cluster has no GPU; leave it at auto or cpu")
        self.device = torch.device("cuda" if kind != "cpu" and self._in_cluster("GPU") else "cpu")

    def _connect(self, address: str | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = address or os.environ.get("RAY_ADDRESS") or "local"  # else Ray joins any cluster it finds here
        handler = signal.getsignal(signal.SIGTERM)
        try:
            if re.fullmatch(r"[^/]+:\d+", address):  # Ray itself would try for minutes
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
            # A Ray of its own ends with the engine: nobody would look at a dashboard, whose start takes seconds.
            own = {"include_dashboard": False} if address == "local" else {}
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray cluster at {address}: {error}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray's would end the command with another exit code

    @property
    def slots(self) -> int:
        """Packs that run at once now; nodes come and go."""
        room = self._in_cluster("CPU") if self.device.type == "cpu" else self._in_cluster("GPU") / self._gpus
        return self._workers or max(1, int(room))

    def _in_cluster(self, resource: str) -> float:
        return float(self._ray.cluster_resources().get(resource, 0.0))

    @cached_property
    def _task(self) -> Any:
        resources = {"num_cpus": 1, "num_gpus": 0 if self.device.type == "cpu" else self._gpus}
        return self._ray.remote(_run_on_node).options(**resources, max_retries=MAX_RETRIES)

    def run(self, packs: Iterable[Pack], folder: Path, watch: Watch = lambda pack, work: None) -> Iterator[Finished]:
        """See `Engine.run`; the progress within a pack is not reported."""
        ray, knowledge, queue = self._ray, Knowledge(), iter(packs)
        ahead = AHEAD if isinstance(packs, Sequence) and not self._workers else 1
        parcels, running = Parcels(ray.put), dict[Any, Pack]()
        try:
            while True:
                while len(running) < ahead * self.slots and (pack := next(queue, None)) is not None:
                    parcel, handles = parcels.pack_up(pack.shipped())
                    inputs = ray.put(contents(pack.inputs(folder)))
                    running[self._task.remote(knowledge, parcel, handles, inputs, self.device.type)] = pack
                    watch(pack, 0.0)
                if not running:
                    return
                for done in ray.wait(list(running))[0]:
                    yield self._finished(running.pop(done), done)
        finally:
            for task in running:
                ray.cancel(task, force=True)

    def _finished(self, pack: Pack, task: Any) -> Finished:
        try:
            return Finished(pack, *self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            reason = re.sub(r"\x1b\[\d+m", "", str(error))
            return Finished(pack, error=LightLeakError(f"Ray could not run it: {reason}"))

    def close(self) -> None:
        """See `Engine.close`; a cluster keeps running; Ray that was started here is shut down."""
        if self._starts and self._ray.is_initialized():
            self._ray.shutdown()


def _run_on_node(knowledge: Knowledge, parcel: bytes, handles: dict[str, Any], inputs: Files, device: str) -> Result:
    import ray

    knowledge.load()
    fetch: Callable[[Any], bytes] = ray.get
    with TemporaryDirectory() as scratch:
        return run_in(Path(scratch), unpack(parcel, handles, fetch), inputs, torch.device(device), lambda work: None)
