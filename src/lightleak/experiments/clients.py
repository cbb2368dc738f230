"""Clients attacked without a training run: fresh ones, and the small federation of TabLeak's Table 5."""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, fresh_generator, generator, numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.defenses.horizontal import TrainingDefense, UpdateDefense
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.pack import Shared
from lightleak.protocols import fedavg
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.fedavg import ShareLabels
from lightleak.protocols.fedsgd import client_update
from lightleak.protocols.records import RecordedAggregate, RecordedClient
from lightleak.targets.functional import functional_call
from lightleak.targets.spec import NetworkSpec, build_network


@dataclass(frozen=True)
class Population(Shared):
    """Rows clients hold and what the server knows of the table.

    Attributes:
        inputs: encoded rows ``[n, d]``.
        labels: LongTensor ``[n]``.
        encoder: encoder whose statistics the server knows.
        marginals: column marginals.
    """

    inputs: Tensor
    labels: Tensor
    encoder: TableEncoder
    marginals: Marginals

    def draw(self, seed: int, n_rows: int, index: int, client: int = 0) -> Tensor:
        """Rows of a fresh client, LongTensor ``[n_rows]``, drawn with replacement.

        Args:
            seed: root seed.
            n_rows: how many.
            index: number of the update.
            client: number of the client among those of an aggregate.

        Raises:
            UsageError: more rows than there are.
        """
        if n_rows > len(self.inputs):
            raise UsageError(f"batch_size must be at most {len(self.inputs)} (rows the clients hold), got {n_rows}")
        draws = numpy_generator(seed, "client", n_rows, index, *([client] if client else []))
        return torch.as_tensor(draws.integers(0, len(self.inputs), n_rows))

    def gradient(
        self, network: nn.Module, spec: NetworkSpec, rows: Tensor, **settings: Any
    ) -> tuple[ClientUpdate, GroundTruth]:
        """What a client sends for one batch of rows under FedSGD; ``settings`` as for `client_update`."""
        inputs, labels = self.inputs[rows], self.labels[rows]
        return client_update(network, spec, self.encoder, inputs, labels, marginals=self.marginals, **settings)


@dataclass(frozen=True)
class FreshClients:
    """Independent clients, each with a batch drawn with replacement and an untrained network of its own.

    A network per batch makes runs independent, so that their interval covers the draw of the network as well.

    Attributes:
        population: the rows they draw from.
        spec: the network.
        seed: root seed.
        share_labels: updates carry their labels.
        share_statistics: updates carry the batch's BatchNorm statistics.
        defense: what clients do to their gradients.
        releases: rounds in which each client sends a gradient of its batch, with a draw of the defense each.
        server_rate: learning rate of the SGD step that the server takes with each of them before the next.
        network: one for all clients, as TabLeak's published code has it; None: a fresh one for each.
    """

    population: Population
    spec: NetworkSpec
    seed: int
    share_labels: bool
    share_statistics: bool = False
    defense: UpdateDefense | TrainingDefense | None = None
    releases: int = 1
    server_rate: float = 0.0
    network: nn.Module | None = None

    def observe(self, batch_size: int, index: int) -> tuple[ClientUpdate, GroundTruth]:
        """The update of client ``index`` with ``batch_size`` rows.

        Raises:
            UsageError: the batch is larger than the data.
        """
        people = self.population
        rows = people.draw(self.seed, batch_size, index)
        network = copy.deepcopy(self.network)
        if network is None:
            network = build_network(self.spec, derive_seed(self.seed, "network", batch_size, index))
        draws, sent, truths = generator(self.seed, "defense", batch_size, index), [], []
        with _dropout_of(self.seed, "client", batch_size, index):
            for _ in range(self.releases):
                shared = {"share_labels": self.share_labels, "share_statistics": self.share_statistics}
                update, truth = people.gradient(network, self.spec, rows, **shared)
                update = self._defended(network, update, truth, draws)
                sent.append(update)
                truths.append(truth)
                with torch.no_grad():
                    for name, parameter in network.named_parameters():
                        parameter.sub_(update.update[name], alpha=self.server_rate)
        return ClientUpdate.of_releases(sent), truths[0]

    def _defended(
        self, network: nn.Module, update: ClientUpdate, truth: GroundTruth, draws: torch.Generator
    ) -> ClientUpdate:
        """The update as it leaves a client, changed by its defense if there is one."""
        defense = self.defense
        if defense is None:
            return update
        if isinstance(defense, TrainingDefense):
            gradient = defense.client_gradient(
                network, update.parameters, update.buffers, truth.inputs, truth.labels, draws
            )
        else:
            gradient = defense.apply(update.update, draws)
        facts = replace(update.facts, defense=defense.describe())
        return replace(update, update=gradient, state="noised", facts=facts)


