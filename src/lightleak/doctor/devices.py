"""Check the devices: which there are, whether they compute, and how many threads a process uses."""

from collections.abc import Sequence

import torch

from lightleak.attacks import ATTACKS
from lightleak.core.observations import ClientUpdate
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.doctor.finding import Check, Facts, Finding
from lightleak.experiments.machine import core_quota, nvidia_driver, usable_cores
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network

TOPIC = "devices"
CORES, CUDA = Check(TOPIC, "cores"), Check(TOPIC, "cuda")
UPDATE_DRIVER = "do not use this device: update its driver and torch, then try again"
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
    """Check the cores that this process may use against the threads that torch takes.

    >>> cpu_threads(8, None, 8, "8")[0].found
    '8 usable, torch takes 8 threads (OMP_NUM_THREADS=8)'
    """
    allowed = usable if quota is None else min(usable, quota)
    named = "OMP_NUM_THREADS is not set" if wanted is None else f"OMP_NUM_THREADS={wanted}"
    limit = "" if quota is None else f", of which the control group allows {quota:g}"
    found = f"{usable} usable{limit}, torch takes {threads} threads ({named})"
    if wanted is not None and not wanted.split(",")[0].strip().isdigit():
        return [CORES.problem(found, "export OMP_NUM_THREADS as a whole number, such as 1")]
    if threads > max(1.0, allowed):
        fix = f"export OMP_NUM_THREADS={max(1, int(allowed))}, or 1 where one process runs for each core"
        return [CORES.note(f"{found}: more threads than cores slow each other down", fix)]
    return [CORES.ok(found)]


def cuda_seen(build: str | None, driver: str | None, count: int, visible: str | None) -> Finding:
    """Check that torch sees the GPUs of this machine.

    Args:
        build: the CUDA version that torch was built for; ``None``: a build for CPUs alone.
        driver: version of the machine's NVIDIA driver; ``None``: it has none.
        count: CUDA devices that torch sees.
        visible: ``CUDA_VISIBLE_DEVICES``.
    """
    if count:
        return CUDA.ok(f"{count} seen, torch is built for CUDA {build}, driver {driver}")
    if driver is None:
        return CUDA.ok("no GPU here (no NVIDIA driver); work runs on the CPU")
    if build is None:
        found = f"the machine has NVIDIA driver {driver}, but this torch is built for CPUs alone"
        return CUDA.problem(found, "install torch's default build (docs/install.md), or continue without the GPU")
    if visible is not None and visible.strip() in ("", "-1"):
        return CUDA.note(f"hidden by CUDA_VISIBLE_DEVICES={visible!r}", "unset CUDA_VISIBLE_DEVICES to use them")
    found = f"none seen, though torch is built for CUDA {build} and driver {driver} is there"
    fix = f"request a GPU from the scheduler (--gpus-per-node), or use a driver for CUDA {build}; see nvidia-smi"
    return CUDA.problem(found, fix)


def built(device: torch.device, capability: tuple[int, int], architectures: Sequence[str]) -> Finding:
    """Check that torch was built for a device: code for its own generation, or code that its driver can translate.

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
        return Check(TOPIC, str(device)).ok(found)
    return Check(TOPIC, str(device)).problem(found, "install a build of torch that has code for this GPU")


def matrix_product(device: torch.device) -> Finding:
    """Check a product of two matrices against the CPU in float64."""
    draw = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE, generator=draw, dtype=torch.float64)
    check = Check(TOPIC, f"{device} product")
    try:
        got = (left.float().to(device) @ right.float().to(device)).double().cpu()
    except (RuntimeError, AssertionError) as error:
        return _broken(check, error)
    true = left @ right
    off = float((got - true).norm() / true.norm())
    found = f"{PRODUCT_SIZE} x {PRODUCT_SIZE}, relative error {off:.1e}"
    if off < PRODUCT_TOLERANCE:
        return check.ok(found)
    return check.problem(f"{found}: wrong", UPDATE_DRIVER)


def inversion_step(device: torch.device, update: ClientUpdate, reference: float) -> Finding:
    """Check that one step of TabLeak on a small update has the same loss as on the CPU."""
    check = Check(TOPIC, f"{device} inversion")
    try:
        loss = loss_after_one_step(update, device)
    except (RuntimeError, AssertionError) as error:
        return _broken(check, error)
    found = f"one step of TabLeak, loss {loss:.4g}"
    if abs(loss - reference) <= LOSS_TOLERANCE * abs(reference):
        return check.ok(found)
    return check.problem(f"{found}, on the CPU {reference:.4g}", UPDATE_DRIVER)


def small_update() -> ClientUpdate:
    """Return the update of a client with four synthetic rows, for a small network."""
    table = load_dataset("synthetic", n_discrete=2, n_continuous=2, n_rows=40)
    encoder = TableEncoder(table.schema).fit(table.train)
    spec = NetworkSpec("mlp", table.schema.n_classes, encoder.layout, {"hidden": [16]})
    inputs, labels = encoder.encode(table.train)[:4], encoder.encode_labels(table.train)[:4]
    return client_update(build_network(spec, 0), spec, encoder, inputs, labels, share_labels=True)[0]


def loss_after_one_step(update: ClientUpdate, device: torch.device) -> float:
    """The gradient-matching loss after one step of TabLeak."""
    return float(ATTACKS.get("tableak")(restarts=1, steps=1).run(update, device=device).loss)


def _broken(check: Check, error: Exception) -> Finding:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    fix = "see nvidia-smi: is the device free, and does its driver fit torch? CUDA_VISIBLE_DEVICES can leave it out"
    return check.problem(first, fix)


def _number(architecture: str) -> int:
    return int("".join(letter for letter in architecture.partition("_")[2] if letter.isdigit()))
