"""Speed of a full TabLeak attack: wall time, memory, cost over restarts, and distance from the matrix-product floor.

    python benchmarks/inversion.py --threads 2

The setting is the paper's: Adult (105 encoded columns), MLP 100-100, batch 32, 30 restarts, 1500 steps. Where Adult is
not at hand a synthetic table of the same width stands in (same work, other accuracy; the output says which).
"""

import argparse
import resource
import time

import torch

from lightleak.attacks import ATTACKS
from lightleak.core.errors import DataError
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.config import AuditConfig, DataConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.metrics.score import score

WIDTH, HIDDEN, CLASSES = 105, (100, 100), 2


def experiment() -> Experiment:
    """Adult, or a synthetic table of its width."""
    try:
        return prepare_experiment(AuditConfig(data=DataConfig(name="adult", statistics="all", marginals="all")))
    except DataError:
        options = {"n_discrete": 8, "n_continuous": 6, "max_categories": 41, "encoded_width": WIDTH}
        return prepare_experiment(AuditConfig(data=DataConfig(name="synthetic", options=options)))


def floor_flops(batch: int, restarts: int) -> float:
    """Operations of the matrix products that one step of the explicit form needs.

    Per layer and row: forward, gradient, its two derivatives and the way down through the activation; beyond the first
    layer also the error and the way up through it. Two operations per multiply-add.
    """
    layers = [(WIDTH, HIDDEN[0]), (HIDDEN[0], HIDDEN[1]), (HIDDEN[1], CLASSES)]
    per_row = sum(2 * fan_in * fan_out * (5 if i == 0 else 7) for i, (fan_in, fan_out) in enumerate(layers))
    return float(per_row * batch * restarts)


def product_rate(seconds: float = 1.0) -> float:
    """Operations per second of a large float32 matrix product on the threads in use."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    torch.mm(a, b)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        torch.mm(a, b)
        count += 1
    return count * 2 * 1024**3 / (time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--restarts", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    setting = experiment()
    clients = FreshClients(setting.population, setting.spec, seed=0, share_labels=True)
    print(f"table {setting.table.card.name}, d = {setting.encoder.width}, {args.threads} threads, {torch.__version__}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for index in range(args.repeat):
        update, truth = clients.observe(args.batch_size, index)
        attack = ATTACKS.get("tableak")(steps=args.steps, restarts=args.restarts)
        began, cpu = time.perf_counter(), time.process_time()
        found = attack.run(update, seed=index)
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        accuracy = score(found, truth, setting.encoder)["cell_accuracy"]
        print(
            f"attack {index}: {wall:.2f} s wall, {used:.1f} CPU-seconds, {1e3 * wall / args.steps:.2f} ms/step, "
            f"cells right {accuracy:.3f}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: peak {peak:.0f} MiB, of which {peak - before:.0f} MiB above the loaded program")
    flops, rate = floor_flops(args.batch_size, args.restarts), product_rate()
    print(
        f"floor: {flops / 1e9:.3f} GFLOP/step at {rate / 1e9:.0f} GFLOP/s = {1e3 * flops / rate:.2f} ms/step, "
        f"{flops * args.steps / rate:.1f} s an attack"
    )
    update, _ = clients.observe(args.batch_size, 0)
    for restarts in (5, 10, 20, 30, 60):
        steps = max(1, args.steps // 10)
        attack = ATTACKS.get("tableak")(steps=steps, restarts=restarts)
        began = time.perf_counter()
        attack.run(update)
        print(f"restarts {restarts:3}: {1e3 * (time.perf_counter() - began) / steps:.2f} ms/step")


if __name__ == "__main__":
    main()
