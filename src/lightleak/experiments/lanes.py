"""Where one process of a campaign works: on which devices, and in how many processes of its own."""

import math
import os

import torch

from lightleak.core.ranks import Ranks, detect_ranks
from lightleak.experiments.machine import core_quota, launcher, usable_cores


def plan_lanes(
    device: torch.device, workers: int, waiting: int, ranks: Ranks, cores: int, gpus: int
) -> list[torch.device]:
    """The devices of a rank's lanes: each lane is a process that runs one pack after the other on its device.

    A lane on a CPU has one thread and one core. A GPU takes one lane. Of several GPUs a process that was started
    alone, or alone on its node, takes all; beside others on its node it takes the one of its local rank. ``cuda:1`` is
    that one alone.

    Args:
        device: ``cpu``, ``cuda`` (any) or ``cuda:N``.
        workers: lanes at most; 0 for as many as the machine has room for.
        waiting: packs to be run; a lane more would have nothing to do.
        ranks: the place of this process among others.
        cores: for this process.
        gpus: that this process sees.

    >>> plan_lanes(torch.device("cuda"), 0, 100, Ranks(), cores=8, gpus=2)
    [device(type='cuda', index=0), device(type='cuda', index=1)]
    >>> plan_lanes(torch.device("cpu"), 0, 100, Ranks(), cores=2, gpus=0)
    [device(type='cpu'), device(type='cpu')]
    """
    if device.type == "cpu":
        return [device] * max(1, min(workers or cores, waiting))
    if device != torch.device("cuda"):
        return [device]
    indices = range(gpus) if ranks.local_world == 1 else [ranks.local_rank % gpus]
    return [torch.device("cuda", index) for index in indices][: max(1, min(workers or gpus, waiting))]


def lanes_here(device: torch.device, workers: int, waiting: int) -> list[torch.device]:
    """`plan_lanes` for this process on this machine."""
    ranks, gpus = detect_ranks(), torch.cuda.device_count() if device.type == "cuda" else 0
    quota, machine = core_quota(), os.cpu_count() or 1
    machine = machine if quota is None else min(machine, math.ceil(quota))
    cores = cores_of_rank(machine, usable_cores(), ranks.local_world, launcher(os.environ) == "srun")
    return plan_lanes(device, workers, waiting, ranks, cores, gpus)


def cores_of_rank(machine: int, usable: int, local_world: int, is_bound: bool) -> int:
    """Cores for one of the ranks on a machine.

    Args:
        machine: cores of the machine, or of the container.
        usable: cores on which this process may run.
        local_world: ranks on the machine.
        is_bound: whether ``usable`` may be this rank's alone, as under ``srun``; else the ranks share them.

    >>> cores_of_rank(64, 8, 8, is_bound=True), cores_of_rank(64, 8, 8, is_bound=False)
    (8, 1)
    """
    share = machine // local_world
    return max(1, min(share, usable if is_bound else usable // local_world))
