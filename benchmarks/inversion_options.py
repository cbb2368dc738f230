"""What the engine's options buy, singly and together: cells right on paired fresh clients, and seconds.

    python benchmarks/inversion_options.py --clients 10 --rows "batch 32" "FedAvg 32"

A row is a kind of update, a line below it a setting of the attack; all settings of a row see the same clients. The
first line of a row has TabLeak's published settings. The second is one restart of as many steps as the options take;
then comes each option alone beside it, all together, and all together without each. Labels are given to all. Intervals
are Student's at 95%; the last column is the paired difference from TabLeak's line.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lightleak.attacks import ATTACKS
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.core.summary import Summary, summarize
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig, DataConfig, TrainingConfig
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.metrics.score import score
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import build_network

Options = Mapping[str, Any]
Observe = Callable[[int], tuple[ClientUpdate, GroundTruth]]

NOISE = 1e-3
"""Standard deviation of the Gaussian noise on every element of a gradient."""

PRIOR_PER_NOISE = 8.0
"""Weight of the rows' prior in units of noise variance over squared norm; 2 would be the posterior's own."""

ONE_RESTART: Options = {"restarts": 1, "pooling": "none", "steps": 5000}

PLAIN_ADAM: Options = {"sign": False, "learning_rate": 0.2, "numerical_learning_rate": 0.05, "schedule": "cosine"}

OPTIONS: dict[str, tuple[Options, Options]] = {
    "plain Adam, cosine": (PLAIN_ADAM, {"sign": True, "learning_rate": 0.06, "schedule": "step"}),
    "straight-through masks": ({"mask_derivative": "straight_through"}, {"mask_derivative": "zero"}),
    "whitening": ({"whitening": 1e-2}, {"whitening": None, "objective": "relative_error"}),
    "start at the prior": ({"initialization": "prior"}, {"initialization": "unit"}),
    "temperature to 0.2": ({"temperature_end": 0.2}, {"temperature_end": 1.0}),
    "clamped numbers": ({"numerical": "clamp"}, {"numerical": "sigmoid"}),
    "absent categories masked": ({"mask_absent": True}, {"mask_absent": False}),
    "tied numbers": ({"tie_numbers": True}, {"tie_numbers": False}),
}
"""What turns each option on, and what turns it off again."""

TOGETHER: Options = {name: value for on, _ in OPTIONS.values() for name, value in on.items()}

FEDAVG: Options = {"simulation": "shared"}
"""One variable per row: what the options add to several copies per row has not been measured."""


@dataclass(frozen=True)
class Row:
    """A kind of update.

    Attributes:
        attack: registry name.
        observe: the client of a number.
        options: settings of all lines but TabLeak's.
        noise: standard deviation of what was added to the gradient.
    """

    attack: str
    observe: Observe
    options: Options
    noise: float = 0.0


@cache
def adult() -> Experiment:
    """The table, its encoder and the network 100-100."""
    return prepare_experiment(AuditConfig(data=DataConfig(name="adult")))


def fresh(batch_size: int, seed: int, noise: float = 0.0) -> Observe:
    """Clients with an untrained network each."""
    setting = adult()
    defense = GaussianNoise(noise) if noise else None
    clients = FreshClients(setting.population, setting.spec, seed, share_labels=True, defense=defense)
    return lambda index: clients.observe(batch_size, index)


def trained(batch_size: int, seed: int) -> Observe:
    """Clients of a network after one epoch of the default training."""
    setting = adult()
    people = setting.population

    @cache
    def network() -> nn.Module:
        built = build_network(setting.spec, seed)
        training = TrainingConfig()
        optimizer = torch.optim.SGD(built.parameters(), lr=training.optimizer.learning_rate)
        order = torch.randperm(len(people.inputs), generator=generator(seed, "order"))
        for rows in order.split(training.batch_size):
            optimizer.zero_grad()
            cross_entropy(built(people.inputs[rows]), people.labels[rows]).backward()
            optimizer.step()
        return built

    def observe(index: int) -> tuple[ClientUpdate, GroundTruth]:
        rows = people.draw(seed, batch_size, index)
        given = network(), setting.spec, people.encoder, people.inputs[rows], people.labels[rows]
        return client_update(*given, share_labels=True, marginals=people.marginals)

    return observe


def federated(rows: int, seed: int) -> Observe:
    """Clients that trained 5 epochs of 2 batches at learning rate 0.01."""
    setting = adult()
    protocol = ProtocolConfig(name="fedavg", local_epochs=5, local_batches=2, learning_rate=0.01)
    clients = FreshFedAvgClients(setting.population, setting.spec, seed, protocol, "counts")
    return lambda index: clients.observe(rows, index)


def rows_of(seed: int) -> dict[str, Row]:
    """All rows of the table."""
    return {
        "batch 32": Row("tableak", fresh(32, seed), ONE_RESTART),
        "batch 128": Row("tableak", fresh(128, seed), ONE_RESTART),
        "batch 32, one epoch": Row("tableak", trained(32, seed), ONE_RESTART),
        "FedAvg 32": Row("tableak_fedavg", federated(32, seed), ONE_RESTART | FEDAVG),
        "batch 32, noise 0.001": Row("tableak", fresh(32, seed, NOISE), ONE_RESTART, NOISE),
    }


def settings_of(row: Row) -> dict[str, Options]:
    """The lines below a row: TabLeak, one restart, each option alone, all, all without each."""
    lines: dict[str, Options] = {"TabLeak as published": {}, "one restart": row.options}
    lines |= {f"+ {name}": row.options | on for name, (on, _) in OPTIONS.items()}
    lines["all"] = row.options | TOGETHER
    lines |= {f"all but {name}": row.options | TOGETHER | off for name, (_, off) in OPTIONS.items()}
    if row.noise:
        likelihood = {"whitening": None, "objective": "relative_error", "mask_absent": False, "tie_numbers": False}
        several = row.options | TOGETHER | likelihood | {"restarts": 8, "pooling": "median"}
        lines["for noise: likelihood, 8 restarts"] = several
        lines["for noise: with prior"] = several | {"prior_weight": PRIOR_PER_NOISE}
    return lines


def options_for(update: ClientUpdate, options: Options, noise: float) -> dict[str, Any]:
    """Settings with the prior's weight in units of the loss, which is relative to the squared norm of the gradient."""
    if "prior_weight" not in options:
        return dict(options)
    squared = sum(float(value.double().square().sum()) for value in update.update.values())
    return dict(options) | {"prior_weight": options["prior_weight"] * noise**2 / squared}


