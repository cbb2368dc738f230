"""Speed of a FedAvg attack: processor time of one optimisation step of all restarts, beside a plain autograd loop.

    python benchmarks/fedavg_step.py --threads 1

The setting is the hardest cell of TabLeak's Table 2: Adult's width, MLP 100-100, 32 rows, 10 epochs of 4 batches, 15
restarts. The plain loop is what a direct implementation does: one restart after the other, the whole local training
unrolled on autograd's graph. The floor counts the operations of the matrix products alone.
"""

import argparse
import resource
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.fedavg.simulate.chain_step import ChainStep
from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import epoch_prior
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import schedule_for
from lightleak.attacks.gradient_inversion.fedavg.simulate.simulation import LocalSGD, SimulatedTraining
from lightleak.attacks.gradient_inversion.fedavg.simulate.update_matcher import UpdateMatcher
from lightleak.attacks.gradient_inversion.optimize.engine import invert
from lightleak.attacks.gradient_inversion.optimize.objective import cosine
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.targets.mlp import MLP

ROWS, RATE = 32, 0.01


def floor_flops(network: MLP, epochs: int, restarts: int) -> float:
    """Operations of the matrix products of a step: three forwards and backwards per row, two per multiply-add."""
    weights = [linear.weight.numel() for linear in network.linears]
    first, rest = weights[0], sum(weights[1:])
    # First layer: forward, gradient, tangent forward, two parts of each derivative by rows, and of the weights' own.
    return float(2 * ROWS * epochs * restarts * (6 * first + 10 * rest))


def seconds_per_step(step: Callable[[], object], steps: int) -> float:
    """Processor time of a step, after one to warm up."""
    step()
    began = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - began) / steps


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--restarts", type=int, default=15)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    options = {"n_discrete": 8, "n_continuous": 6, "max_categories": 41, "encoded_width": 105}
    table = load_dataset("synthetic", n_rows=500, **options)
    encoder = TableEncoder(table.schema).fit(table.train)
    network = MLP(encoder.layout, 2)
    inputs, labels = encoder.encode(table.train)[:ROWS], encoder.encode_labels(table.train)[:ROWS]
    schedule = schedule_for("full", ROWS, chosen.epochs, chosen.batches, RATE)
    weights = [p.detach() for p in network.parameters()]

    def training(restarts: int) -> SimulatedTraining:
        of_all = labels.expand(restarts, chosen.epochs, -1)
        return SimulatedTraining(ChainStep([None] * 3), schedule, LocalSGD(), of_all)

    end, _ = training(1).run([w.unsqueeze(0) for w in weights], inputs.expand(1, chosen.epochs, -1, -1))
    deltas = [e - w for e, w in zip(end, weights, strict=True)]
    config = EngineConfig(restarts=chosen.restarts, steps=1)
    matcher = UpdateMatcher(
        training,
        [w.unsqueeze(0) for w in weights],
        deltas,
        1 / schedule.total_rate,
        1,
        chosen.epochs,
        cosine,
        priors=[lambda x: 0.1 * epoch_prior(x).mean(-1)],
    )
    relaxation = encoder.relaxation(config.categorical, config.numerical, torch.float32, "cpu")
    start = torch.rand(1, chosen.restarts, chosen.epochs * ROWS, encoder.width)
    longer = config.with_options(steps=chosen.steps)
    invert(start, relaxation, matcher, config)
    began = time.process_time()
    invert(start, relaxation, matcher, longer)
    ours = (time.process_time() - began) / chosen.steps

    z = start[0, 0].clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=config.learning_rate)
    target = torch.cat([-d.flatten() for d in deltas])

    def unrolled() -> None:
        rows = relaxation(z)
        current = [w.clone().requires_grad_() for w in weights]
        for part in (s for _ in range(chosen.epochs) for s in schedule.slices()):
            hidden: Tensor = rows[part]
            for layer in range(3):
                hidden = hidden @ current[2 * layer].T + current[2 * layer + 1]
                hidden = hidden.relu() if layer < 2 else hidden
            gradient = torch.autograd.grad(cross_entropy(hidden, labels[part]), current, create_graph=True)
            current = [w - RATE * g for w, g in zip(current, gradient, strict=True)]
        update = torch.cat([(w - c).flatten() for w, c in zip(weights, current, strict=True)])
        loss = 1 - update @ target / (update.norm() * target.norm())
        loss = loss + 0.1 * epoch_prior(rows.view(chosen.epochs, ROWS, -1))
        (z.grad,) = torch.autograd.grad(loss, z)
        z.grad.sign_()
        optimizer.step()

    plain = seconds_per_step(unrolled, max(3, chosen.steps // 5)) * chosen.restarts
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    rate = 2 * 1024**3 / seconds_per_step(lambda: a @ b, 10)
    floor = floor_flops(network, chosen.epochs, chosen.restarts) / rate
    print(
        f"{chosen.epochs} epochs x {chosen.batches} batches, {chosen.restarts} restarts, {chosen.threads} thread(s): "
        f"{1e3 * ours:.1f} ms of processor time per step; plain autograd loop {1e3 * plain:.0f} ms ({plain / ours:.1f} "
        f"times); floor {1e3 * floor:.1f} ms ({ours / floor:.1f} times the floor); peak memory "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
