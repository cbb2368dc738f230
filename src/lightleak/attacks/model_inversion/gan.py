"""The training of PLG-MI's conditional GAN (thesis Algorithm 2, Eq. 4.3), for any generator, critic and target."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import lightning
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.critic import Critic
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.inversion_loss import max_margin
from lightleak.attacks.model_inversion.released import TargetOfSample
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.targets.split.ranks import mean_gradients, summed

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""A stochastic augmentation of generated samples before the target sees them (f_aug)."""

LOSSES = ("generator", "discriminator", "inversion", "conditioning")
EPOCH = 100
"""Iterations between two checkpoints: what a kill can cost at most."""


@dataclass(frozen=True)
class Draw:
    """All that is random in one step of one rank."""

    labels: Tensor
    z: Tensor
    noise: Tensor | None
    masks: tuple[Tensor, ...]


@dataclass(frozen=True)
class CriticDraw:
    """All that is random in one critic step of one rank: fakes, real rows, the points between them."""

    fake: Draw
    real: Tensor
    real_labels: Tensor
    real_masks: tuple[Tensor, ...]
    mix: Tensor
    mix_masks: tuple[Tensor, ...]


class ConditionalGAN(lightning.LightningModule):
    """Trains a conditional generator so that its samples look like the rows, and like their class to the target.

    An iteration is ``discriminator_steps`` critic steps and one generator step with the loss
    ``L_G + alpha1 L_inv + alpha2 L_cond``. Every random number comes from the seed and the iteration, drawn for the
    whole batch; ranks take their rows of it. So runs repeat bit for bit, resume anywhere, and two ranks train to the
    losses of one with the same ``batch_size``.

    Attributes:
        generator: what is trained, and kept.
        critic: its opponent.
        config: the settings.
        history: ``[iterations, 4]`` losses (`LOSSES`) of the iterations done.
        done: iterations done.
    """

    history: Tensor

    def __init__(
        self,
        generator: ConditionalGenerator,
        critic: Critic,
        sampler: ClassSampler,
        config: GANConfig,
        classify: nn.Module | None = None,
        augment: Augment | None = None,
        augmentations: int = 1,
        seed: int = 0,
    ) -> None:
        """Set up generator, critic and data.

        Args:
            generator: conditional generator.
            critic: judges samples with their class.
            sampler: pseudo-labeled public rows in generator space.
            config: settings.
            classify: from samples in generator space to the target's logits; needed where ``inversion_weight`` is not
                0. Its weights never change.
            augment: applied to samples before ``classify``.
            augmentations: draws of ``augment`` that the inversion loss is averaged over.
            seed: root of every random number.

        Raises:
            UsageError: an inversion loss without a target.
        """
        super().__init__()
        if config.inversion_weight and classify is None:
            raise UsageError(f"inversion_weight {config.inversion_weight} needs a target, got none")
        self.automatic_optimization = False
        self.generator, self.critic, self.config, self.seed = generator, critic, config, seed
        self.augment, self.augmentations = augment, augmentations
        self.done = 0
        self.register_buffer("history", torch.zeros(config.iterations, len(LOSSES)))
        # In a tuple: neither the target nor the rows belong in a checkpoint.
        self._given: tuple[ClassSampler, nn.Module | None] = (sampler, classify)
        if classify is not None:
            classify.requires_grad_(False).eval()

    @property
    def epochs(self) -> int:
        """Epochs of `EPOCH` iterations that a Trainer must run."""
        return math.ceil(self.config.iterations / EPOCH)

    def train_dataloader(self) -> DataLoader[int]:
        """Numbers of iterations; there is nothing else to load."""
        return DataLoader(_Iterations(self), batch_size=None, generator=torch.Generator())

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam for the generator and for the critic (thesis Table 5.4)."""
        config = self.config

        def adam(player: nn.Module, rate: float, decay: float) -> torch.optim.Optimizer:
            betas = config.beta1, config.beta2
            return torch.optim.Adam(player.parameters(), rate, betas, weight_decay=decay, fused=True)

        return [
            adam(self.generator, config.generator_learning_rate, config.generator_decay),
            adam(self.critic, config.discriminator_learning_rate, config.discriminator_decay),
        ]

    def on_fit_start(self) -> None:
        """Bring rows and target to the device.

        Raises:
            UsageError: the batch cannot be shared evenly by the ranks.
        """
        sampler, classify = self._given
        sampler.to(self.device)
        if classify is not None:
            classify.to(self.device)
            # A bridge keeps its float64 statistics: large numbers in float32 are not those that it decodes.
            network = classify.network if isinstance(classify, TargetOfSample) else classify
            network.to(dtype=self.history.dtype)
        if self.config.batch_size % (self.config.pac * self._ranks):
            raise UsageError(
                f"batch_size must be a multiple of pac x ranks ({self.config.pac} x {self._ranks}), "
                f"got {self.config.batch_size}"
            )

    def training_step(self, batch: int, batch_index: int) -> None:
        """One iteration: critic steps, then a generator step."""
        generator_optimizer, critic_optimizer = cast(Sequence[Any], self.optimizers())
        random = torch.Generator(self.device).manual_seed(derive_seed(self.seed, "iteration", self.done))
        for _ in range(self.config.discriminator_steps):
            loss, shown = self.critic_loss(self.draw_critic(random))
            self._descend(critic_optimizer, loss, self.critic)
        parts = self.generator_losses(self.draw(random), random)
        config = self.config
        total = (
            parts["generator"]
            + config.inversion_weight * parts["inversion"]
            + config.conditioning_weight * parts["conditioning"]
        )
        self._descend(generator_optimizer, total, self.generator)
        values = torch.stack([{**parts, "discriminator": shown}[name].detach() for name in LOSSES])
        self.history[self.done] = summed(values) / self._ranks if self._ranks > 1 else values
        self.done += 1

    def critic_loss(self, draw: CriticDraw) -> tuple[Tensor, Tensor]:
        """The critic's loss with its penalty, and without it (what CTGAN calls the discriminator loss)."""
        with torch.no_grad():
            fake = self.generator(draw.fake.z, draw.fake.labels, draw.fake.noise)
        masks = [torch.cat(pair) for pair in zip(draw.fake.masks, draw.real_masks, strict=True)]
        scores = self.critic.score(torch.cat([fake, draw.real]), torch.cat([draw.fake.labels, draw.real_labels]), masks)
        of_fake, of_real = scores.chunk(2)
        wasserstein = of_fake.mean() - of_real.mean()
        penalty = self.critic.penalty(fake, draw.fake.labels, draw.real, draw.real_labels, draw.mix, draw.mix_masks)
        return wasserstein + self.config.gradient_penalty * penalty, wasserstein

    def generator_losses(self, draw: Draw, random: torch.Generator) -> dict[str, Tensor]:
        """L_G (Eq. 4.1), L_inv (Eq. 3.5) and L_cond (Eq. 3.10), each a mean over rows."""
        raw = self.generator.raw(draw.z, draw.labels)
        sample = self.generator.activate(raw, draw.noise)
        nothing = raw.new_zeros(())
        carried = self.generator.label_logits(raw)
        return {
            "generator": -self.critic.score(sample, draw.labels, draw.masks).mean(),
            "inversion": self._inversion(sample, draw.labels, random) if self.config.inversion_weight else nothing,
            "conditioning": nothing if carried is None else F.cross_entropy(carried, draw.labels),
        }

    def draw(self, random: torch.Generator) -> Draw:
        """Classes, latent vectors, noise and masks of this rank's rows."""
        inputs = self._draw_inputs(random)
        return self._of_rank(inputs, self.critic.draw_masks(self._packs, random))

    def draw_critic(self, random: torch.Generator) -> CriticDraw:
        """As `draw`, with real rows of the same classes in another order."""
        inputs = self._draw_inputs(random)
        order = torch.randperm(len(inputs[0]), generator=random, device=random.device)
        real_labels = inputs[0][order]
        real = self._given[0].draw_rows(real_labels, random)
        masks = [self.critic.draw_masks(self._packs, random) for _ in range(3)]
        mix = torch.rand(self._packs, generator=random, device=random.device)
        real_masks, mix_masks = (tuple(map(self._own, drawn)) for drawn in masks[1:])
        fake = self._of_rank(inputs, masks[0])
        return CriticDraw(fake, self._own(real), self._own(real_labels), real_masks, self._own(mix), mix_masks)

    def losses(self) -> dict[str, list[float]]:
        """The curves of Figures A.3 to A.12: one value per iteration done, with the iteration under ``iteration``."""
        done = self.history[: self.done].cpu()
        return {"iteration": list(range(1, self.done + 1))} | {
            name: done[:, i].tolist() for i, name in enumerate(LOSSES)
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the number of iterations done."""
        checkpoint["iterations_done"] = self.done

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the number of iterations done."""
        self.done = int(checkpoint["iterations_done"])

    def _draw_inputs(self, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor | None]:
        """Classes, latent vectors and noise of the whole batch."""
        n = self.config.batch_size
        labels = self._given[0].draw_labels(n, random)
        z = torch.randn(n, self.generator.latent_dim, generator=random, device=random.device)
        return labels, z, self.generator.draw_noise(n, random)

    def _of_rank(self, inputs: tuple[Tensor, Tensor, Tensor | None], masks: tuple[Tensor, ...]) -> Draw:
        """This rank's part of what was drawn for the whole batch, in the module's precision."""
        labels, z, noise = inputs
        own = None if noise is None else self._own(noise)
        return Draw(self._own(labels), self._own(z), own, tuple(map(self._own, masks)))

    def _inversion(self, sample: Tensor, labels: Tensor, random: torch.Generator) -> Tensor:
        classify = self._given[1]
        assert classify is not None  # checked on construction
        views = [self.augment(sample, random) for _ in range(self.augmentations)] if self.augment else [sample]
        return torch.stack([max_margin(classify(view), labels).mean() for view in views]).mean()

    def _descend(self, optimizer: Any, loss: Tensor, module: nn.Module) -> None:
        """A step along the gradient, averaged over ranks.

        The two players' graphs overlap, so DDP's hooks, which expect every parameter once per pass, are not used.
        """
        parameters = list(module.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        if self._ranks > 1:
            mean_gradients(parameters)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    @property
    def _packs(self) -> int:
        return self.config.batch_size // self.critic.pac

    @property
    def _ranks(self) -> int:
        return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1

    def _own(self, drawn: Tensor) -> Tensor:
        """This rank's part of rows or packs, numbers in the module's precision."""
        size = len(drawn) // self._ranks
        rank = dist.get_rank() if self._ranks > 1 else 0
        part = drawn[rank * size : (rank + 1) * size]
        return part.to(self.history.dtype) if part.is_floating_point() else part


class _Iterations(IterableDataset[int]):
    """The iterations of one epoch. Iterable: Lightning must not divide them among ranks."""

    def __init__(self, module: ConditionalGAN) -> None:
        self.module = module

    def __iter__(self) -> Iterator[int]:
        first = self.module.done
        yield from range(first, min(first + EPOCH, self.module.config.iterations))
