"""From FedAvg observations to a matching problem: the simulated training, its labels, its priors."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.checks import local_epochs, rows_per_client, total_steps
from lightleak.attacks.gradient_inversion.fedavg.simulate.chain import chain_of
from lightleak.attacks.gradient_inversion.fedavg.simulate.config import FedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_split import shared_positions, stacked
from lightleak.attacks.gradient_inversion.fedavg.simulate.local_step import LocalStep, NetworkStep
from lightleak.attacks.gradient_inversion.fedavg.simulate.schedule import Schedule, schedule_for
from lightleak.attacks.gradient_inversion.fedavg.simulate.simulation import LocalSGD, SimulatedTraining
from lightleak.attacks.gradient_inversion.fedavg.simulate.update_matcher import RowPrior, UpdateMatcher
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize.chain_options import chain_options
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES, layered_error
from lightleak.attacks.gradient_inversion.optimize.problem import LIVE_COPIES, of_usual_norm
from lightleak.core.observations import ClientUpdate
from lightleak.targets.spec import NetworkSpec

CHAIN_COPIES = 3
"""Tensors of the size of a step's rows in every layer that the closed form keeps: inputs, masks, errors."""


def schedule_of(update: ClientUpdate, config: FedAvgConfig) -> Schedule:
    """The steps that a configuration simulates for an update that passed the checks; unknown epochs count as one."""
    facts, name = update.facts, "the attack"
    assert facts.learning_rate is not None  # `require_fedavg`
    rows, steps = rows_per_client(name, facts), total_steps(name, facts)
    stated = local_epochs(name, facts)
    epochs = config.assumed_epochs or stated or 1
    batches = steps // epochs
    size = facts.batch_size if epochs == stated and facts.batch_size is not None else math.ceil(rows / batches)
    return schedule_for(config.simulation, rows, epochs, batches, facts.learning_rate, size)


def build_update_matcher(
    updates: Sequence[ClientUpdate],
    labels: Sequence[Tensor],
    schedule: Schedule,
    config: FedAvgConfig,
    priors: Sequence[RowPrior],
    device: torch.device,
    dtype: torch.dtype,
) -> UpdateMatcher:
    """The closed form for ReLU chains, ``torch.func`` for every other network.

    Args:
        updates: observations that are alike.
        labels: LongTensor ``[clients, epochs, rows]`` per update, in the order in which the batches take them.
        schedule: from `schedule_of`.
        config: objective, options of ReLU chains, precision and memory.
        priors: added to the loss.
        device: where to work.
        dtype: in which precision.
    """
    facts = updates[0].facts
    clients = facts.n_clients or 1
    network = client_network(updates[0])
    chain = chain_of(network)
    names = tuple(updates[0].parameters) if chain is None else chain.names

    def all_updates(which: str) -> dict[str, Tensor]:
        held = [getattr(update, which) for update in updates]
        return {name: _cast(torch.stack([one[name] for one in held]), device, dtype) for name in held[0]}

    def ordered(named: Mapping[str, Tensor]) -> list[Tensor]:
        return [named[name] for name in names] if chain is None else chain.weights(named)

    buffers, module = all_updates("buffers"), network.to(device, dtype)
    labels = [part.to(device) for part in labels]
    positions = [shared_positions(part) for part in labels] if config.simulation == "shared" else None
    assert facts.learning_rate is not None  # `require_fedavg`
    scale = 1 / (facts.learning_rate if config.published_objective else schedule.total_rate)
    options = chain_options(updates, config, device, dtype, -scale)
    straight = options.straight_through
    if config.objective == "cosine" and not config.published_objective:
        updates = [of_usual_norm(update, scale) for update in updates]
    sgd, segment = LocalSGD(facts.momentum, facts.weight_decay), segment_length(updates[0], config)

    def training(restarts: int) -> SimulatedTraining:
        copies = restarts * clients
        held = {name: tensor.repeat_interleave(copies, 0) for name, tensor in buffers.items()}
        step: LocalStep
        if chain is None:
            step = NetworkStep(module, names, held)
        else:
            step = chain.step(None if straight is None else straight.repeated(copies))
        where = None if positions is None else stacked(positions, restarts)
        return SimulatedTraining(step, schedule, sgd, stacked(labels, restarts), where, segment)

    return UpdateMatcher(
        training,
        weights=ordered(all_updates("parameters")),
        deltas=ordered(all_updates("update")),
        scale=scale,
        clients=clients,
        copies=schedule.copies,
        objective=layered_error if config.published_objective else OBJECTIVES[config.objective],
        weight=config.matching_weight,
        priors=priors,
        whitening=options.whitening,
    )


def segment_length(update: ClientUpdate, config: FedAvgConfig) -> int:
    """Steps whose traces are held at once: all of them where the restarts then fit into the memory, else few.

    With s steps held and U/s copies of the weights at the segments' starts, memory is least near the square root of U
    over the size of a trace in copies of the weights.
    """
    steps = schedule_of(update, config).steps
    if bytes_per_candidate(update, config, steps) * config.restarts <= config.memory_bytes:
        return steps
    weights, trace = _sizes(update, config)
    return min(steps, max(1, round(math.sqrt(steps * weights / trace))))


def bytes_per_candidate(update: ClientUpdate, config: FedAvgConfig, segment: int) -> int:
    """Memory of one restart in an optimization step, in bytes."""
    schedule = schedule_of(update, config)
    weights, trace = _sizes(update, config)
    starts = math.ceil(schedule.steps / segment)
    working = LIVE_COPIES * weights + schedule.copies * schedule.rows * _width(update) * LIVE_COPIES
    size = 8 if config.precision == "float64" else 4
    return size * (update.facts.n_clients or 1) * int(starts * weights + segment * trace + working)


def _sizes(update: ClientUpdate, config: FedAvgConfig) -> tuple[int, int]:
    """Floats in the weights, and in what one step leaves for the way back."""
    weights = sum(p.numel() for p in update.parameters.values())
    schedule = schedule_of(update, config)
    rows = min(schedule.batch_size, schedule.rows)
    chain = chain_of(client_network(update))
    if chain is None:
        units = sum(p.shape[0] for p in update.parameters.values() if p.dim())
        return weights, LIVE_COPIES * (weights + rows * (_width(update) + units))
    return weights, weights + CHAIN_COPIES * rows * chain.floats_per_row


def _width(update: ClientUpdate) -> int:
    return NetworkSpec.from_dict(update.network).layout.width


def _cast(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)
