"""Check that the variables of torchrun and srun agree with each other, the devices and the cores."""

from collections.abc import Mapping

from lightleak.core.ranks import Ranks, detect_ranks
from lightleak.doctor.finding import Check, Facts, Finding
from lightleak.experiments.machine import launcher, usable_cores

TOPIC = "launcher"
RANKS = Check(TOPIC, "ranks")

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
SRUN = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
NUMBERS = (*TORCHRUN, *SRUN, "NODE_RANK", "NUM_NODES", "SLURM_NNODES")

PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))
"""An index, and the number of indices."""

SAME = (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID"))
"""The same value under torchrun's name and under srun's."""


def check(facts: Facts) -> list[Finding]:
    """Check how this process was started."""
    import torch

    return place(facts.variables, torch.cuda.device_count(), usable_cores())


def place(variables: Mapping[str, str], devices: int, cores: int) -> list[Finding]:
    """Return the rank of this process, and contradictions to it.

    Args:
        variables: the environment.
        devices: CUDA devices that this process sees.
        cores: that it may use.

    >>> [str(finding.state) for finding in place({}, 0, 2)]
    ['ok']
    """
    wrong = not_numbers(variables) or [*out_of_range(variables), *incomplete(variables), *contradictions(variables)]
    if wrong:
        return wrong
    ranks = detect_ranks(variables)
    if ranks.world == 1:
        return not_started_by_srun(variables) or [RANKS.ok("one process, no launcher")]
    found = f"rank {ranks.rank} of {ranks.world}, {ranks.local_world} on this machine, started by {launcher(variables)}"
    return [RANKS.ok(found), *crowded(ranks, variables, devices, cores)]


def not_numbers(variables: Mapping[str, str]) -> list[Finding]:
    """Find variables that should be whole numbers."""
    return [
        Check(TOPIC, name).problem(f"{name}={variables[name]!r} is not a whole number", f"unset {name}, or start again")
        for name in NUMBERS
        if name in variables and not variables[name].isdigit()
    ]


def out_of_range(variables: Mapping[str, str]) -> list[Finding]:
    """Find ranks beyond the last one."""
    return [
        Check(TOPIC, place).problem(
            f"{place}={variables[place]}, but {size}={variables[size]}", f"unset {place} and {size}"
        )
        for place, size in PAIRS
        if place in variables and size in variables and int(variables[place]) >= int(variables[size])
    ]


def incomplete(variables: Mapping[str, str]) -> list[Finding]:
    """Find some of torchrun's variables without the others: left over in a shell, or set by hand."""
    if "RANK" not in variables and "WORLD_SIZE" not in variables:
        return []
    absent = [name for name in ("WORLD_SIZE", "LOCAL_RANK") if name not in variables]
    if not absent:
        return []
    set_ = [name for name in TORCHRUN if name in variables]
    fix = f"unset {' '.join(set_)}, or let torchrun set them all"
    return [RANKS.problem(f"{', '.join(set_)} set, but not {', '.join(absent)}", fix)]


def contradictions(variables: Mapping[str, str]) -> list[Finding]:
    """Find disagreements between torchrun and the srun step that it runs in.

    With one torchrun per node they disagree by design: there srun starts as many tasks as there are nodes.
    """
    if not ("WORLD_SIZE" in variables and "SLURM_PROCID" in variables):
        return []
    if variables.get("SLURM_NTASKS") == variables.get("SLURM_NNODES", "1") and "RANK" in variables:
        return []
    fix = "start with srun or with torchrun, not both; or one task of srun per node (--ntasks-per-node=1)"
    return [
        RANKS.problem(f"{one}={variables[one]}, but {other}={variables[other]}", fix)
        for one, other in SAME
        if one in variables and other in variables and variables[one] != variables[other]
    ]


def not_started_by_srun(variables: Mapping[str, str]) -> list[Finding]:
    """Find a process outside the tasks of its job: the script of the job, or a shell in it."""
    tasks = variables.get("SLURM_NTASKS", "1")
    if int(tasks) < 2:
        return []
    found = f"the job has {tasks} tasks, but srun did not start this process: it works alone"
    return [RANKS.note(found, f"srun lightleak ... starts all {tasks}")]


def crowded(ranks: Ranks, variables: Mapping[str, str], devices: int, cores: int) -> list[Finding]:
    """Find more processes on a machine than it has devices, or more threads than cores."""
    findings = []
    # Under srun with --gpus-per-task each process sees one device, which is its own.
    own = devices == 1 and "RANK" not in variables
    if devices and not own and ranks.local_world != devices:
        found = f"{ranks.local_world} processes on this machine see {devices} CUDA devices"
        fix = f"start {devices} per machine (torchrun --nproc-per-node, srun --ntasks-per-node): one per device"
        findings.append(Check(TOPIC, "devices").note(found, fix))
    threads = variables.get("OMP_NUM_THREADS", "1")
    # Under srun with --cpus-per-task the cores are this process's own; torchrun's processes share what there is.
    sharing = 1 if "SLURM_CPUS_PER_TASK" in variables and "RANK" not in variables else ranks.local_world
    if threads.isdigit() and int(threads) * sharing > cores:
        found = f"{sharing} processes of {threads} threads share {cores} cores"
        findings.append(Check(TOPIC, "threads").note(found, f"export OMP_NUM_THREADS={max(1, cores // sharing)}"))
    return findings
