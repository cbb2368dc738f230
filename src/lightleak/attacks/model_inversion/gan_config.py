"""Settings of the conditional GAN (thesis Table 4.4)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
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

    iterations: int = bounded(1000, ge=1)
    batch_size: int = bounded(100, ge=1)
    discriminator_steps: int = bounded(2, ge=1)
    generator_learning_rate: float = bounded(1e-3, gt=0)
    generator_decay: float = bounded(1e-6, ge=0)
    discriminator_learning_rate: float = bounded(1e-3, gt=0)
    discriminator_decay: float = bounded(1e-7, ge=0)
    beta1: float = bounded(0.5, ge=0, lt=1)
    beta2: float = bounded(0.9, ge=0, lt=1)
    latent_dim: int = bounded(256, ge=1)
    inversion_weight: float = bounded(1.0, ge=0)
    conditioning_weight: float = bounded(1.0, ge=0)
    pac: int = bounded(1, ge=1)
    gradient_penalty: float = bounded(10.0, ge=0)
    generator_dim: tuple[int, ...] = (256, 256)
    discriminator_dim: tuple[int, ...] = (256, 256)
    dropout: float = bounded(0.0, ge=0, lt=1)
    temperature: float = bounded(0.2, gt=0)
    balance: Balance = "log"

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        super().__post_init__()
        self.widths("generator_dim", "discriminator_dim")
        if self.batch_size % self.pac:
            raise UsageError(f"batch_size must be a multiple of pac ({self.pac}), got {self.batch_size}")
