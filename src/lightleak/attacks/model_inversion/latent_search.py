"""Searches for latent vectors whose samples the target takes for the class asked for (thesis Algorithms 3 and 5).

They work on any conditional generator, bridge and target. All samples of all classes move together; a sample's loss
depends on its own latent vector alone, so neither its neighbors nor the size of a chunk change its result.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.generator import ConditionalGenerator
from lightleak.attacks.model_inversion.inversion_loss import InversionLoss, cross_entropy
from lightleak.attacks.settings import AttackSettings
from lightleak.core.arguments import whole_number
from lightleak.core.bounds import bounded
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.protocols.local_pass import in_mode

CHUNK = 2048
"""Samples that pass through the target at once: 0.1 GB of activations of an MLP 2048-1024-512-256."""

TensorMap = Callable[[Tensor], Tensor]


class Augmentation(Protocol):
    """A random change of the target's input, drawn apart from its use, so that chunks do not change what is drawn."""

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """What happens to ``n`` samples: tensors with ``n`` rows."""

    def apply(self, x: Tensor, *drawn: Tensor) -> Tensor:
        """The changed samples, differentiable."""


@dataclass(frozen=True)
class LatentProblem:
    """What a latent vector is judged by.

    Attributes:
        generator: makes samples of latent vectors and labels.
        bridge: maps samples to the target's input (f_inv of Algorithm 5).
        target: gives logits ``[n, n_classes]``.
        measure: loss of logits and labels, per sample.
    """

    generator: ConditionalGenerator
    bridge: TensorMap
    target: TensorMap
    measure: InversionLoss = cross_entropy

    def inputs(self, z: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        """The target's input ``[n, ...]`` for ``z [n, latent_dim]`` and ``labels [n]``; deterministic without noise."""
        return self.bridge(self.generator(z, labels, noise))

    def loss(self, z: Tensor, labels: Tensor, noise: Tensor | None = None) -> Tensor:
        """Inversion loss ``[n]``, in the mode (train or eval) the networks are in; the searches set eval mode."""
        return self.measure(self.target(self.inputs(z, labels, noise)), labels)

    def losses(self, z: Tensor, labels: Tensor, chunk: int = CHUNK) -> Tensor:
        """`loss` without gradient, in chunks of bounded memory and in eval mode."""
        with torch.no_grad(), self.evaluating():
            return torch.cat([self.loss(z[part], labels[part]) for part in chunks(len(z), chunk)])

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """``n`` latent vectors of the standard normal, where the generator's weights are.

        They are drawn on the CPU, in one piece: the same seed and ``n`` give the same vectors on any device.
        """
        like = next(chain(self.generator.parameters(), self.generator.buffers()), torch.empty(0))
        return torch.randn(n, self.generator.latent_dim, generator=generator).to(like)

    def start(self, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A random latent vector for each label, and the labels on the same device.

        Raises:
            UsageError: no labels, or labels that are no classes of the generator.
        """
        classes = self.generator.n_classes
        fits = labels.ndim == 1 and not labels.is_floating_point() and len(labels) > 0
        if not fits or labels.min() < 0 or labels.max() >= classes:
            raise UsageError(f"labels must be class indices [n] from 0 to {classes - 1}, got {labels.tolist()[:5]}")
        z = self.draw(len(labels), generator)
        return z, labels.to(z.device)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Networks in eval mode, as the statistics of a batch would couple its samples."""
        with ExitStack() as modes:
            for part in (self.generator, self.bridge, self.target):
                if isinstance(part, nn.Module):
                    modes.enter_context(in_mode(part, False))
            yield


@dataclass(frozen=True)
class LatentSearch:
    """What a search found.

    Attributes:
        z: ``[n, latent_dim]``.
        before: ``[n]``, loss of the vectors it started from.
        after: ``[n]``, loss of ``z``.
        evaluations: times the target was asked about each sample.
    """

    z: Tensor
    before: Tensor
    after: Tensor
    evaluations: int


@dataclass(frozen=True)
class GradientSearchConfig(AttackSettings):
    """Settings of Algorithm 5.

    Attributes:
        steps: steps of Adam. PLG-MI's published code takes 600 with a learning rate of 0.02, at six times the price.
        learning_rate: its learning rate.
        augmentations: augmented copies that a step's loss is averaged over, where an augmentation is given.
        keep_best: return the vector of the lowest unaugmented loss on the way; otherwise the last one, as the thesis.
        keep_norm: after each step scale each vector to the norm it was drawn with. The norm of a standard normal
            vector of d values is close to sqrt(d); free descent, which is the thesis's, leaves that shell.
        chunk: samples at once; bounds the memory.
    """

    owner: ClassVar[str] = "search 'gradient'"

    steps: int = bounded(100, ge=1)
    learning_rate: float = bounded(0.05, gt=0)
    augmentations: int = bounded(2, ge=1)
    keep_best: bool = True
    keep_norm: bool = False
    chunk: int = bounded(CHUNK, ge=1)


def random_search(problem: LatentProblem, labels: Tensor, generator: torch.Generator, tries: int = 1) -> LatentSearch:
    """The best of ``tries`` random vectors of each sample: one is the thesis's "random z", more a control.

    Args:
        problem: what a vector is judged by; it needs values only, so any target will work.
        labels: class of each sample, ``[n]``.
        generator: source of the vectors; the first try is the start of `gradient_search` with the same seed.
        tries: vectors per sample.

    Raises:
        UsageError: fewer than one try, or labels that are no classes of the generator.
    """
    whole_number("tries", tries)
    z, labels = problem.start(labels, generator)
    before = best = problem.losses(z, labels)
    for _ in range(tries - 1):
        other = problem.draw(len(labels), generator)
        loss = problem.losses(other, labels)
        z, best = keep_lower(z, best, other, loss)
    return LatentSearch(z, before, best, tries)


def gradient_search(
    problem: LatentProblem,
    labels: Tensor,
    generator: torch.Generator,
    config: GradientSearchConfig | None = None,
    augment: Augmentation | None = None,
) -> LatentSearch:
    """Adam on the latent vectors of all samples at once (thesis Algorithm 5; with ``augment`` Algorithm 3).

    Args:
        problem: what a vector is judged by.
        labels: class of each sample, ``[n]``.
        generator: source of the start vectors and of the augmentations.
        config: steps and options.
        augment: random change of the target's input.

    Raises:
        UnsupportedError: the target gives no gradient.
        UsageError: labels that are no classes of the generator.
    """
    config = config or GradientSearchConfig()
    start, labels = problem.start(labels, generator)
    before = problem.losses(start, labels, config.chunk)
    norm = start.norm(dim=1, keepdim=True)
    z, best_z, best = start.clone(), start, before
    optimizer = torch.optim.Adam([z], lr=config.learning_rate)
    copies = config.augmentations if augment else 0
    with problem.evaluating():
        for step in range(config.steps):
            drawn = [augment.draw(len(z), generator) for _ in range(copies)] if augment else []
            z.grad, loss = _gradient(problem, z, labels, config, augment, drawn)
            if config.keep_best and step:
                best_z, best = keep_lower(best_z, best, z, loss)
            optimizer.step()
            if config.keep_norm:
                z.mul_(norm / z.norm(dim=1, keepdim=True))
    after = problem.losses(z, labels, config.chunk)
    if config.keep_best:
        z, after = keep_lower(best_z, best, z, after)
    return LatentSearch(z, before, after, config.steps * max(copies, 1))


def _gradient(
    problem: LatentProblem,
    z: Tensor,
    labels: Tensor,
    config: GradientSearchConfig,
    augment: Augmentation | None,
    drawn: list[tuple[Tensor, ...]],
) -> tuple[Tensor, Tensor]:
    """Gradient of the (augmented) loss by ``z``, and the plain loss where the search keeps the best."""
    gradients, plain = [], []
    for part in chunks(len(z), config.chunk):
        leaf, wanted = z[part].detach().requires_grad_(), labels[part]
        with torch.enable_grad():
            inputs = problem.inputs(leaf, wanted)
            if augment:
                changed = torch.cat([augment.apply(inputs, *(each[part] for each in copy)) for copy in drawn])
                loss = problem.measure(problem.target(changed), wanted.repeat(len(drawn))) / len(drawn)
            else:
                loss = problem.measure(problem.target(inputs), wanted)
            total = loss.sum()  # not the mean: a sample's gradient depends on its own loss alone
        if not total.requires_grad:
            raise UnsupportedError("gradient search needs a target with gradients; search 'random' or 'tpe' does not")
        gradients.append(torch.autograd.grad(total, leaf)[0])
        if config.keep_best and augment:
            with torch.no_grad():
                loss = problem.measure(problem.target(inputs), wanted)
        plain.append(loss.detach())
    return torch.cat(gradients), torch.cat(plain)


def keep_lower(z: Tensor, loss: Tensor, other_z: Tensor, other_loss: Tensor) -> tuple[Tensor, Tensor]:
    """Of two vectors per sample the one with the lower loss; NaN counts as the highest."""
    lower = ~(other_loss >= loss) & ~other_loss.isnan()
    return torch.where(lower.unsqueeze(1), other_z, z), torch.where(lower, other_loss, loss)


def chunks(n: int, size: int) -> list[slice]:
    """Slices of at most ``size`` that cover ``n``.

    >>> chunks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
