"""Processor time of a training step of a small network, by the Trainer and by a bare loop, by steps per epoch.

    python benchmarks/training_step.py --steps 100 600 2400

An MLP of 100-100 hidden units on 100 numbers, 32 rows a step, plain SGD, one thread, one epoch. What a Trainer adds to
a step must not grow with the epoch.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset

from lightleak.data.datamodule import BatchSampler, batch_loader
from lightleak.data.layout import EncodedLayout
from lightleak.experiments.training import one_training
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.spec import NetworkSpec

ROWS, WIDTH = 32, 100


def main() -> None:
    """Print one line for every number of steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 600, 2400])
    torch.set_num_threads(1)
    chosen = parser.parse_args().steps
    for steps in (min(chosen), *chosen):  # the first is not counted: it loads and allocates
        inputs = torch.randn(ROWS * steps, WIDTH, generator=torch.Generator().manual_seed(0))
        labels = (inputs.sum(1) > 0).long()
        module = TabularClassifier(NetworkSpec("mlp", 2, EncodedLayout.of_numerical(WIDTH)), seed=0)
        loader = batch_loader(TensorDataset(inputs, labels), BatchSampler(len(labels), ROWS, True, 0))
        with one_training({}, "cpu", 1, []) as trainer:
            began = time.process_time()
            trainer.fit(module, loader)
            by_trainer = time.process_time() - began
        optimizer = torch.optim.SGD(module.network.parameters(), lr=0.1)
        began = time.process_time()
        for x, y in zip(inputs.split(ROWS), labels.split(ROWS), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(module.network(x), y).backward()
            optimizer.step()
        bare = time.process_time() - began
        print(f"{steps} steps an epoch: {1e3 * by_trainer / steps:.2f} ms a step, a bare loop {1e3 * bare / steps:.2f}")


if __name__ == "__main__":
    main()
