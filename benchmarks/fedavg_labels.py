"""Label counts from FedAvg updates, laid out as the FedAvg paper's Table 2, on scikit-learn's digits.

Run: python benchmarks/fedavg_labels.py [--clients 100] [--second-kernel 3] [--initialization flax] [--seed 0]

Every client has an untrained network of its own and 50 images. The numbers are wrong labels of 50, half the sum of the
absolute differences of the counts: mean, deviation and worst of the clients; at the end the largest of all lines. The
network is that of the paper's code; 1 and torch make the one that the paper prints, as PyTorch initialises it.
"""

import argparse
from statistics import fmean, pstdev
from typing import get_args

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.fedavg.simulate.label_counts import FedAvgLabelMethod, restore_fedavg_counts
from lightleak.attacks.gradient_inversion.optimize.labels import DUMMY_ROWS, round_counts
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.image_datasets import ImageDataset, client_positions, load_image_dataset
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import client_update
from lightleak.targets.spec import NetworkSpec, build_network

ROWS, LEARNING_RATE = 50, 0.004
CELLS = [(1, 10), (1, 5), (5, 10), (5, 5), (10, 10), (10, 5), (10, 1)]
"""Epochs and batch size."""


def wrong_labels(
    network: nn.Module, update: ClientUpdate, true: Tensor, dummy: Tensor, method: FedAvgLabelMethod
) -> float:
    """Half the L1 distance of restored and true counts."""
    after = {name: value + update.update[name] for name, value in update.parameters.items()}
    facts = update.facts
    counts = restore_fedavg_counts(
        network,
        update.parameters,
        after,
        update.buffers,
        facts.n_rows,
        facts.learning_rate or 0.0,
        facts.local_steps or 0,
        dummy,
        method,
    )
    restored = round_counts(counts, facts.n_rows)
    return float((restored - torch.bincount(true, minlength=len(restored))).abs().sum()) / 2


def one_client(
    dataset: ImageDataset, client: int, training: LocalTraining, options: argparse.Namespace
) -> dict[str, float]:
    """Wrong labels of every method on one client's update of her own untrained network."""
    settings = {
        "shape": list(dataset.train.shape),
        "channels": [64, 128] if options.dataset == "cifar100" else [32, 64],
        "hidden": 200 if options.dataset == "cifar100" else 100,
        "second_kernel": options.second_kernel,
        "initialization": options.initialization,
    }
    spec = NetworkSpec("image_cnn", dataset.n_classes, dataset.scale.layout, settings)
    network = build_network(spec, derive_seed(options.seed, "network", client))
    images = dataset.train.take(client_positions(dataset, client, ROWS, options.seed))
    update, truth = client_update(
        network,
        spec,
        dataset.scale,
        dataset.scale.encode(images.pixels / 255),
        images.labels,
        training,
        share_labels="none",
        seed=derive_seed(options.seed, "client", client),
    )
    dummy = torch.randn(DUMMY_ROWS, spec.layout.width, generator=generator(options.seed, "dummy", client))
    methods = get_args(FedAvgLabelMethod)
    return {method: wrong_labels(network, update, truth.labels, dummy, method) for method in methods}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits", choices=["digits", "mnist", "femnist", "cifar100"])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--second-kernel", type=int, default=3, choices=[1, 3])
    parser.add_argument("--initialization", default="flax", choices=["torch", "flax"])
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, nargs="+", default=range(6), choices=range(7), help="6 takes 500 steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_image_dataset(options.dataset)
    methods = get_args(FedAvgLabelMethod)
    print(f"{'E':>3} {'m':>3} {'U':>4}  " + "  ".join(f"{name + ' mean ± sd (worst)':>32}" for name in methods))
    largest = {name: (0.0, 0.0) for name in methods}
    for index in options.lines:
        epochs, batch_size = CELLS[index]
        training = LocalTraining(epochs, batch_size, options.learning_rate)
        found = [one_client(dataset, client, training, options) for client in range(options.clients)]
        cells = []
        for name in methods:
            wrong = [client[name] for client in found]
            cells.append(f"{fmean(wrong):.2f} ± {pstdev(wrong):.2f} ({max(wrong):.0f})")
            largest[name] = max(largest[name][0], fmean(wrong)), max(largest[name][1], max(wrong))
        line = f"{epochs:>3} {batch_size:>3} {training.steps(ROWS):>4}  " + "  ".join(f"{cell:>32}" for cell in cells)
        print(line, flush=True)
    print(f"{'largest':>12}  " + "  ".join(f"{f'{mean:.2f} ({worst:.0f})':>32}" for mean, worst in largest.values()))


if __name__ == "__main__":
    main()
