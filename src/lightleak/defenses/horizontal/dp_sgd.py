"""DP-SGD: each row's gradient is clipped and the sum noised; `privacy_accounting` counts the epsilon."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal.defense import KnownTo, with_draws
from lightleak.defenses.horizontal.per_sample import clipped_mean, per_sample_gradients
from lightleak.defenses.horizontal.poisson import PoissonSampler
from lightleak.defenses.horizontal.privacy_accounting import PrivacyAccounting
from lightleak.defenses.horizontal.private_training import PrivateTraining
from lightleak.defenses.horizontal.protectable import check_protectable
from lightleak.defenses.horizontal.training_defense import TRAINING_DEFENSES, DefendedTraining, TrainingDefense
from lightleak.targets.classifier import TabularClassifier


@TRAINING_DEFENSES.register("dp_sgd")
@dataclass(frozen=True)
class DPSGD(PrivacyAccounting, TrainingDefense):
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
        accountant: ``rdp`` (Rényi, quick) or ``prv`` (numerical composition, tighter), as opacus has them. Where the
            epsilon of ``rdp`` is above 50, or smaller, it stands for ``prv`` too.

    Raises:
        UsageError: a value out of range, or not exactly one of noise multiplier and target epsilon.

    Needs:
        * The extra ``dp``, and a network whose rows do not meet: BatchNorm is refused.
        * Either ``noise_multiplier`` or ``target_epsilon``, and a ``delta`` below one over the training rows.
        * In FedSGD epsilon is about the weights of the whole training with its Poisson batches. One update whose batch
          the server knows has an epsilon of its own, ``release_epsilon``, which may be larger.
        * In FedAvg it acts on local steps (``point: steps``) and counts on no sampling: epsilon is about all local
          steps of a row, in every round that its client takes part in, with its gradient or without it in the same
          batches.
    """

    name: ClassVar[str] = "dp_sgd"
    citation: ClassVar[str] = "Abadi et al., Deep Learning with Differential Privacy, CCS 2016"
    known_to: ClassVar[KnownTo] = {"exact_joint": {}, "exact_fedavg": {}}

    def prepare(self, model: TabularClassifier, data: TableDataModule, seed: int) -> DefendedTraining:
        """See `TrainingDefense.prepare`; the Trainer's settings are checked when training starts.

        Raises:
            UnsupportedError: a layer that cannot be protected, or opacus is not installed.
            UsageError: ``delta`` is not below one over the number of training rows.
        """
        self.check_client(model.network, data.encoder.layout.width, model.loss_name, len(data.train_indices))
        sampler = PoissonSampler(len(data.train_indices), data.batch_size, derive_seed(seed, "train"))
        privacy = PrivateTraining(self, sampler, seed)
        model.wrap_optimizer = privacy.wrap
        return DefendedTraining(data.drawn_by(sampler), [privacy], self)

    def check_client(self, network: nn.Module, width: int, loss: str, n_rows: int) -> None:
        """See `TrainingDefense.check_client`; ``delta`` must be below one over the number of training rows."""
        if self.delta * n_rows >= 1:
            raise UsageError(f"dp_sgd: delta must be below 1/{n_rows} (one over the training rows), got {self.delta}")
        check_protectable(network, width, loss)

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
        scale = self.noise() * self.max_grad_norm / len(inputs)
        rows = per_sample_gradients(network, parameters, buffers, inputs, labels, loss)
        mean = clipped_mean(rows, self.max_grad_norm)
        return {name: g + scale * torch.randn(g.shape, generator=own).to(g) for name, g, own in with_draws(mean, draws)}

    @property
    def strength(self) -> float:
        """Target epsilon (less is stronger) where it is given, else the noise multiplier."""
        return self.noise() if self.target_epsilon is None else self.target_epsilon

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        level = (
            f"noise multiplier {self.noise_multiplier:g}"
            if self.target_epsilon is None
            else (f"epsilon {self.target_epsilon:g} at delta {self.delta:g}")
        )
        return f"DP-SGD, {level}, rows clipped to norm {self.max_grad_norm:g}"
