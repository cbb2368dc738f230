"""Settings of the conditional GAN (thesis Table 4.4)."""

from dataclasses import dataclass
from typing import Literal, get_args

from lightleak.core.errors import UsageError

Balance = Literal["log", "uniform", "empirical"]


@dataclass(frozen=True)
class GANConfig:
    """How the generator is trained.

    Defaults were chosen on public rows alone, by whether the generator learns its condition
    (``configs/tune-plgmi-generator.yaml``). Those of thesis Table 5.4 are in
    `lightleak.reproductions.thesis.settings`.

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
        balance: how often a class is drawn: by the logarithm of its frequency (CTGAN), evenly, or as often as it is.
    """

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
        whole = ("iterations", "batch_size", "discriminator_steps", "latent_dim", "pac")
        for name in whole:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name in ("generator_learning_rate", "discriminator_learning_rate", "temperature"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0, got {getattr(self, name)!r}")
        weights = ("generator_decay", "discriminator_decay", "inversion_weight", "conditioning_weight")
        for name in (*weights, "gradient_penalty"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} must be at least 0, got {getattr(self, name)!r}")
        for name in ("beta1", "beta2", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 0 and below 1, got {getattr(self, name)!r}")
        for name in ("generator_dim", "discriminator_dim"):
            widths = getattr(self, name)
            if not widths or any(not isinstance(width, int) or width < 1 for width in widths):
                raise UsageError(f"{name} must be widths of at least 1, such as [256, 256], got {widths!r}")
        if self.batch_size % self.pac:
            raise UsageError(f"batch_size must be a multiple of pac ({self.pac}), got {self.batch_size}")
        if self.balance not in get_args(Balance):
            raise UsageError(f"balance must be one of {', '.join(get_args(Balance))}, got {self.balance!r}")
