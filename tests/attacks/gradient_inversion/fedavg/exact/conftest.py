"""FedAvg clients on the made table of the folder above."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import client_update
from lightleak.targets.spec import NetworkSpec, build_network


@dataclass(frozen=True)
class Client:
    """A weight update and, for the tests alone, the truth behind it.

    Attributes:
        update: what an attack sees.
        truth: the rows.
        encoder: the table's.
    """

    update: ClientUpdate
    truth: GroundTruth
    encoder: TableEncoder

    @cached_property
    def observed(self) -> WeightUpdate:
        return WeightUpdate.of(self.update)

    @cached_property
    def prior(self) -> RowPrior:
        return RowPrior.of(self.update, self.encoder)

    @cached_property
    def x(self) -> Tensor:
        return self.truth.inputs.double()

    @cached_property
    def cells(self) -> tuple[Tensor, Tensor]:
        return self.encoder.project(self.x)

    @cached_property
    def equations(self) -> RowEquations:
        observed, n = self.observed, self.update.facts.n_rows
        space = infer_domain(observed.gradient[0], self.encoder, self.prior, n, noise=observed.noise)
        return RowEquations.of(observed.gradient[0], space, n, observed.noise)

    @cached_property
    def coordinates(self) -> tuple[Tensor, Tensor]:
        return self.equations.space.coordinates(self.cells)


MakeClient = Callable[..., Client]


@pytest.fixture(scope="session")
def make_client(make_batch) -> MakeClient:
    """A client that trains on the rows of `make_batch`, or an aggregate of several of them.

    A ``precise`` one trains in float64, on rows that were encoded in float32.
    """

    def make(
        n: int = 6,
        epochs: int = 2,
        batches: int = 2,
        clients: int = 1,
        hidden: tuple[int, ...] = (60, 30),
        seed: int = 0,
        order: int = 0,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        learning_rate: float = 0.01,
        precise: bool = False,
        **options,
    ) -> Client:
        batch = make_batch(n * clients, hidden=hidden, seed=seed, **options)
        spec = NetworkSpec.from_dict(batch.update.network)
        dtype = torch.float64 if precise else torch.float32
        network = build_network(spec, seed).to(dtype)
        network.load_state_dict(dict(batch.update.parameters))
        training = LocalTraining(epochs, -(-n // batches), learning_rate, momentum, weight_decay)
        sent = []
        for client in range(clients):
            at = slice(client * n, (client + 1) * n)
            sent.append(
                client_update(
                    network,
                    spec,
                    batch.encoder,
                    batch.truth.inputs[at].to(dtype),
                    batch.truth.labels[at],
                    training,
                    share_labels="none",
                    seed=order + client,
                )[0]
            )
        update = sent[0] if clients == 1 else aggregate_updates(sent)
        return Client(update, batch.truth, batch.encoder)

    return make


@pytest.fixture(scope="session")
def rows_right() -> Callable[..., int]:
    """How many rows of a reconstruction, label included, a client holds; wide numbers within 1 % of a deviation."""
    from scipy.optimize import linear_sum_assignment

    def count(codes: Tensor, values: Tensor, labels: Tensor, client: Client) -> int:
        true_codes, true_values = client.cells
        near = ((values.unsqueeze(1) - true_values).abs() <= 0.01 * client.encoder.deviation + 1e-9).all(-1)
        alike = near & (codes.unsqueeze(1) == true_codes).all(-1) & (labels.unsqueeze(1) == client.truth.labels)
        pairs = linear_sum_assignment(alike.numpy(), maximize=True)
        return int(alike[pairs].sum())

    return count


@pytest.fixture(scope="session")
def generator_of() -> Callable[[int], torch.Generator]:
    return lambda seed: torch.Generator().manual_seed(seed)
