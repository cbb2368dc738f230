"""Check a Ray cluster: the same versions on all nodes, their devices, and a small pack run on each."""

import importlib.metadata
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lightleak.core.errors import LightLeakError, UnsupportedError
from lightleak.core.optional import install_line
from lightleak.doctor.devices import loss_after_one_step, small_update
from lightleak.doctor.finding import Check, Facts, Finding
from lightleak.experiments.pack import Knowledge, Place, Task, run_in
from lightleak.experiments.ray_engine import RayEngine

TOPIC = "cluster"
NODES, VERSIONS = Check(TOPIC, "nodes"), Check(TOPIC, "versions")
COMPARED = ("lightleak", "torch", "lightning")
PACK_SECONDS = 300.0
"""Timeout of a pack: the first import of torch on a node can take minutes."""


@dataclass(frozen=True)
class Node:
    """A node as Ray and a pack on it describe it.

    Attributes:
        name: its address.
        cpus: cores that Ray may use.
        gpus: devices that Ray may use.
        gpu_name: their type, if Ray knows it.
        versions: of Python and of packages, by name.
        seconds: time of the pack, imports included.
        error: why the pack did not run.
    """

    name: str
    cpus: int
    gpus: int
    gpu_name: str = ""
    versions: Mapping[str, str] | None = None
    seconds: float = 0.0
    error: str = ""


def check(facts: Facts) -> list[Finding]:
    """Return the findings about the cluster, none where no cluster is used."""
    if facts.engine != "ray" and facts.ray_address is None:
        return []
    try:
        with RayEngine("cpu", address=facts.ray_address):
            return judge(examine_nodes(), versions_here())
    except UnsupportedError as error:
        return [NODES.problem(str(error), f"install Ray: {install_line('cluster')}")]
    except LightLeakError as error:
        fix = "start it (ray start --head; ray start --address=HEAD:6379 on other machines), or name it: --ray-address"
        return [NODES.problem(str(error), fix)]


def judge(nodes: Sequence[Node], here: Mapping[str, str]) -> list[Finding]:
    """Check the nodes of a cluster; ``here`` are the versions of the driver."""
    total = f"{len(nodes)} nodes, {sum(node.cpus for node in nodes)} CPUs, {sum(node.gpus for node in nodes)} GPUs"
    differing = [
        f"{name} is {node.versions.get(name)} on {node.name}, {version} here"
        for node in nodes
        if node.versions is not None
        for name, version in here.items()
        if node.versions.get(name) != version
    ]
    same = ", ".join(f"{name} {version}" for name, version in here.items())
    fix = "install the same versions on all nodes (pip install -c constraints.txt, or one container image)"
    versions = VERSIONS.problem("; ".join(differing), fix) if differing else VERSIONS.ok(f"{same} on all nodes")
    return [NODES.ok(total), versions, *map(node_works, nodes)]


def node_works(node: Node) -> Finding:
    """Check that a node ran its pack."""
    gpus = f", {node.gpus} GPUs {node.gpu_name}".rstrip() if node.gpus else ""
    found = f"{node.cpus} CPUs{gpus}"
    if node.error:
        fix = "install lightleak on that node, in the environment from which `ray start` was run; see its Ray log"
        return Check(TOPIC, node.name).problem(f"{found}: no pack runs: {node.error}", fix)
    return Check(TOPIC, node.name).ok(f"{found}, a pack ran in {node.seconds:.1f} s")


def examine_nodes() -> list[Node]:
    """Run a pack on every node of the cluster that this process is connected to, all at once."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    tasks = []
    for facts in (facts for facts in ray.nodes() if facts["Alive"]):
        here = NodeAffinitySchedulingStrategy(facts["NodeID"], soft=False)
        has_gpu = facts["Resources"].get("GPU", 0) >= 1
        options = {"num_cpus": 1, "num_gpus": int(has_gpu), "scheduling_strategy": here, "max_retries": 0}
        task = ray.remote(_run_pack).options(**options).remote(Knowledge(), "cuda" if has_gpu else "cpu")
        tasks.append((facts, task))
    return [_node(facts, task, time.monotonic() + PACK_SECONDS) for facts, task in tasks]


def _node(facts: Mapping[str, Any], task: Any, until: float) -> Node:
    import ray

    resources, seconds, versions, error = facts["Resources"], 0.0, None, ""
    try:
        seconds, versions = ray.get(task, timeout=max(0.0, until - time.monotonic()))
    except Exception as problem:  # whatever is wrong with that node
        error = str(problem).strip().splitlines()[-1] if str(problem).strip() else type(problem).__name__
    gpu_names = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    counts = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    return Node(facts["NodeManagerAddress"], *counts, ", ".join(gpu_names), versions, seconds, error)


def _inversion_step(at: Place) -> list[float]:
    """One step of TabLeak on a small update."""
    return [loss_after_one_step(small_update(), at.device)]


def versions_here() -> dict[str, str]:
    """Return the versions of Python and of the packages that must be equal on all nodes."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in COMPARED}


def _run_pack(knowledge: Knowledge, device: str) -> tuple[float, dict[str, str]]:
    began = time.monotonic()
    knowledge.load()
    with TemporaryDirectory() as scratch:
        task = Task(["doctor"], _inversion_step)
        _, error = run_in(Path(scratch), task, {}, torch.device(device), lambda work: None)
    if error is not None:
        raise error
    return time.monotonic() - began, versions_here()
