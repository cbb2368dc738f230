"""`FederatedAveraging`: an in-process federation on a Lightning Trainer (McMahan et al. 2017, Algorithm 1)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import lightning
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES
from lightleak.defenses.horizontal.training_defense import TRAINING_DEFENSES, TrainingDefense
from lightleak.protocols.aggregate import weighted_mean
from lightleak.protocols.client_training import (
    LOSS,
    ClientDefense,
    ClientRun,
    Defend,
    LocalTraining,
    acting_defense,
    check_smallest_batch,
    run_client,
)
from lightleak.protocols.federated_data import ClientRows, FederatedData
from lightleak.protocols.local_pass import check_batch
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.spec import NetworkSpec


@dataclass(frozen=True)
class Round:
    """One communication round, as a callback finds it.

    Attributes:
        number: counted from 0.
        clients: numbers of the clients that took part, in the order in which the server drew them.
        runs: what each of them did, in the same order; each holds the weights and buffers before the round.
        groups: positions in ``clients`` of each aggregate that the server receives; None where it receives every
            client's own update.
    """

    number: int
    clients: tuple[int, ...]
    runs: tuple[ClientRun, ...]
    groups: tuple[tuple[int, ...], ...] | None


class FederatedAveraging(TabularClassifier):
    """Trains a network by federated averaging on `FederatedData`: an epoch of the Trainer is one round.

    In every round the drawn clients train on their own rows from the server's weights
    (`lightleak.protocols.client_training`); the server moves its weights by the mean of their deltas, weighted by rows,
    and its buffers (BatchNorm's running statistics) to the mean of theirs. All draws come from seed, round and client,
    so a run resumed from a checkpoint gives bit-identical results.

    Logged per round: ``train/loss``, the mean over the clients' rows and local steps; and as for every
    `TabularClassifier` ``val/loss``, ``val/accuracy``, ``val/auroc`` and the same under ``test/``.

    Attributes:
        local_training: settings of the clients' SGD.
        training_mode: whether clients train in train mode.
        defense: what clients do to their updates; None where nothing.
        defend: where it acts.
        group_size: clients per secure aggregate; None: the server receives every client's own update.
        round: the last round, from its `training_step` until the next; None before the first. Callbacks read it in
            ``on_train_batch_end``, when the server has already made its step.
    """

    def __init__(
        self,
        network: NetworkSpec | Mapping[str, Any],
        training: LocalTraining | Mapping[str, Any],
        *,
        seed: int,
        training_mode: bool = True,
        defense: ClientDefense | Mapping[str, Any] | None = None,
        defend: Defend = "update",
        group_size: int | None = None,
    ) -> None:
        """Build the network and its metrics.

        Args:
            network: specification (or its ``to_dict``).
            training: settings of the clients' SGD (or their dictionary).
            seed: root seed of initial weights, orders of rows, dropout and defenses.
            training_mode: clients train in train mode (batch statistics, dropout) rather than in eval mode.
            defense: what clients do to their updates (or its ``{"name": ..., "options": {...}}``).
            defend: the defense acts on the finished ``update`` or on the gradient of each of the local ``steps``.
            group_size: the clients of a round are summed in groups of this many before the server sees anything
                (secure aggregation).

        Raises:
            UsageError: an unknown name or option, or a group of fewer than two clients.
        """
        local = LocalTraining(**training) if isinstance(training, Mapping) else training
        super().__init__(network, local.optimizer, LOSS, seed=seed)
        self.automatic_optimization = False
        self.training_mode, self.seed = training_mode, seed
        self.local_training = local
        made = _made(defense) if isinstance(defense, Mapping) else defense
        self.defense, self.defend = acting_defense(made, defend), defend
        if group_size is not None and group_size < 2:
            raise UsageError(f"group_size must be at least 2, so that one update hides in another; got {group_size}")
        self.group_size = group_size
        self.round: Round | None = None
        named = None if self.defense is None else {"name": self.defense.name, "options": self.defense.options()}
        self.save_hyperparameters(
            {
                "training": asdict(local),
                "training_mode": training_mode,
                "defense": named,
                "defend": defend,
                "group_size": group_size,
            }
        )

    def setup(self, stage: str) -> None:
        """Refuse what cannot be served, before the first round.

        Raises:
            UsageError: other data than `FederatedData`, several processes, mixed precision, a defense of the server's
                step, rows that the network cannot take, or clients that cannot be cut into groups.
            UnsupportedError: a network that the defense cannot protect.
        """
        if stage != "fit":
            return
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, FederatedData):
            raise UsageError(
                "federated averaging trains on clients: call trainer.fit(module, datamodule=FederatedData(...)), got "
                f"{type(data).__name__}"
            )
        self.check_training(self.trainer, data)

    def check_training(self, trainer: lightning.Trainer, data: FederatedData) -> None:
        """Refuse what `setup` refuses, before anything trains; errors as there."""
        _check_trainer(trainer)
        if self.wrap_optimizer is not None:
            raise UsageError(
                "in a federation the clients defend what they send: FederatedAveraging(defense=...), not wrap_optimizer"
            )
        assert self.spec is not None  # always built from a specification
        check_batch(self.spec, *data.train.tensors)
        if isinstance(self.defense, TrainingDefense):
            self.defense.check_client(self.network, self.spec.layout.width, LOSS, sum(data.sizes))
        for n_rows in sorted(set(data.sizes)):
            check_smallest_batch(self.network, self.spec.layout.width, n_rows, self.local_training, self.training_mode)
        if self.group_size is not None and data.n_sampled % self.group_size:
            raise UsageError(f"group_size must divide the clients of a round, {data.n_sampled}; got {self.group_size}")

    def training_step(self, batch: list[ClientRows], batch_index: int) -> None:  # type: ignore[override]
        """One round: every drawn client trains, the server averages."""
        self.round = self._train_clients(batch)
        runs = self.round.runs
        self._average(self.round)
        rows = [len(run.labels) for run in runs]
        loss = sum(run.trained.loss * n for run, n in zip(runs, rows, strict=True)) / sum(rows)
        self.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The server's step: SGD of rate 1 on the mean update, which makes a round a step of the Trainer."""
        return torch.optim.SGD(self.network.parameters(), lr=1.0)

    def _train_clients(self, batch: list[ClientRows]) -> Round:
        number = self.current_epoch
        parameters = {name: value.detach().clone() for name, value in self.network.named_parameters()}
        buffers = {name: value.clone() for name, value in self.network.named_buffers()}
        runs = tuple(
            run_client(
                self.network,
                parameters,
                buffers,
                inputs,
                labels,
                self.local_training,
                seed=derive_seed(self.seed, "client", number, client),
                training_mode=self.training_mode,
                defense=self.defense,
                defend=self.defend,
            )
            for client, inputs, labels in batch
        )
        positions, size = tuple(range(len(runs))), self.group_size
        groups = None if size is None else tuple(positions[i : i + size] for i in positions[::size])
        return Round(number, tuple(rows.client for rows in batch), runs, groups)

    @torch.no_grad()
    def _average(self, done: Round) -> None:
        delta = _mean(done, [run.trained.delta for run in done.runs])
        for name, parameter in self.network.named_parameters():
            parameter.grad = -delta[name]
        optimizer = self.optimizers()
        optimizer.step()  # type: ignore[union-attr]
        optimizer.zero_grad()  # type: ignore[union-attr]
        after = _mean(done, [run.trained.buffers for run in done.runs])
        for name, buffer in self.network.named_buffers():
            buffer.copy_(after[name])


def _made(defense: Mapping[str, Any]) -> ClientDefense:
    name = str(defense.get("name"))
    kind: Any = TRAINING_DEFENSES.get(name) if name in TRAINING_DEFENSES else UPDATE_DEFENSES.get(name)
    try:
        made: ClientDefense = kind(**defense.get("options", {}))
        return made
    except TypeError as error:
        raise UsageError(f"defense {defense.get('name')!r} does not take these options: {error}") from error


def _mean(done: Round, named: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What the server makes of its clients' tensors: their mean, or the mean of the aggregates that it receives."""
    rows = [len(run.labels) for run in done.runs]
    if done.groups is None:
        return weighted_mean(named, rows)
    sums = [weighted_mean([named[i] for i in group], [rows[i] for i in group]) for group in done.groups]
    return weighted_mean(sums, [sum(rows[i] for i in group) for group in done.groups])


def _check_trainer(trainer: lightning.Trainer) -> None:
    if trainer.world_size > 1:
        raise UsageError(f"federated averaging holds all clients in one process, got {trainer.world_size} processes")
    if isinstance(trainer.precision_plugin, MixedPrecision):
        raise UsageError(
            f"precision must be 32-true, 64-true or bf16-true, got {trainer.precision_plugin.precision!r}: clients "
            "train without mixed precision"
        )