def measure(row: Row, options: Options, clients: int, seed: int) -> tuple[list[float], float]:
    """Cell accuracy of every client, and mean seconds."""
    cells, seconds = [], 0.0
    for index in range(clients):
        update, truth = row.observe(index)
        attack = ATTACKS.get(row.attack)(**options_for(update, options, row.noise))
        start = time.perf_counter()
        found = attack.run(update, seed=seed + index)
        seconds += time.perf_counter() - start
        cells.append(float(score(found, truth, adult().encoder)["cell_accuracy"]))
    return cells, seconds / clients


def text(summary: Summary) -> str:
    """Mean and interval in per cent."""
    return f"{100 * summary.mean:5.1f} [{100 * summary.low:5.1f}, {100 * summary.high:5.1f}]"


def main() -> None:
    """Print the table, a line as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10, help="paired clients per row, n")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", choices=list(rows_of(0)), help="default: all")
    parser.add_argument("--lines", nargs="+", help="default: all; TabLeak's is always measured")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"Adult, MLP 100-100, n = {args.clients}, seed {args.seed}, {args.threads} threads, {torch.__version__}")
    for name, row in rows_of(args.seed).items():
        if args.rows and name not in args.rows:
            continue
        print(f"\n| {name} | cells right, % | seconds | difference from TabLeak |\n| --- | --- | --- | --- |")
        published: list[float] = []
        for line, options in settings_of(row).items():
            if published and args.lines and line not in args.lines:
                continue
            cells, seconds = measure(row, options, args.clients, args.seed)
            published = published or cells
            difference = summarize(c - p for c, p in zip(cells, published, strict=True))
            print(f"| {line} | {text(summarize(cells))} | {seconds:.1f} | {text(difference)} |", flush=True)


if __name__ == "__main__":
    main()
