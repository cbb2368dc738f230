"""Which of several processes this is: as torchrun, SLURM or Lightning's launcher tell it in the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that a launcher started together.

    Attributes:
        rank: of this process, from 0.
        world: how many there are.
        local_rank: of this process on its machine.
        local_world: how many there are on its machine.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that speaks to the terminal."""
        return self.rank == 0


def detect_ranks(environment: Mapping[str, str] = os.environ) -> Ranks:
    """The place of this process, by the variables of torchrun, of Lightning's own launcher, or of ``srun``.

    An ``sbatch`` script and an interactive shell of SLURM also have ``SLURM_NTASKS``, but start no tasks: only
    ``srun`` counts, which sets ``SLURM_STEP_ID`` and names no interactive job.

    >>> detect_ranks({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    Ranks(rank=3, world=8, local_rank=1, local_world=2)
    >>> detect_ranks({})
    Ranks(rank=0, world=1, local_rank=0, local_world=1)
    """
    if "WORLD_SIZE" in environment and "LOCAL_RANK" in environment:
        world, local = int(environment["WORLD_SIZE"]), int(environment["LOCAL_RANK"])
        # Lightning's launcher, on nodes of equal size, names the node and not the rank.
        nodes = int(environment.get("NUM_NODES", "1"))
        here = int(environment.get("LOCAL_WORLD_SIZE", str(max(1, world // nodes))))
        rank = int(environment.get("RANK", str(int(environment.get("NODE_RANK", "0")) * here + local)))
        return Ranks(rank, world, local, here)
    interactive = environment.get("SLURM_JOB_NAME") in ("bash", "interactive")
    if {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS"} <= set(environment) and not interactive:
        world = int(environment["SLURM_NTASKS"])
        nodes = int(environment.get("SLURM_NNODES", "1"))
        here = int(environment.get("SLURM_NTASKS_PER_NODE", str(max(1, world // nodes))))
        here = min(here, world)  # a step of fewer tasks than its job still hears of the job's
        return Ranks(int(environment["SLURM_PROCID"]), world, int(environment.get("SLURM_LOCALID", "0")), here)
    return Ranks()
