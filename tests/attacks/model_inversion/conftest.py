"""Small problems for model inversion."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.critic import PackedCritic
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.segments import Segments
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator
from lightleak.core.released_model import ReleasedModel
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import TableSchema
from lightleak.targets import NetworkSpec, build_network

CLASSES = 3


@pytest.fixture
def segments() -> Segments:
    """A number with three modes and a column of two categories."""
    return Segments.of([("a", "tanh", 0, 1), ("a", "softmax", 1, 4), ("b", "softmax", 4, 6)])


@pytest.fixture
def labeled_rows(segments: Segments) -> tuple[Tensor, Tensor]:
    """Sixty rows in generator space with their class behind them, and the class."""
    random = torch.Generator().manual_seed(5)
    labels = torch.arange(60) % CLASSES
    rows = segments.activate(3 * torch.randn(60, segments.width, generator=random))
    return torch.cat([rows, nn.functional.one_hot(labels, CLASSES).float()], dim=1), labels


@pytest.fixture
def make_gan(segments: Segments, labeled_rows: tuple[Tensor, Tensor]):  # type: ignore[no-untyped-def]
    """Makes the same untrained GAN each time, with settings changed."""

    def make(with_target: bool = True, seed: int = 3, **changed: object) -> ConditionalGAN:
        small = {"iterations": 250, "batch_size": 20, "pac": 5, "latent_dim": 8, "discriminator_steps": 2}
        config = GANConfig(**{**small, "generator_dim": (16,), "discriminator_dim": (12, 12), **changed})  # type: ignore[arg-type]
        torch.manual_seed(1)
        generator = TabularGenerator(segments, CLASSES, config.latent_dim, config.generator_dim, config.temperature)
        critic = PackedCritic(generator.segments.width, CLASSES, config.discriminator_dim, config.pac, config.dropout)
        classify = nn.Sequential(nn.Linear(generator.segments.width, 8), nn.Tanh(), nn.Linear(8, CLASSES))
        with torch.no_grad():  # a target that is surer of itself than a fresh network
            for layer in (classify[0], classify[2]):
                layer.weight.mul_(4)
        rows, labels = labeled_rows
        sampler = ClassSampler(rows, labels, CLASSES, config.balance)
        return ConditionalGAN(generator, critic, sampler, config, classify if with_target else None, seed=seed)

    return make


@pytest.fixture(scope="session")
def released() -> ReleasedModel:
    """A trained MLP of three private classes, and public rows of the same columns."""
    random = np.random.default_rng(0)
    columns = (
        Column.continuous("glucose"),
        Column.integer("visits"),
        Column.categorical("ward", ["a", "b", "c"]),
        Column.categorical("smoker", ["no", "yes"]),
    )
    schema = TableSchema(columns, Column.categorical("diagnosis", ["d0", "d1", "d2"]))

    def rows(n: int) -> tuple[pd.DataFrame, np.ndarray]:
        kind = random.integers(0, 3, n)
        frame = pd.DataFrame(
            {
                "glucose": (5 + 1.5 * kind + random.normal(0, 0.8, n)).round(2),
                "visits": random.poisson(1 + kind),
                "ward": np.array(["a", "b", "c"])[(kind + (random.random(n) < 0.2)) % 3],
                "smoker": np.where(random.random(n) < 0.2 + 0.3 * kind, "yes", "no"),
            }
        )
        return frame, kind

    private, labels = rows(400)
    encoder = TableEncoder(schema, "onehot").fit(private)
    spec = NetworkSpec("mlp", 3, encoder.layout, {"hidden": [16]})
    network = build_network(spec, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    inputs, wanted = encoder.encode(private), torch.from_numpy(labels)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), wanted).backward()
        optimizer.step()
    facts, tensors = encoder.to_state()
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    return ReleasedModel(spec.to_dict(), parameters, facts, tensors, rows(500)[0])
