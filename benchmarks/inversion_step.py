"""Processor time of one generator iteration beside ctgan's own fit loop, at equal batch size, pac and critic steps.

    python benchmarks/inversion_step.py --dataset adult --iterations 12

Both train on the same rows with one thread; processor time, so that other work on the machine counts less. ctgan is
needed for its own line only; it is under the Business Source License.
"""

import argparse
import time
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.attacks.model_inversion.bridge import make_bridge
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.critic import PackedCritic
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.released import TargetOfSample
from lightleak.attacks.model_inversion.table_transform import ModeTransform
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.targets import NetworkSpec, build_network


class Plain:
    """An optimiser as Lightning hands it out, without Lightning."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad


def ours(frame: Any, schema: Any, steps: int, iterations: int, hidden: list[int] | None) -> float:
    """Processor seconds per iteration; with ``hidden`` the inversion loss of an MLP of these widths is part of it."""
    config = GANConfig(
        iterations=iterations + 2, discriminator_steps=steps, latent_dim=128, inversion_weight=float(bool(hidden))
    )
    transform = ModeTransform.fit(frame, schema, seed=0)
    labels = torch.as_tensor(frame[schema.label.name].astype("category").cat.codes.to_numpy().copy()).long()
    n_classes = schema.n_classes
    rows = torch.cat([transform.encode(frame, 0), F.one_hot(labels, n_classes).float()], dim=1)
    generator = TabularGenerator(transform.segments, n_classes, config.latent_dim)
    critic = PackedCritic(generator.segments.width, n_classes)
    classify: nn.Module | None = None
    if hidden:
        encoder = TableEncoder(schema, "onehot").fit(frame)
        network = build_network(NetworkSpec("mlp", n_classes, encoder.layout, {"hidden": hidden}), seed=0)
        classify = TargetOfSample(make_bridge(transform, encoder), network, transform.width)
    gan = ConditionalGAN(generator, critic, ClassSampler(rows, labels, n_classes), config, classify)
    optimizers = [Plain(optimizer) for optimizer in gan.configure_optimizers()]
    gan.optimizers = lambda: optimizers  # type: ignore[assignment, method-assign, return-value]
    for warm in range(2):
        gan.training_step(warm, warm)
    began = time.process_time()
    for i in range(iterations):
        gan.training_step(i, i)
    return (time.process_time() - began) / iterations


def theirs(frame: Any, schema: Any, steps: int, iterations: int) -> float:
    """Processor seconds per iteration of ctgan's fit loop: its own epochs, timed where its progress bar counts them."""
    import ctgan.synthesizers.ctgan as published

    stamps: list[float] = []

    class Bar:
        def __init__(self, epochs: Any, **_: Any) -> None:
            self.epochs = epochs

        def __iter__(self) -> Any:
            for epoch in self.epochs:
                stamps.append(time.process_time())
                yield epoch
            stamps.append(time.process_time())

    few = frame.sample(500 * iterations, replace=True, random_state=0).reset_index(drop=True)
    before, published.tqdm = published.tqdm, Bar
    try:
        model = published.CTGAN(discriminator_steps=steps, epochs=2, enable_gpu=False)
        model.fit(few, [column.name for column in (*schema.categorical, schema.label)])
    finally:
        published.tqdm = before
    return (stamps[2] - stamps[1]) / iterations


def main() -> None:
    """Print a line per setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="adult")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--discriminator-steps", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--ours-only", action="store_true")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    table = load_dataset(settings.dataset, **({"missing": "category"} if settings.dataset == "adult" else {}))
    frame, schema = table.train.reset_index(drop=True), table.schema
    for steps in settings.discriminator_steps:
        lines: dict[str, Any] = {
            "ours": lambda steps=steps: ours(frame, schema, steps, settings.iterations, None),
            "ours, with the inversion loss of an MLP 2048-1024-512-256": lambda steps=steps: ours(
                frame, schema, steps, settings.iterations, [2048, 1024, 512, 256]
            ),
        }
        if not settings.ours_only:
            lines["ctgan"] = lambda steps=steps: theirs(frame, schema, steps, settings.iterations)
        for name, measure in lines.items():
            times: Tensor = torch.tensor([measure() for _ in range(settings.repetitions)]) * 1000
            print(f"{steps} critic steps, {name}: {times.median():.1f} ms per iteration ({times.min():.1f} best)")


if __name__ == "__main__":
    main()
