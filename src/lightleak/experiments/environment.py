"""environment.json: with what, where and when a run was made, and which results are equal elsewhere.

The first process that opens a run folder describes everything. Every process, the first and each that resumes the run,
adds itself to ``sessions``; earlier entries are never changed.
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightleak.core.optional import checkout
from lightleak.core.ranks import detect_ranks
from lightleak.core.stored import read_json, write_json
from lightleak.experiments.installed import declared_requirements, installed_extras, installed_versions
from lightleak.experiments.machine import cores_and_memory, cpu_name, launcher, nvidia_driver

SCHEMA_VERSION = 1
FILE = "environment.json"

SHOWN_VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "LOCAL_WORLD_SIZE",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_RESTART_COUNT",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "WORLD_SIZE",
)
"""Variables that change results or speed, or say where a run was made; all others stay out of the file."""

HIDDEN_VARIABLES = ("LIGHTLEAK_DATA_DIR", "LIGHTLEAK_PLUGINS")
"""Of these only whether they are set: their values are somebody's folders."""

COMPARED = ("python", "system", "device", "devices", "threads", "torch", "packages", "project", "determinism")
"""What results may depend on; a session that differs from the first in one of them says so."""

EQUAL = (
    "Every unit of work has a seed of its own and is computed in a pack that is fixed in the plan: results are equal "
    "bit for bit on the same type of device, with the same versions and one thread per process on a CPU, whatever the "
    "engine, the number of workers and however often the run was interrupted. On a GPU the size of a pack follows from "
    "the memory that was free when it was found, and is kept in packs.json: equal files give equal packs."
)
NOT_EQUAL = {
    "another device": "another type of device or processor sums in another order: equal within the intervals",
    "other versions": "torch and the libraries below it change their kernels: equal within the intervals",
    "lower precision": "TF32 and bf16 round to fewer digits than float32",
    "cuBLAS": "may choose among kernels unless CUBLAS_WORKSPACE_CONFIG is set, as :4096:8",
    "seconds": "and what is derived from them, such as a budget in seconds, differ from run to run",
}


def write_environment(folder: Path, device: torch.device, command: Sequence[str]) -> None:
    """Write ``environment.json`` of a run, or add this process to the ``sessions`` of the one that is there.

    Call it with the folder locked (`open_run_folder`): of two processes that add themselves at once, one would be
    lost. The file contains no user name, no host name, no password of a database URL, and of the environment variables
    only `SHOWN_VARIABLES`.

    Args:
        folder: the run folder.
        device: where the work of this process runs.
        command: the words of the command line.
    """
    facts, file = describe_environment(device, command), folder / FILE
    first = read_json(file) if file.is_file() else {**facts, "sessions": []}
    sessions = [*first.get("sessions", []), session(first, facts)]
    write_json(file, {**first, "sessions": sessions}, indent=1)


