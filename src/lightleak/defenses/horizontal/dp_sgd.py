"""DP-SGD: every row's gradient is clipped, the sum noised, and the privacy that is spent accounted for."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal.defense import check_number, with_draws
from lightleak.defenses.horizontal.opacus_parts import opacus_parts
from lightleak.defenses.horizontal.per_sample import clipped_mean, per_sample_gradients
from lightleak.defenses.horizontal.poisson import PoissonDataModule
from lightleak.defenses.horizontal.private_training import PrivateTraining
from lightleak.defenses.horizontal.protectable import check_protectable
from lightleak.defenses.horizontal.training_defense import TRAINING_DEFENSES, DefendedTraining, TrainingDefense
from lightleak.targets.classifier import TabularClassifier

Accountant = Literal["rdp", "prv"]


@TRAINING_DEFENSES.register(
    "dp_sgd",
    Facts(
        needs=(
            "The extra `dp`, and a network whose rows do not meet: BatchNorm is refused.",
            "Either `noise_multiplier` or `target_epsilon`, and a `delta` below one over the training rows.",
            "Epsilon is about the weights of the whole training with its Poisson batches. One update whose batch the "
            "server knows has an epsilon of its own, `release_epsilon`, which may be larger.",
        ),
    ),
)
@dataclass(frozen=True)
class DPSGD(TrainingDefense):
    """Differentially private SGD (Abadi et al. 2016, Algorithm 1) through opacus.

    A step's gradient is ``(sum of clipped row gradients + noise_multiplier * max_grad_norm * N(0, 1)) / B``, with B the
    expected batch size. Batches are drawn by Poisson sampling, which the accountant reckons with. Epsilon holds for
    adding or removing one row, for the weights of all steps together, against who does not know the seed.

    Attributes:
        noise_multiplier: standard deviation of the noise in units of ``max_grad_norm``; None where ``target_epsilon``
            decides; 0 clips only, and epsilon is infinite.
        target_epsilon: epsilon that the whole planned training may spend; None where ``noise_multiplier`` decides.
        max_grad_norm: largest Euclidean norm of a row's gradient over all parameters.
        delta: of the guarantee; below one over the number of rows.
        accountant: ``rdp`` (Rényi, quick) or ``prv`` (numerical composition, tighter), as opacus has them.

    Raises:
        UsageError: a value out of range, or not exactly one of noise multiplier and target epsilon.
    """

    name: ClassVar[str] = "dp_sgd"
    citation: ClassVar[str] = "Abadi et al., Deep Learning with Differential Privacy, CCS 2016"

    noise_multiplier: float | None = None
    target_epsilon: float | None = None
    max_grad_norm: float = 1.0
    delta: float = 1e-5
    accountant: Accountant = "rdp"

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.target_epsilon is None):
            raise UsageError(
                "dp_sgd: give either noise_multiplier or target_epsilon, "
                f"got {self.noise_multiplier!r} and {self.target_epsilon!r}"
            )
        if self.noise_multiplier is not None:
            check_number("dp_sgd: noise_multiplier", self.noise_multiplier)
        if self.target_epsilon is not None:
            check_number("dp_sgd: target_epsilon", self.target_epsilon, above_low=True)
        check_number("dp_sgd: max_grad_norm", self.max_grad_norm, above_low=True)
        check_number("dp_sgd: delta", self.delta, high=0.5, above_low=True)
        if self.accountant not in get_args(Accountant):
            known = ", ".join(get_args(Accountant))
            raise UsageError(f"dp_sgd: accountant must be one of {known}, got {self.accountant!r}")

    def epsilon(self, sample_rate: float, steps: int) -> float:
        """Epsilon at `delta` that ``steps`` steps spend, an upper bound; 0 for no step, infinite without noise.

        Args:
            sample_rate: probability of a row to enter a step's batch.
            steps: optimiser steps.

        Raises:
            UsageError: the noise multiplier is not decided yet (see `resolved`).
            UnsupportedError: opacus is not installed.
        """
        noise = self._noise()
        if steps == 0 or noise == 0:
            return 0.0 if steps == 0 else math.inf
        accountant = opacus_parts().accountants.create_accountant(self.accountant)
        accountant.history = [(noise, sample_rate, steps)]
        with warnings.catch_warnings():
            # At an end of its range of orders the bound holds, but could be tighter.
            warnings.filterwarnings("ignore", message="Optimal order")
            return float(accountant.get_epsilon(delta=self.delta))

    def release_epsilon(self) -> float:
        """Epsilon at `delta` of one update for a server that knows which rows it was computed from.

        Nothing is sampled from its point of view, so that this may exceed the epsilon of a whole training, which counts
        on random batches. It holds for adding or removing one row of the batch; exact for the Gaussian mechanism (Balle
        and Wang 2018, Theorem 8).

        Raises:
            UsageError: the noise multiplier is not decided yet (see `resolved`).

        >>> round(DPSGD(noise_multiplier=1.0).release_epsilon(), 2)
        4.38
        """
        noise = self._noise()
        if noise == 0:
            return math.inf

        def excess(epsilon: float) -> float:
            below = np.exp(epsilon + log_ndtr(-1 / (2 * noise) - epsilon * noise))
            return float(ndtr(1 / (2 * noise) - epsilon * noise) - below) - self.delta

        if excess(0.0) <= 0:
            return 0.0
        enough = (1 / noise + math.sqrt(2 * math.log(1 / self.delta))) ** 2  # above Mironov's bound by Rényi orders
        return float(brentq(excess, 0.0, enough))

    def resolved(self, sample_rate: float, steps: int) -> "DPSGD":
        """The same with its noise multiplier decided: the smallest that opacus finds for ``target_epsilon``.

        Args:
            sample_rate: probability of a row to enter a step's batch.
            steps: optimiser steps that are planned.

        Raises:
            UsageError: no noise is strong enough.
            UnsupportedError: opacus is not installed.
        """
        if self.noise_multiplier is not None:
            return self
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Optimal order")
                noise = opacus_parts().accountant_utils.get_noise_multiplier(
                    target_epsilon=self.target_epsilon,
                    target_delta=self.delta,
                    sample_rate=sample_rate,
                    steps=steps,
                    accountant=self.accountant,
                    epsilon_tolerance=min(0.01, 0.01 * (self.target_epsilon or 1)),
                )
        except ValueError as error:
            raise UsageError(
                f"dp_sgd: no noise gives target_epsilon {self.target_epsilon} at delta {self.delta} in {steps} steps "
                f"of sample rate {sample_rate:g}: {error}"
            ) from error
        return replace(self, noise_multiplier=float(noise), target_epsilon=None)

    def prepare(self, model: TabularClassifier, data: TableDataModule, seed: int) -> DefendedTraining:
        """See `TrainingDefense.prepare`; the Trainer's settings are checked when training starts.

        Raises:
            UnsupportedError: a layer that cannot be protected, or opacus is not installed.
            UsageError: ``delta`` is not below one over the number of training rows.
        """
        n_rows = len(data.train_indices)
        if self.delta * n_rows >= 1:
            raise UsageError(f"dp_sgd: delta must be below 1/{n_rows} (one over the training rows), got {self.delta}")
        check_protectable(model.network, data.encoder.layout.width, model.loss_name)
        batches = PoissonDataModule(data, seed)
        privacy = PrivateTraining(self, batches.sampler, seed)
        model.wrap_optimizer = privacy.wrap
        return DefendedTraining(batches, [privacy], self)

    def client_gradient(
        self,
        network: nn.Module,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        draws: torch.Generator,
        loss: str = "cross_entropy",
    ) -> dict[str, Tensor]:
        """See `TrainingDefense.client_gradient`; B is the number of rows given. Needs no opacus.

        Raises:
            UsageError: the noise multiplier is not decided yet (see `resolved`).
        """
        scale = self._noise() * self.max_grad_norm / len(inputs)
        rows = per_sample_gradients(network, parameters, buffers, inputs, labels, loss)
        mean = clipped_mean(rows, self.max_grad_norm)
        return {name: g + scale * torch.randn(g.shape, generator=own).to(g) for name, g, own in with_draws(mean, draws)}

    @property
    def strength(self) -> float:
        """Target epsilon (less is stronger) where it is given, else the noise multiplier."""
        return self._noise() if self.target_epsilon is None else self.target_epsilon

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        level = (
            f"noise multiplier {self.noise_multiplier:g}"
            if self.target_epsilon is None
            else (f"epsilon {self.target_epsilon:g} at delta {self.delta:g}")
        )
        return f"DP-SGD, {level}, rows clipped to norm {self.max_grad_norm:g}"

    def _noise(self) -> float:
        if self.noise_multiplier is None:
            raise UsageError(
                "dp_sgd: target_epsilon decides the noise only once sample rate and steps are known; "
                "call resolved(sample_rate, steps) first"
            )
        return self.noise_multiplier
