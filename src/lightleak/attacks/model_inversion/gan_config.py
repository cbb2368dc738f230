"""Settings of the conditional GAN (thesis Table 4.4)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lightleak.attacks.settings import AttackSettings
from lightleak.core.errors import UsageError

Balance = Literal["log", "uniform", "empirical"]


@dataclass(frozen=True)
class GANConfig(AttackSettings):
    """How the generator is trained.

    Defaults were chosen on public rows alone, by whether the generator learns its condition
    (``configs/tune-plgmi-generator.yaml``). Those of thesis Table 5.4 are in
    `lightleak.reproductions.thesis.tables`.

    Attributes:
        iterations: generator steps (n_iter).
        batch_size: rows per step, over all ranks.
        discriminator_steps: critic steps before each generator step (n_dis).
        generator_learning_rate: Adam's, for the generator.
        generator_decay: its weight decay.
        discriminator_learning_rate: Adam's, for the critic.
        discriminator_decay: its weight decay.
        beta1: Adam's, both.
        beta2: Adam's, both.
        latent_dim: length of z.
        inversion_weight: alpha1, the weight of the inversion loss; 0 trains without the target.
        conditioning_weight: alpha2, the weight of the conditioning loss.
        pac: rows that the critic judges together.
        gradient_penalty: weight of WGAN-GP's penalty.
        generator_dim: widths of the generator's residual layers.
        discriminator_dim: widths of the critic's hidden layers.
        dropout: share of the critic's hidden units dropped.
        temperature: of the Gumbel softmax.
        balance: how often a class is drawn: by the logarithm of its frequency (CTGAN), evenly, or by its frequency.
    """

    owner: ClassVar[str] = "the generator"

    iterations: int = 1000
    batch_size: int = 100
    discriminator_steps: int = 2
    generator_learning_rate: float = 1e-3
    generator_decay: float = 1e-6
    discriminator_learning_rate: float = 1e-3
    discriminator_decay: float = 1e-7
    beta1: float = 0.5
    beta2: float = 0.9
    latent_dim: int = 256
    inversion_weight: float = 1.0
    conditioning_weight: float = 1.0
    pac: int = 1
    gradient_penalty: float = 10.0
    generator_dim: tuple[int, ...] = (256, 256)
    discriminator_dim: tuple[int, ...] = (256, 256)
    dropout: float = 0.0
    temperature: float = 0.2
    balance: Balance = "log"

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        super().__post_init__()
        self.at_least(1, "iterations", "batch_size", "discriminator_steps", "latent_dim", "pac")
        self.above_zero("generator_learning_rate", "discriminator_learning_rate", "temperature")
        self.at_least(0, "generator_decay", "discriminator_decay", "gradient_penalty")
        self.at_least(0, "inversion_weight", "conditioning_weight")
        self.below_one("beta1", "beta2", "dropout")
        self.widths("generator_dim", "discriminator_dim")
        if self.batch_size % self.pac:
            raise UsageError(f"batch_size must be a multiple of pac ({self.pac}), got {self.batch_size}")