def describe_environment(
    device: torch.device, command: Sequence[str], variables: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """The facts of ``environment.json``, but for its sessions."""
    groups, is_here = declared_requirements(), device.type == "cuda" and torch.cuda.is_available()
    return {
        "schema_version": SCHEMA_VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [without_secrets(word) for word in command],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **cores_and_memory(),
        "device": torch.cuda.get_device_name(device) if is_here else str(device),  # perhaps a cluster has it
        "devices": describe_devices(with_cuda=device.type == "cuda"),
        "threads": torch.get_num_threads(),
        "torch": describe_torch(),
        "packages": installed_versions(groups),
        "extras": installed_extras(groups),
        "ranks": describe_ranks(variables),
        "project": project_state(),
        "variables": shown_variables(variables),
        "determinism": describe_determinism(device, variables),
    }


def session(first: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """One process's entry: when and with what it came, and what sets it apart from the first.

    >>> first = {"date": "d", "command": [], "device": "cpu", "ranks": {}, "packages": {"torch": "2.11.0"}}
    >>> session(first, {**first, "packages": {"torch": "2.13.0"}})["differs"]
    {'packages.torch': ['2.11.0', '2.13.0']}
    """
    return {
        **{key: now[key] for key in ("date", "command", "device", "ranks")},
        "differs": {
            name: [before, after]
            for key in COMPARED
            for name, before, after in _differences(key, first.get(key), now.get(key))
        },
    }


def _differences(name: str, before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = dict.fromkeys([*before, *after])
        return [d for key in keys for d in _differences(f"{name}.{key}", before.get(key), after.get(key))]
    return [] if before == after else [(name, before, after)]


def without_secrets(word: str) -> str:
    """A word of a command line without the credentials of a URL and without the name of the home folder.

    >>> without_secrets("--study.storage=postgresql://ann:secret@db/optuna")
    '--study.storage=postgresql://***@db/optuna'
    """
    word = re.sub(r"(\w://)[^/\s]*@", r"\1***@", word)
    home = re.escape(os.path.expanduser("~").rstrip("/"))
    return re.sub(rf"(^|[=:]){home}(?=/|$)", r"\1~", word) if home else word


def describe_devices(with_cuda: bool) -> dict[str, dict[str, Any]]:
    """Name, memory and capability of the CPU and, if asked for, of every CUDA device this process sees.

    Asking starts CUDA in this process, which takes a second and some memory of the device.
    """
    found: dict[str, Any] = {"cpu": {"name": cpu_name(), "capability": torch.backends.cpu.get_cpu_capability()}}
    if with_cuda and torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            found[f"cuda:{index}"] = {
                "name": facts.name,
                "memory_bytes": facts.total_memory,
                "capability": f"{facts.major}.{facts.minor}",
                "multiprocessors": facts.multi_processor_count,
                "driver": nvidia_driver(),
            }
    return found


def describe_torch() -> dict[str, Any]:
    """The build of torch: CUDA, cuDNN and BLAS, and how many threads it takes."""
    found = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    numpy_blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "build": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        "blas": found[1] if found else None,
        "numpy_blas": f"{numpy_blas.get('name')} {numpy_blas.get('version')}",
        "threads_between_operations": torch.get_num_interop_threads(),
    }


def describe_ranks(variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The place of this process among those that were started together, and by what.

    >>> describe_ranks({})
    {'rank': 0, 'world': 1, 'local_rank': 0, 'local_world': 1, 'launcher': None}
    """
    return {**vars(detect_ranks(variables)), "launcher": launcher(variables)}


def shown_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the allow-list, and of some only whether they are set."""
    shown = {name: variables[name] for name in SHOWN_VARIABLES if name in variables}
    return shown | {name: "set" for name in HIDDEN_VARIABLES if variables.get(name)}


def describe_determinism(device: torch.device, variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What of a run comes out equal, what does not, and the settings of torch that decide it here."""
    matmul = getattr(torch.backends.cuda.matmul, "fp32_precision", None)  # torch 2.9; reading both ways is refused
    if matmul is None:
        matmul = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    settings = {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cuda_matmul_precision": matmul,
        "cublas_workspace_config": variables.get("CUBLAS_WORKSPACE_CONFIG"),
    }
    weaker = []
    if device.type == "cuda":
        weaker += ["CUBLAS_WORKSPACE_CONFIG is not set"] if not settings["cublas_workspace_config"] else []
        weaker += ["cuda_matmul_precision is tf32"] if matmul == "tf32" else []
        weaker += ["cudnn_benchmark is on"] if settings["cudnn_benchmark"] else []
    return {"equal": EQUAL, "not_equal": NOT_EQUAL, "settings": settings, "weakened_by": weaker}


@cache
def project_state() -> dict[str, Any] | None:
    """Commit of the checkout that the package runs from, and whether files differ from it; ``None`` without one."""
    folder = checkout()
    if folder is None:
        return None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):  # no git here, or a checkout that it refuses
        return None
    return {"commit": commit, "modified": bool(changed)}


def _git(folder: Path, *words: str) -> str:
    # Without optional locks: a status must not write into a checkout that others use.
    done = subprocess.run(
        ["git", "--no-optional-locks", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
