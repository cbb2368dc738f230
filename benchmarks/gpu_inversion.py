"""Throughput of gradient inversion: all batches of TabLeak's Table 1 in as few vectorised calls as the memory allows.

    python benchmarks/gpu_inversion.py            # five batch sizes of 50 batches, 30 restarts, 1500 steps
    python benchmarks/gpu_inversion.py --quick    # seconds, anywhere

Per batch size and in all: batches per second, wall seconds, operations per second against the peak of the card (a large
matrix product in the same precision), peak memory and mean cell accuracy with its 95% interval. The operations are
those of the matrix products of a step, counted from the layer sizes; the last line is the same as JSON. Observing and
scoring the batches is not in the times, restoring rows from the last variables is.
"""

import argparse
import datetime
import json
import resource
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.core.devices import require_tf32, resolve_device, synchronize, tf32_products
from lightleak.core.errors import LightLeakError
from lightleak.core.summary import summarize
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.config import AuditConfig, DataConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.metrics.score import score

IN_CLOSED_FORM = ("tableak", "tableak_no_pooling", "tableak_no_softmax", "inverting_gradients", "deep_gradient_leakage")
PEAK_SIDE = {"cpu": 1024, "cuda": 8192}
QUICK: dict[str, Any] = {"batch_sizes": [4, 8], "batches": 2, "restarts": 3, "steps": 20}


def step_flops(widths: Sequence[int], blocks: int, rows: int, candidates: int) -> int:
    """Operations of the matrix products of one step, two per multiply-add.

    Args:
        widths: of the encoded row, every hidden layer and the logits.
        blocks: columns of the table.
        rows: of one candidate batch.
        candidates: over all updates and restarts.
    """
    total = 8 * rows * widths[0] * blocks  # sums over blocks, there and back, each by two thin factors
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        product = 2 * rows * fan_in * fan_out
        total += (4 if layer else 2) * product  # activations there and back; beyond the first layer errors likewise
        if rows * (fan_in + fan_out) < fan_in * fan_out:  # Gram form
            total += 2 * product + 4 * rows * rows * (fan_in + fan_out)
        else:
            total += 3 * product + 2 * fan_in * fan_out
    return total * candidates


def peak_flops(device: torch.device, precision: str, seconds: float = 0.5) -> float:
    """Operations per second of a large square matrix product."""
    dtype = {"float64": torch.float64, "bfloat16": torch.bfloat16}.get(precision, torch.float32)
    side = PEAK_SIDE[device.type]
    left, right = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    with tf32_products(precision == "tf32"):
        torch.mm(left, right)
        synchronize(device)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            torch.mm(left, right)
            synchronize(device)
            count += 1
        return count * 2 * side**3 / (time.perf_counter() - began)


def peak_memory(device: torch.device) -> int:
    """Bytes: of tensors on a GPU since the last reset, or of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(
    attack: GradientInversion, clients: FreshClients, rows: int, batches: int, device: torch.device, peak: float
) -> dict[str, Any]:
    """Attack ``batches`` fresh clients of ``rows`` rows in one go."""
    observed = [clients.observe(rows, index) for index in range(batches)]
    updates, encoder = [update for update, _ in observed], clients.population.encoder
    # What a device loads and chooses at its first call is no part of the attack.
    ATTACKS.get(attack.name)(**{**attack.options(), "steps": 2}).run_many(updates, range(batches), device)
    synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    found = attack.run_many(updates, range(batches), device)
    synchronize(device)
    wall = time.perf_counter() - began
    scores = [score(one, truth, encoder)["cell_accuracy"] for one, (_, truth) in zip(found, observed, strict=True)]
    config, spec = attack.config, clients.spec
    hidden = spec.options.get("hidden", (100, 100))
    widths = (spec.layout.width, *hidden, spec.n_classes)
    flops = config.steps * step_flops(widths, len(spec.layout.blocks), rows, batches * config.restarts)
    return {
        "batch_size": rows,
        "calls": -(-batches // attack.updates_at_once(updates[0], device)),
        "seconds": wall,
        "batches_per_second": batches / wall,
        "flops": flops,
        "flops_per_second": flops / wall,
        "of_peak": flops / wall / peak,
        "memory": peak_memory(device),
        "cell_accuracy": summarize(scores).to_dict(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=GradientInversion.precisions, default="float32")
    parser.add_argument("--attack", choices=IN_CLOSED_FORM, default="tableak")
    parser.add_argument("--quick", action="store_true", help=f"small sizes: {QUICK}")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        vars(chosen).update(QUICK)
    device = resolve_device(chosen.device)
    data = DataConfig(name=chosen.dataset, statistics="all", marginals="all")
    setting = prepare_experiment(AuditConfig(data=data))
    clients = FreshClients(setting.population, setting.spec, seed=0, share_labels=True)
    attack = ATTACKS.get(chosen.attack)(restarts=chosen.restarts, steps=chosen.steps, precision=chosen.precision)
    if chosen.precision == "tf32":
        require_tf32(device)
    peak = peak_flops(device, chosen.precision)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"{chosen.attack} on {chosen.dataset}: {chosen.batches} batches, {chosen.restarts} restarts, "
        f"{chosen.steps} steps"
    )
    print(f"{name}, torch {torch.__version__}, {chosen.precision}, peak {peak / 1e12:.3g} TFLOP/s")
    print(
        f"{'rows':>5} {'calls':>5} {'seconds':>8} {'batches/s':>9} {'TFLOP/s':>8} {'of peak':>8} {'memory':>10}"
        "  cells right"
    )
    measured = []
    for rows in chosen.batch_sizes:
        one = measure(attack, clients, rows, chosen.batches, device, peak)
        measured.append(one)
        print_line(str(rows), one)
    total = {
        "calls": sum(one["calls"] for one in measured),
        "seconds": (seconds := sum(one["seconds"] for one in measured)),
        "batches_per_second": len(measured) * chosen.batches / seconds,
        "flops_per_second": (rate := sum(one["flops"] for one in measured) / seconds),
        "of_peak": rate / peak,
        "memory": max(one["memory"] for one in measured),
    }
    print_line("all", total)
    made = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "peak_flops": peak}
    made["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(json.dumps({**vars(chosen), **made, "sizes": measured, "total": total}))


def print_line(name: str, one: dict[str, Any]) -> None:
    """A line of the table."""
    accuracy = one.get("cell_accuracy")
    cells = "" if accuracy is None else f"{accuracy['mean']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}]"
    print(
        f"{name:>5} {one['calls']:>5} {one['seconds']:>8.1f} {one['batches_per_second']:>9.3g} "
        f"{one['flops_per_second'] / 1e12:>8.3g} {one['of_peak']:>8.1%} {one['memory'] / 2**20:>6.0f} MiB  {cells}",
        flush=True,
    )


if __name__ == "__main__":
    try:
        main()
    except LightLeakError as error:
        raise SystemExit(f"gpu_inversion: {error}") from None
