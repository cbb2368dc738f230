"""A small table, three clients that train on it by plain PyTorch, and the same clients' updates by our own protocol."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.integrations.round_recorder import PrivateRows
from lightleak.integrations.server_view import ServerView
from lightleak.protocols import fedavg, fedsgd
from lightleak.protocols.client_training import LocalTraining, row_order
from lightleak.targets import NetworkSpec, build_network

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

N_CLIENTS, N_ROWS = 3, 6
LOCAL = LocalTraining(epochs=2, batch_size=3, learning_rate=0.1)
ONE_STEP = LocalTraining(epochs=1, batch_size=N_ROWS, learning_rate=0.5)


@dataclass(frozen=True)
class Federation:
    """One round from one network."""

    encoder: TableEncoder
    spec: NetworkSpec
    rows: tuple[tuple[Tensor, Tensor], ...]
    training: LocalTraining

    def network(self) -> nn.Module:
        return build_network(self.spec, seed=1)

    def view(self, **settings: Any) -> ServerView:
        known = {"learning_rate": self.training.learning_rate, "epochs": self.training.epochs}
        return ServerView(self.spec, self.encoder, **{**known, "batch_size": self.training.batch_size, **settings})

    def order(self, client: int) -> Tensor:
        return row_order(self.training, N_ROWS, seed=client)

    def private(self, client: int, round_number: int = 0) -> PrivateRows:
        return PrivateRows(*self.rows[client], order=self.order(client))

    def trained(self, client: int, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a user's own training loop makes of the weights: nothing of ours but the order of the rows."""
        network = self.network()
        network.load_state_dict(state)
        network.train()
        optimizer = torch.optim.SGD(network.parameters(), self.training.learning_rate)
        inputs, labels = self.rows[client]
        for epoch in self.order(client):
            for batch in epoch.split(self.training.batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
                optimizer.step()
        return network.state_dict()

    def gradient(self, client: int, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a user's own FedSGD client sends."""
        network = self.network()
        network.load_state_dict(state)
        inputs, labels = self.rows[client]
        nn.functional.cross_entropy(network(inputs), labels).backward()
        return {name: value.grad for name, value in network.named_parameters() if value.grad is not None}

    def own(self, client: int, kind: str = "delta") -> tuple[ClientUpdate, GroundTruth]:
        """Our own capture of the same update."""
        common = (self.network(), self.spec, self.encoder, *self.rows[client])
        if kind == "gradient":
            return fedsgd.client_update(*common, share_labels=False)
        return fedavg.client_update(*common, self.training, share_labels="none", seed=client)


MakeFederation = Callable[..., Federation]


@pytest.fixture(scope="session")
def federation() -> MakeFederation:
    """``federation(ONE_STEP, hidden=[32])``: clients of six rows each."""
    table = load_dataset("synthetic", n_discrete=6, n_continuous=2, n_rows=400)
    encoder = TableEncoder(table.schema).fit(table.train)
    inputs, labels = encoder.encode(table.train), encoder.encode_labels(table.train)

    def make(one_step: bool = False, name: str = "mlp", **options: Any) -> Federation:
        spec = NetworkSpec(name, 2, encoder.layout, options)
        cuts = [slice(i * N_ROWS, (i + 1) * N_ROWS) for i in range(N_CLIENTS)]
        rows = tuple((inputs[cut], labels[cut]) for cut in cuts)
        return Federation(encoder, spec, rows, ONE_STEP if one_step else LOCAL)

    return make


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients run in the simulation's own threads in place of Ray's processes, which take half a minute to start."""
    pytest.importorskip("flwr", reason="Flower (flwr) is not installed")
    from flwr.server.superlink.fleet.vce.backend import Backend

    class Inline(Backend):
        def build(self, app_fn: Callable[[], Any]) -> None:
            self.app = app_fn()

        num_workers = 1

        def is_worker_idle(self) -> bool:
            return True

        def terminate(self) -> None:
            pass

        def process_message(self, message: Any, context: Any) -> tuple[Any, Any]:
            return self.app(message, context), context

    module = ModuleType("raybackend")
    module.RayBackend = Inline  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flwr.server.superlink.fleet.vce.backend.raybackend", module)
    flower_log = logging.getLogger("flwr")
    level = flower_log.level
    flower_log.setLevel(logging.ERROR)
    yield
    flower_log.setLevel(level)