@dataclass(frozen=True)
class FreshFedAvgClients:
    """Independent clients that train on their own rows, from an untrained network; alone or as secure aggregates.

    A client's rows and network are those of the `FreshClients` of the same seed, size and index.

    Attributes:
        population: the rows they draw from.
        spec: the network.
        seed: root seed.
        protocol: settings of the local training, and how many clients stand behind one update.
        share_labels: what updates say of their labels.
        defense: what clients do to their updates.
        point: where they do it: ``update`` or ``steps``.
    """

    population: Population
    spec: NetworkSpec
    seed: int
    protocol: ProtocolConfig
    share_labels: ShareLabels
    defense: UpdateDefense | TrainingDefense | None = None
    point: Literal["update", "steps"] = "update"

    def observe(self, n_rows: int, index: int) -> tuple[ClientUpdate, GroundTruth]:
        """Update ``index``, of clients with ``n_rows`` rows each.

        Raises:
            UsageError: a client holds more rows than there are, or rows that its local batches do not divide.
        """
        people, protocol = self.population, self.protocol
        training = protocol.local_training(n_rows)
        network = build_network(self.spec, derive_seed(self.seed, "network", n_rows, index))
        observed = []
        for client in range(protocol.aggregate):
            rows = people.draw(self.seed, n_rows, index, client)
            observed.append(
                fedavg.client_update(
                    network,
                    self.spec,
                    people.encoder,
                    people.inputs[rows],
                    people.labels[rows],
                    training,
                    share_labels=self.share_labels,
                    marginals=people.marginals,
                    seed=derive_seed(self.seed, "local", n_rows, index, client),
                    defense=self.defense,
                    defend=self.point,
                )
            )
        return aggregated(observed)


def aggregated(observed: Sequence[tuple[ClientUpdate, RecordedClient]]) -> tuple[ClientUpdate, GroundTruth]:
    """Return the update of one client, or the mean of several clients' updates, and the rows behind it."""
    if len(observed) == 1:
        return observed[0]
    updates, truths = zip(*observed, strict=True)
    return aggregate_updates(updates), RecordedAggregate.of(truths)


@dataclass(frozen=True)
class Federation:
    """FedSGD rounds among a few clients, as TabLeak's published code runs them for Table 5.

    50 clients hold at most 32 rows each and one of its "epochs" is one round: every client takes one step on all its
    rows and the server averages. That is plain gradient descent on the union, weighted by client. German Credit's 800
    training rows leave 16 a client, which is why its accuracies in Table 15 lie above those of Table 18 at 32.
    """

    population: Population
    spec: NetworkSpec
    seed: int
    share_labels: bool
    clients: int = 50
    rows_per_client: int = 32
    learning_rate: float = 0.5

    @property
    def batch_size(self) -> int:
        """Rows each client holds."""
        return min(self.rows_per_client, -(-len(self.population.inputs) // self.clients))

    @cached_property
    def _rows(self) -> list[Tensor]:
        order = numpy_generator(self.seed, "federation").permutation(len(self.population.inputs))
        return [part for part in torch.as_tensor(order)[: self.clients * self.batch_size].split(self.batch_size)]

    @cached_property
    def _rounds(self) -> dict[int, dict[str, Tensor]]:
        network = build_network(self.spec, derive_seed(self.seed, "network"))
        return {0: {name: p.detach() for name, p in network.named_parameters()}}

    def _parameters(self, done: int) -> dict[str, Tensor]:
        """Parameters after ``done`` rounds; every round is computed once."""
        if done not in self._rounds:
            before = {name: p.clone().requires_grad_() for name, p in self._parameters(done - 1).items()}
            network, people = build_network(self.spec, seed=0), self.population
            losses = []
            for index, rows in enumerate(self._rows):
                with _dropout_of(self.seed, "federation", done, index):
                    logits = functional_call(network, before, (people.inputs[rows],))
                losses.append(cross_entropy(logits, people.labels[rows]))
            steps = torch.autograd.grad(torch.stack(losses).mean(), list(before.values()))
            self._rounds[done] = {
                name: (p - self.learning_rate * step).detach()
                for (name, p), step in zip(before.items(), steps, strict=True)
            }
        return self._rounds[done]

    def observe(self, epoch: int, index: int) -> tuple[ClientUpdate, GroundTruth]:
        """The update client ``index`` sends in round ``epoch``, counted from 1 as in the paper.

        Raises:
            UsageError: there is no such client or round.
        """
        if not 0 <= index < len(self._rows):
            raise UsageError(f"the federation has {len(self._rows)} clients, numbered from 0; got client {index}")
        if epoch < 1:
            raise UsageError(f"rounds of the federation are counted from 1, got {epoch}")
        network, rows = build_network(self.spec, seed=0), self._rows[index]
        network.load_state_dict(self._parameters(epoch - 1), strict=False)
        with _dropout_of(self.seed, "federation", epoch, index):
            return self.population.gradient(network, self.spec, rows, share_labels=self.share_labels, epoch=epoch)


def _dropout_of(seed: int, *keys: str | int) -> AbstractContextManager[None]:
    """Within the block dropout draws from a stream of its own; the global generator is then as it was."""
    return fresh_generator(derive_seed(seed, "dropout", *keys))
