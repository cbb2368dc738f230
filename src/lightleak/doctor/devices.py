"""Which devices are there, do they compute, and how many threads does a process take?"""

from collections.abc import Sequence

import torch

from lightleak.attacks import ATTACKS
from lightleak.core.observations import ClientUpdate
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.doctor.finding import Facts, Finding, State
from lightleak.experiments.machine import core_quota, nvidia_driver, usable_cores
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

TOPIC = "devices"
PRODUCT_SIZE = 256
PRODUCT_TOLERANCE = 1e-2
"""Relative, of a product of 256 terms each: TF32 keeps 10 bits of a number, a broken kernel none."""
LOSS_TOLERANCE = 1e-2
"""Relative, of the loss after one inversion step."""


def check(facts: Facts) -> list[Finding]:
    """All findings about the devices of this process."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(count))]
    update = small_update()
    findings = [
        *cpu_threads(usable_cores(), core_quota(), torch.get_num_threads(), facts.variables.get("OMP_NUM_THREADS")),
        cuda_seen(torch.version.cuda, nvidia_driver(), count, facts.variables.get("CUDA_VISIBLE_DEVICES")),
    ]
    if count:
        built_for = torch.cuda.get_arch_list()
        findings += [built(device, torch.cuda.get_device_capability(device), built_for) for device in devices[1:]]
    reference = loss_after_one_step(update, devices[0])
    for device in devices:
        findings += [matrix_product(device), inversion_step(device, update, reference)]
    return findings


def cpu_threads(usable: int, quota: float | None, threads: int, wanted: str | None) -> list[Finding]:
    """Cores that this process may use, and the threads that torch takes.

    >>> cpu_threads(8, None, 8, "8")[0].found
    '8 usable, torch takes 8 threads (OMP_NUM_THREADS=8)'
    """
    allowed = usable if quota is None else min(usable, quota)
    named = "OMP_NUM_THREADS is not set" if wanted is None else f"OMP_NUM_THREADS={wanted}"
    limit = "" if quota is None else f", of which the control group allows {quota:g}"
    found = f"{usable} usable{limit}, torch takes {threads} threads ({named})"
    if wanted is not None and not wanted.split(",")[0].strip().isdigit():
        mend = "export OMP_NUM_THREADS as a whole number, such as 1"
        return [Finding(TOPIC, "cores", State.PROBLEM, found, mend)]
    if threads > max(1.0, allowed):
        return [
            Finding(
                TOPIC,
                "cores",
                State.NOTE,
                f"{found}: more threads than cores slow each other down",
                f"export OMP_NUM_THREADS={max(1, int(allowed))}, or 1 where one process runs for each core",
            )
        ]
    return [Finding(TOPIC, "cores", State.OK, found)]


def cuda_seen(build: str | None, driver: str | None, count: int, visible: str | None) -> Finding:
    """Whether torch sees the GPUs that this machine has.

    Args:
        build: the CUDA version that torch was built for; ``None``: a build for CPUs alone.
        driver: version of the machine's NVIDIA driver; ``None``: it has none.
        count: CUDA devices that torch sees.
        visible: ``CUDA_VISIBLE_DEVICES``.
    """
    if count:
        return Finding(TOPIC, "cuda", State.OK, f"{count} seen, torch is built for CUDA {build}, driver {driver}")
    if driver is None:
        return Finding(TOPIC, "cuda", State.OK, "no GPU here (no NVIDIA driver); work runs on the CPU")
    if build is None:
        found = f"the machine has NVIDIA driver {driver}, but this torch is built for CPUs alone"
        mend = "install torch's default build (README, GPU, CPU, extras), or go on without the GPU"
        return Finding(TOPIC, "cuda", State.PROBLEM, found, mend)
    if visible is not None and visible.strip() in ("", "-1"):
        found = f"hidden by CUDA_VISIBLE_DEVICES={visible!r}"
        return Finding(TOPIC, "cuda", State.NOTE, found, "unset CUDA_VISIBLE_DEVICES to use them")
    found = f"none seen, though torch is built for CUDA {build} and driver {driver} is there"
    mend = f"ask the scheduler for a GPU (--gpus-per-node), or take a driver that knows CUDA {build}; see nvidia-smi"
    return Finding(TOPIC, "cuda", State.PROBLEM, found, mend)


def built(device: torch.device, capability: tuple[int, int], architectures: Sequence[str]) -> Finding:
    """Whether torch was built for a device: code for its own generation, or code that its driver can translate.

    >>> built(torch.device("cuda:0"), (9, 0), ["sm_80", "sm_90"]).state
    <State.OK: 'ok'>
    """
    major, minor = capability
    codes = [_number(name) for name in architectures if name.startswith("sm_")]
    portable = [_number(name) for name in architectures if name.startswith("compute_")]
    # Code runs on its own and on later minor versions of its generation, portable code on everything later.
    runs = any(code // 10 == major and code % 10 <= minor for code in codes)
    runs = runs or any(code <= 10 * major + minor for code in portable)
    found = f"capability {major}.{minor}, torch has code for {', '.join(architectures)}"
    if runs:
        return Finding(TOPIC, str(device), State.OK, found)
    mend = "install a build of torch that has code for this GPU"
    return Finding(TOPIC, str(device), State.PROBLEM, found, mend)


def matrix_product(device: torch.device) -> Finding:
    """Whether a product of two matrices comes out as on the CPU in float64."""
    draw = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE, generator=draw, dtype=torch.float64)
    check = f"{device} product"
    try:
        got = (left.float().to(device) @ right.float().to(device)).double().cpu()
    except (RuntimeError, AssertionError) as error:
        return _broken(check, error)
    true = left @ right
    off = float((got - true).norm() / true.norm())
    found = f"{PRODUCT_SIZE} x {PRODUCT_SIZE}, relative error {off:.1e}"
    if off < PRODUCT_TOLERANCE:
        return Finding(TOPIC, check, State.OK, found)
    mend = "do not use this device: update its driver and torch, then try again"
    return Finding(TOPIC, check, State.PROBLEM, f"{found}: wrong", mend)


def inversion_step(device: torch.device, update: ClientUpdate, reference: float) -> Finding:
    """Whether one step of TabLeak on a made update runs, with the loss that it has on the CPU."""
    check = f"{device} inversion"
    try:
        loss = loss_after_one_step(update, device)
    except (RuntimeError, AssertionError) as error:
        return _broken(check, error)
    found = f"one step of TabLeak, loss {loss:.4g}"
    if abs(loss - reference) <= LOSS_TOLERANCE * abs(reference):
        return Finding(TOPIC, check, State.OK, found)
    mend = "do not use this device: update its driver and torch, then try again"
    return Finding(TOPIC, check, State.PROBLEM, f"{found}, on the CPU {reference:.4g}", mend)


def small_update() -> ClientUpdate:
    """What a client of four made rows sends to a small network."""
    table = load_dataset("synthetic", n_discrete=2, n_continuous=2, n_rows=40)
    encoder = TableEncoder(table.schema).fit(table.train)
    spec = NetworkSpec("mlp", table.schema.n_classes, encoder.layout, {"hidden": [16]})
    inputs, labels = encoder.encode(table.train)[:4], encoder.encode_labels(table.train)[:4]
    return client_update(build_network(spec, 0), spec, encoder, inputs, labels, share_labels=True)[0]


def loss_after_one_step(update: ClientUpdate, device: torch.device) -> float:
    """The gradient-matching loss after one step of TabLeak."""
    return float(ATTACKS.get("tableak")(restarts=1, steps=1).run(update, device=device).loss)


def _broken(check: str, error: Exception) -> Finding:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    mend = "see nvidia-smi: is the device free, and does its driver fit torch? CUDA_VISIBLE_DEVICES can leave it out"
    return Finding(TOPIC, check, State.PROBLEM, first, mend)


def _number(architecture: str) -> int:
    return int("".join(letter for letter in architecture.partition("_")[2] if letter.isdigit()))
