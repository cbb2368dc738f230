"""Clients attacked without a training run: fresh ones, and the small federation of TabLeak's Table 5."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.spec import NetworkSpec, build_network


@dataclass(frozen=True)
class Population:
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


@dataclass(frozen=True)
class FreshClients:
    """Independent clients, each with a batch drawn with replacement and an untrained network of its own.

    TabLeak's published code draws one network for all 50 batches; a network per batch makes the 50 runs independent, so
    that the interval covers the draw of the network as well.
    """

    population: Population
    spec: NetworkSpec
    seed: int
    share_labels: bool
    share_statistics: bool = False

    def observe(self, batch_size: int, index: int) -> tuple[ClientUpdate, GroundTruth]:
        """The update of client ``index`` with ``batch_size`` rows.

        Raises:
            UsageError: the batch is larger than the data.
        """
        people = self.population
        if batch_size > len(people.inputs):
            raise UsageError(
                f"batch_size must be at most {len(people.inputs)} (rows the clients hold), got {batch_size}"
            )
        draw = numpy_generator(self.seed, "client", batch_size, index)
        rows = torch.as_tensor(draw.integers(0, len(people.inputs), batch_size))
        network = build_network(self.spec, derive_seed(self.seed, "network", batch_size, index))
        with _dropout_of(self.seed, "client", batch_size, index):
            return client_update(
                network,
                self.spec,
                people.encoder,
                people.inputs[rows],
                people.labels[rows],
                share_labels=self.share_labels,
                share_statistics=self.share_statistics,
                marginals=people.marginals,
            )


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
        people = self.population
        with _dropout_of(self.seed, "federation", epoch, index):
            return client_update(
                network,
                self.spec,
                people.encoder,
                people.inputs[rows],
                people.labels[rows],
                share_labels=self.share_labels,
                marginals=people.marginals,
                epoch=epoch,
            )


@contextmanager
def _dropout_of(seed: int, *keys: str | int) -> Iterator[None]:
    """Within the block dropout draws from a stream of its own; the global generator is then as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "dropout", *keys))
        yield
