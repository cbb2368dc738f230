"""What a FedAvg client computes (Dimitrov et al. 2022, Algorithm 1): SGD over its own rows, and the defense of it.

One implementation for `lightleak.protocols.fedavg.client_update`, the federated trainer and replay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed, fresh_generator, generator
from lightleak.defenses.horizontal.defense import NoDefense, UpdateDefense
from lightleak.defenses.horizontal.training_defense import TrainingDefense
from lightleak.protocols.local_pass import in_mode
from lightleak.targets.functional import criterion, functional_call
from lightleak.targets.normalization import frozen_statistics
from lightleak.targets.optimizers import OptimizerConfig

Defend = Literal["update", "steps"]

ClientDefense = UpdateDefense | TrainingDefense
"""What a client can do to what it sends; a `TrainingDefense` acts on local steps."""

LOSS = "cross_entropy"


@dataclass(frozen=True)
class LocalTraining:
    """What a client does between receiving the weights and sending them back: SGD on its own rows.

    Attributes:
        epochs: passes over the client's rows (E).
        batch_size: rows per step (m); the last batch of an epoch may be smaller.
        learning_rate: local learning rate (eta).
        momentum: of the local SGD; its state is reset every round.
        weight_decay: of the local SGD.
        reshuffle: draw a new order for every epoch; False keeps the batches of the first.

    Raises:
        UsageError: a value out of range.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    reshuffle: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        _ = self.optimizer  # it checks its own settings

    @property
    def optimizer(self) -> OptimizerConfig:
        """The local SGD."""
        return OptimizerConfig("sgd", self.learning_rate, self.momentum, self.weight_decay)

    def steps(self, n_rows: int) -> int:
        """Optimizer steps of a client with ``n_rows`` rows (U).

        >>> LocalTraining(epochs=10, batch_size=5).steps(50)
        100
        """
        return self.epochs * -(-n_rows // self.batch_size)


@dataclass(frozen=True)
class TrainedClient:
    """What local training leaves.

    Attributes:
        delta: named parameters after the last step minus those before the first; of a `ClientRun` as they leave the
            client, defended.
        buffers: named buffers after the last step; no defense touches them.
        loss: mean over rows of all local steps' losses.
    """

    delta: dict[str, Tensor]
    buffers: dict[str, Tensor]
    loss: float


@dataclass(frozen=True)
class ClientRun:
    """One client's part in one round: what came in, how it trained and what went out, on the network's device.

    Attributes:
        parameters: named parameters before.
        buffers: named buffers before.
        inputs: ``[n, d]``.
        labels: class indices ``[n]``.
        training: settings of the local SGD.
        training_mode: train mode (batch statistics, dropout) rather than eval mode.
        order: LongTensor ``[epochs, n]``, the order in which every epoch took the rows.
        dropout: seed of the forwards' draws.
        defense: the client's defense, if any.
        trained: what the training left.
    """

    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    inputs: Tensor
    labels: Tensor
    training: LocalTraining
    training_mode: bool
    order: Tensor
    dropout: int
    defense: ClientDefense | None
    trained: TrainedClient


def row_order(training: LocalTraining, n_rows: int, seed: int) -> Tensor:
    """The order in which every epoch takes the rows, LongTensor ``[epochs, n_rows]``; it depends on the seed alone.

    >>> row_order(LocalTraining(epochs=2, reshuffle=False), 3, seed=0).shape
    torch.Size([2, 3])
    """
    draws = generator(seed, "order")
    drawn = [torch.randperm(n_rows, generator=draws) for _ in range(training.epochs if training.reshuffle else 1)]
    return torch.stack(drawn).expand(training.epochs, n_rows).contiguous()


def run_client(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    training: LocalTraining,
    *,
    seed: int,
    training_mode: bool = True,
    defense: ClientDefense | None = None,
    defend: Defend = "update",
) -> ClientRun:
    """Train one client and defend what it sends.

    Args:
        network: the module; its weights, buffers and mode do not change.
        parameters: named parameters to begin with.
        buffers: all named buffers to begin with.
        inputs: ``[n, d]``, on the device of the parameters.
        labels: class indices ``[n]``.
        training: settings of the local SGD.
        seed: order of the rows, dropout and defense depend on nothing else.
        training_mode: train mode rather than eval mode.
        defense: the client's defense.
        defend: it is applied to the finished ``update``, in the scale of a gradient, or to the mean gradient of each of
            the local ``steps``.
    """
    order, dropout = row_order(training, len(inputs), seed), derive_seed(seed, "dropout")
    draws = generator(seed, "defense")
    rate, steps = training.learning_rate, 1 if defend == "steps" else training.steps(len(inputs))
    acting = defense.acting_at(rate, steps) if isinstance(defense, UpdateDefense) else defense
    in_steps = acting if defend == "steps" else None
    with in_mode(network, training_mode):
        trained = train_client(network, parameters, buffers, inputs, labels, training, order, dropout, in_steps, draws)
    if isinstance(acting, UpdateDefense) and defend == "update":
        trained = replace(trained, delta=_defended(trained.delta, acting, draws, rate * steps))
    return ClientRun(parameters, buffers, inputs, labels, training, training_mode, order, dropout, defense, trained)


def train_client(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    training: LocalTraining,
    order: Tensor,
    dropout: int,
    defense: ClientDefense | None = None,
    draws: torch.Generator | None = None,
) -> TrainedClient:
    """Local SGD (Algorithm 1, lines 4 to 9), in the mode of ``network`` and by plain autograd.

    Weights and buffers that ``network`` holds are neither read nor changed. In train mode BatchNorm layers normalize by
    the statistics of each local batch, and their running statistics move in the buffers that are returned.

    Args:
        network: the module; only its computation is used.
        parameters: named parameters to begin with.
        buffers: all named buffers to begin with.
        inputs: ``[n, d]``, on the device of the parameters.
        labels: class indices ``[n]``.
        training: settings of the local SGD.
        order: LongTensor ``[epochs, n]``, the order in which each epoch takes the rows.
        dropout: seed of every draw of a forward; torch's global generator is left alone.
        defense: applied to the mean gradient of every local step, or what makes that gradient of the step's rows.
        draws: the defense's generator.
    """
    measure = criterion(LOSS)
    values = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    held = {name: value.clone() for name, value in buffers.items()}
    optimizer = training.optimizer.build(values.values())
    total = torch.zeros((), dtype=torch.float64, device=inputs.device)
    batches = [rows for epoch in order.to(inputs.device) for rows in epoch.split(training.batch_size)]
    with torch.enable_grad(), fresh_generator(dropout, inputs.device):
        for rows in batches:
            optimizer.zero_grad()
            loss = measure(functional_call(network, (values, held), (inputs[rows],)), labels[rows])
            if isinstance(defense, TrainingDefense) and draws is not None:
                found = defense.client_gradient(network, values, held, inputs[rows], labels[rows], draws, LOSS)
                _set_gradient(values, found)
            else:
                loss.backward()
                if isinstance(defense, UpdateDefense) and draws is not None:
                    of_all = {name: torch.zeros_like(v) if v.grad is None else v.grad for name, v in values.items()}
                    _set_gradient(values, defense.apply(of_all, draws))
            optimizer.step()
            total += loss.detach() * len(rows)
    delta = {name: value.detach() - parameters[name].detach() for name, value in values.items()}
    return TrainedClient(delta, held, float(total) / order.numel())


def acting_defense(defense: ClientDefense | None, defend: str) -> ClientDefense | None:
    """The defense that acts: None also for the one that changes nothing.

    Raises:
        UsageError: something else than a defense, or a place where it does not act.
    """
    if defend not in get_args(Defend):
        raise UsageError(f"defend must be one of {', '.join(get_args(Defend))}, got {defend!r}")
    if defense is not None and not isinstance(defense, ClientDefense):
        raise UsageError(f"defense must be a defense of what clients send or None, got {type(defense).__name__}")
    if isinstance(defense, TrainingDefense) and defend != "steps":
        raise UsageError(f"{defense.name} acts on the rows of local steps: defend must be 'steps', got {defend!r}")
    return None if isinstance(defense, NoDefense) else defense


def check_smallest_batch(network: nn.Module, width: int, n_rows: int, training: LocalTraining, mode: bool) -> None:
    """Refuse local batches of one row where the network cannot take one, as BatchNorm in train mode cannot.

    Args:
        network: the network.
        width: of an encoded row.
        n_rows: rows of the client.
        training: settings of the local SGD.
        mode: train mode.

    Raises:
        UsageError: the last batch of an epoch has one row, which has no variance.
    """
    if n_rows % training.batch_size == 1 % training.batch_size and mode:
        check_row_alone(network, width, f"batch_size {training.batch_size} leaves a local batch of one row of {n_rows}")


def check_row_alone(network: nn.Module, width: int, found: str) -> None:
    """Refuse a batch of one row where the network cannot take one, as BatchNorm in train mode cannot.

    Args:
        network: the network.
        width: of an encoded row.
        found: which setting leaves such a batch, for the error.

    Raises:
        UsageError: one row has no variance.
    """
    parameter = next(network.parameters())
    row = torch.zeros(1, width, dtype=parameter.dtype, device=parameter.device)
    try:
        with torch.no_grad(), in_mode(network, True), frozen_statistics(network), fresh_generator(0, row.device):
            network(row)
    except (UsageError, ValueError) as error:
        raise UsageError(
            f"{found}, which the network cannot take in train mode ({error}); choose another size"
        ) from error


def _defended(
    delta: Mapping[str, Tensor], defense: UpdateDefense, draws: torch.Generator, scale: float
) -> dict[str, Tensor]:
    """A delta as it leaves its client: brought to the scale of a gradient, defended and brought back."""
    defended = defense.apply({name: value / -scale for name, value in delta.items()}, draws)
    return {name: value * -scale for name, value in defended.items()}


def _set_gradient(values: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
    """Put these gradients in the place of those that a backward left, if any."""
    for name, gradient in gradients.items():
        values[name].grad = gradient
