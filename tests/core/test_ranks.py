"""Which of several processes this is, in the words of every launcher."""

import pytest

from lightleak.core.ranks import Ranks, detect_ranks

SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NNODES": "2"}
ALONE = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Ranks(0, 1, 0, 1)),
        # torchrun, which knows everything
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, Ranks(5, 8, 1, 4)),
        # Lightning's launcher: one node, then the second of two
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1", "NODE_RANK": "0"}, Ranks(1, 2, 1, 2)),
        ({"WORLD_SIZE": "8", "LOCAL_RANK": "1", "NODE_RANK": "1", "NUM_NODES": "2"}, Ranks(5, 8, 1, 4)),
        # srun, with and without the number of tasks per node
        (SRUN, Ranks(5, 8, 1, 4)),
        (SRUN | {"SLURM_NTASKS_PER_NODE": "4", "SLURM_NNODES": "3"}, Ranks(5, 8, 1, 4)),
        # a step of one task inside of a job of four per node
        (SRUN | {"SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "4"} | ALONE, Ranks()),
        # torchrun inside of srun: each task of srun started processes of its own
        (SRUN | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Ranks(1, 2, 1, 2)),
        # no launcher: the batch script itself, an interactive shell, and what a library leaves behind
        ({key: value for key, value in SRUN.items() if key != "SLURM_STEP_ID"}, Ranks()),
        (SRUN | {"SLURM_JOB_NAME": "bash"}, Ranks()),
        (SRUN | {"SLURM_JOB_NAME": "interactive"}, Ranks()),
        ({"LOCAL_RANK": "1"}, Ranks()),
    ],
)
def test_every_launcher_is_understood(environment: dict[str, str], expected: Ranks) -> None:
    assert detect_ranks(environment) == expected


def test_the_first_speaks() -> None:
    assert [Ranks(rank, 2, rank, 2).leads for rank in (0, 1)] == [True, False]
