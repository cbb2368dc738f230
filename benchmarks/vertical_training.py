"""Speed of split training (ProVFL): the Trainer with a listener beside bare loops without Lightning.

    python benchmarks/vertical_training.py --threads 1

The setting is the paper's: Adult without duplicates (35,484 training rows, two parties of about 50 encoded columns),
20 epochs, batch 64, SGD. Where Adult is not at hand, made columns of the same shape stand in (same work; the output
says which). The listener keeps outputs and gradients of every step of one epoch, as an adversary would.

Rows of the table: two floors, each the same steps without Lightning, and the Trainer alone and with a listener.
`seconds` is the least wall time over the repeats, which take turns, so that a busy moment hits all of them; `CPU` is
the least processor time, which depends less on what else runs. Both are for all epochs, training alone.
"""

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning
import torch
import torch.nn.functional as F

from lightleak.core.errors import DataError
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.partition import partition_columns
from lightleak.data.vertical import VerticalDataModule, VerticalRows, party_positions
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import Exchange, SplitClassifier, SplitNetwork, SplitSpec, Transform
from lightleak.targets.split.optimizer import build_optimizer
from lightleak.targets.split.step import Step, StepLabels

OPTIMIZER = OptimizerConfig("sgd", 0.01, weight_decay=3e-5)
N_ROWS, WIDTHS = 35_484, (50, 57)


@dataclass(frozen=True)
class Setting:
    """What every variant trains."""

    data: VerticalDataModule
    epochs: int
    listen: int

    @property
    def network(self) -> SplitNetwork:
        """A new network, the same each time."""
        return SplitNetwork(SplitSpec(self.data.train.widths), seed=0)


class Listener(lightning.Callback):
    """Keeps what travelled in every step of one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.kept: list[Exchange] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        """Every step's tensors are its own, so that keeping them is enough."""
        if trainer.current_epoch == self.epoch:
            self.kept.append(pl_module.exchange)


def bare_autograd(setting: Setting) -> None:
    """The loop one writes first: autograd cut at what travels, PyTorch's optimiser, batches cut out of a tensor."""
    network, rows = setting.network, setting.data.train
    optimizer = OPTIMIZER.build(network.parameters())
    for _ in range(setting.epochs):
        for start in range(0, len(rows), setting.data.batch_size):
            batch = slice(start, start + setting.data.batch_size)
            optimizer.zero_grad()
            outputs = network.outputs(rows.inputs[batch])
            received = outputs.detach().requires_grad_()
            loss = F.binary_cross_entropy_with_logits(network.logits(received), rows.labels[batch].float())
            loss.backward()
            outputs.backward(received.grad)
            optimizer.step()


def bare_at_once(setting: Setting) -> None:
    """The Trainer's steps and nothing else."""
    network, loader, transform = setting.network, setting.data.train_dataloader(), Transform()
    optimizer, step = build_optimizer(OPTIMIZER, network), Step(network)
    for _ in range(setting.epochs):
        for inputs, labels, _ in loader:
            step(inputs, StepLabels(labels, None, len(labels)), transform)
            optimizer.step()


def through_trainer(setting: Setting, listening: bool = True) -> None:
    """A Trainer without loggers, checkpoints and progress bar."""
    spec = SplitSpec(setting.data.train.widths)
    module = SplitClassifier(spec, OPTIMIZER, seed=0)
    lightning.Trainer(
        max_epochs=setting.epochs,
        accelerator="cpu",
        callbacks=[Listener(setting.listen)] if listening else [],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, setting.data)


VARIANTS: dict[str, Callable[[Setting], None]] = {
    "bare loop, autograd": bare_autograd,
    "bare loop, all parties at once": bare_at_once,
    "Trainer": lambda setting: through_trainer(setting, listening=False),
    "Trainer and listener": through_trainer,
}


def adult_rows() -> VerticalRows:
    """Adult's training rows as two parties hold them, or made columns of their shape."""
    try:
        table = load_dataset("adult", missing="category", final_weight=False, duplicates="drop")
    except DataError as error:
        print(f"made columns in place of Adult: {error}")
        draw = torch.Generator().manual_seed(0)
        inputs = (torch.rand(N_ROWS, sum(WIDTHS), generator=draw) < 0.13).float()
        return VerticalRows(inputs, torch.randint(2, (N_ROWS,), generator=draw), torch.arange(N_ROWS), WIDTHS)
    encoder = TableEncoder(table.schema, "onehot").fit(table.train)
    positions, widths = party_positions(encoder.layout, partition_columns(table.schema, ratio=[1, 1]))
    inputs, labels = encoder.encode(table.train)[:, positions], encoder.encode_labels(table.train)
    repeated = torch.arange(N_ROWS) % len(labels)
    return VerticalRows(inputs[repeated], labels[repeated], torch.arange(N_ROWS), widths)


def measure(setting: Setting, repeats: int) -> dict[str, tuple[float, float]]:
    """Least wall and processor seconds of each variant; the variants take turns."""
    least = dict.fromkeys(VARIANTS, (float("inf"), float("inf")))
    for _ in range(repeats):
        for name, train in VARIANTS.items():
            wall, cpu = time.perf_counter(), time.process_time()
            train(setting)
            spent = time.perf_counter() - wall, time.process_time() - cpu
            least[name] = min(least[name][0], spent[0]), min(least[name][1], spent[1])
    return least


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="epochs of each training (default: 20)")
    parser.add_argument("--batch-size", type=int, default=64, help="rows of a step (default: 64)")
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each variant (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = adult_rows()
    # The penultimate epoch, where the paper attacks.
    setting = Setting(VerticalDataModule(rows, rows, arguments.batch_size), arguments.epochs, arguments.epochs - 2)
    steps = arguments.epochs * len(setting.data.train_dataloader())
    print(f"{len(rows)} rows, columns {rows.widths}, {steps} steps, PyTorch {torch.__version__}")
    least = measure(setting, arguments.repeats)
    autograd, at_once = least["bare loop, autograd"][1], least["bare loop, all parties at once"][1]
    print(f"{'':38}{'seconds':>9}{'CPU':>9}{'us/step':>9}{'x autograd':>12}{'x at once':>11}")
    for name, (wall, cpu) in least.items():
        ratios = f"{cpu / autograd:12.2f}{cpu / at_once:11.2f}"
        print(f"{name:38}{wall:9.2f}{cpu:9.2f}{cpu / steps * 1e6:9.0f}{ratios}")


if __name__ == "__main__":
    main()
