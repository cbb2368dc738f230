"""Trains the conditional GAN on one or two processes; run by test_gan_ranks.py, which reads what it leaves."""

import sys
from pathlib import Path

import lightning
import torch
from torch import nn

from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.critic import PackedCritic
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.segments import Segments
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator

CLASSES = 3
SEGMENTS = Segments.of([("a", "tanh", 0, 1), ("a", "softmax", 1, 4), ("b", "softmax", 4, 6)])


def make_gan(iterations: int = 12) -> ConditionalGAN:
    """A small table's GAN; float64, so that sums in another order differ by rounding alone."""
    torch.manual_seed(1)
    config = GANConfig(
        iterations=iterations,
        batch_size=40,
        pac=5,
        latent_dim=8,
        generator_dim=(16, 16),
        discriminator_dim=(12, 12),
        generator_learning_rate=0.002,
        discriminator_learning_rate=0.002,
    )
    generator = TabularGenerator(SEGMENTS, CLASSES, config.latent_dim, config.generator_dim)
    critic = PackedCritic(generator.segments.width, CLASSES, config.discriminator_dim, config.pac)
    labels = torch.arange(60) % CLASSES
    rows = SEGMENTS.activate(torch.randn(60, 6) * 3)
    rows = torch.cat([rows, nn.functional.one_hot(labels, CLASSES).float()], dim=1)
    classify = nn.Sequential(nn.Linear(generator.segments.width, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    return ConditionalGAN(
        generator, critic, ClassSampler(rows.double(), labels, CLASSES), config, classify, seed=3
    ).double()


if __name__ == "__main__":
    folder, devices = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
    torch.set_num_threads(1)
    gan = make_gan()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=gan.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(gan)
    state = {name: value.detach().clone() for name, value in gan.state_dict().items()}
    torch.save(state, folder / f"rank-{trainer.global_rank}.pt")
