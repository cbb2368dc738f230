"""Settings in which an earlier version proved rows that were in no batch: they are refused, or nothing is proven."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.protocols import fedavg, fedsgd
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import LocalTraining
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec, build_network

SCHEMA = TableSchema(
    (
        Column.categorical("c0", ["v0", "v1", "v2"]),
        Column.categorical("c1", ["v0", "v1", "v2", "v3"]),
        *(Column.continuous(f"x{i}") for i in range(3)),
    ),
    Column.categorical("label", ["k0", "k1"]),
)


@pytest.fixture(scope="module")
def public() -> pd.DataFrame:
    draws = np.random.default_rng(0)
    cells = {"c0": draws.choice(["v0", "v1", "v2"], 400), "c1": draws.choice(["v0", "v1", "v2", "v3"], 400)}
    cells |= {f"x{i}": draws.normal(size=400) for i in range(3)}
    return pd.DataFrame({**cells, "label": draws.choice(["k0", "k1"], 400)})


@pytest.fixture(scope="module")
def encoder(public: pd.DataFrame) -> TableEncoder:
    return TableEncoder(SCHEMA, "standardized").fit(public)


@pytest.fixture
def with_a_pair(public: pd.DataFrame, encoder: TableEncoder) -> Callable[[int, int], tuple[Tensor, Tensor]]:
    """Rows and labels, the first two of them equal."""

    def draw(n: int, seed: int) -> tuple[Tensor, Tensor]:
        chosen = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:n]
        chosen[1] = chosen[0]
        return encoder.encode(public)[chosen], encoder.encode_labels(public)[chosen]

    return draw


def gradient(spec: NetworkSpec, encoder: TableEncoder, x: Tensor, y: Tensor, seed: int = 0) -> ClientUpdate:
    return fedsgd.client_update(build_network(spec, seed), spec, encoder, x, y, share_labels=False, seed=seed)[0]


def delta(
    spec: NetworkSpec, encoder: TableEncoder, x: Tensor, y: Tensor, training: LocalTraining, seed: int = 0
) -> ClientUpdate:
    network = build_network(spec, seed)
    return fedavg.client_update(network, spec, encoder, x, y, training, share_labels="none", seed=seed)[0]


def certified(found: Reconstruction) -> list[int]:
    assert found.certificate is not None
    return [i for i, status in enumerate(found.certificate.status) if status == "certified"]


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_rows_with_dropped_cells_are_not_taken_for_rows(
    public: pd.DataFrame, encoder: TableEncoder, activation: type[nn.Module]
) -> None:
    torch.manual_seed(0)
    d = encoder.width
    network = nn.Sequential(nn.Dropout(0.3), nn.Linear(d, 30), activation(), nn.Linear(30, 20), activation())
    spec = NetworkSpec(hand_over(network.append(nn.Linear(20, 2))), 2, encoder.layout)
    x, y = encoder.encode(public[:3]), encoder.encode_labels(public[:3])
    for name in ("exact", "exact_joint"):
        with pytest.raises(UnsupportedError, match="drop units in front of the first linear layer"):
            ATTACKS.get(name)().check(gradient(spec, encoder, x, y))
    with pytest.raises(UnsupportedError, match="drop units in front of the first linear layer"):
        ATTACKS.get("exact_fedavg")().check(delta(spec, encoder, x, y, LocalTraining(1, 3, 0.1)))


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_of_a_smaller_last_batch_are_not_counted(with_a_pair: Any, encoder: TableEncoder, seed: int) -> None:
    """They weigh more, so that a row of it would read as two, and a pair in the other batch as one."""
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [60, 30]})
    x, y = with_a_pair(5, seed)
    uneven = delta(spec, encoder, x, y, LocalTraining(1, 4, 0.01), seed)
    assert not certified(ATTACKS.get("exact_fedavg")().run(uneven, 0))
    x, y = with_a_pair(12, seed)
    training = LocalTraining(1, 4, 0.01)
    unequal = [delta(spec, encoder, x[at], y[at], training, seed) for at in (slice(4), slice(4, 12))]
    with torch.no_grad():
        assert not certified(ATTACKS.get("exact_fedavg")().run(aggregate_updates(unequal), 0))


def test_a_gradient_of_unequal_batches_is_refused(with_a_pair: Any, encoder: TableEncoder) -> None:
    update = gradient(NetworkSpec("mlp", 2, encoder.layout, {"hidden": [20]}), encoder, *with_a_pair(9, 0))
    uneven = replace(update, facts=replace(update.facts, batch_size=6))
    for name in ("exact", "exact_joint"):
        with pytest.raises(ObservationError, match="9 rows in batches of 6, the last of which has 3"):
            ATTACKS.get(name)().check(uneven)
        ATTACKS.get(name)().check(replace(update, facts=replace(update.facts, batch_size=3)))


@pytest.mark.parametrize(("name", "dropout"), [("exact", 0.1), ("exact_fedavg", 0.0)])
def test_a_row_beyond_the_bounds_proves_no_other(encoder: TableEncoder, name: str, dropout: float) -> None:
    """Without it in the list (1, 1), a sum of three rows of the batch, seemed to be needed."""
    top = float(encoder.upper[0])
    rows = [[top + 0.02, 0.3, -0.2], [top - 0.4, -0.7, 0.5], [top - 0.3, 0.9, 0.1], [-0.6, 0.2, 1.1]]
    cells = {"c0": ["v0", "v0", "v1", "v2"], "c1": ["v0", "v1", "v0", "v2"]}
    cells |= {f"x{i}": [row[i] for row in rows] for i in range(3)}
    frame = pd.DataFrame({**cells, "label": ["k0", "k1", "k0", "k1"]})
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [30, 30], "activation": "gelu", "dropout": dropout})
    x, y = encoder.encode(frame), encoder.encode_labels(frame)
    update = gradient(spec, encoder, x, y, 3) if dropout else delta(spec, encoder, x, y, LocalTraining(2, 2, 0.1), 3)
    found = ATTACKS.get(name)().run(update, 0)
    true = set(zip(frame["c0"], frame["c1"], strict=True))
    assert {(found.rows["c0"][i], found.rows["c1"][i]) for i in certified(found)} <= true


class Clipped(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.clamp(-5, 5))


class Tied(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.inner, self.other = nn.Linear(width, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.last, self.other.weight = nn.Linear(12, 2), self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.other(self.inner(self.first(x).relu()).relu()).relu())


def test_a_network_that_clips_its_cells_is_refused(public: pd.DataFrame, encoder: TableEncoder) -> None:
    torch.manual_seed(0)
    spec = NetworkSpec(hand_over(Clipped(encoder.width)), 2, encoder.layout)
    update = gradient(spec, encoder, encoder.encode(public[:3]), encoder.encode_labels(public[:3]))
    with pytest.raises(UnsupportedError, match=r"Clipped changes large encoded values before layer 'layers\.0' sees"):
        ATTACKS.get("exact")().check(update)


def test_shared_weights_take_no_part_in_proofs(public: pd.DataFrame, encoder: TableEncoder) -> None:
    torch.manual_seed(0)
    spec = NetworkSpec(hand_over(Tied(encoder.width)), 2, encoder.layout)
    x, y = encoder.encode(public[:3]), encoder.encode_labels(public[:3])
    for name in ("exact", "audit_max"):
        ATTACKS.get(name)().check(gradient(spec, encoder, x, y))
    parametrized = nn.Sequential(nn.Linear(encoder.width, 12), nn.ReLU(), nn.Linear(12, 2))
    nn.utils.parametrizations.weight_norm(parametrized[0])
    spec = NetworkSpec(hand_over(parametrized), 2, encoder.layout)
    with pytest.raises(UnsupportedError, match="shared with another layer of Sequential, or computed"):
        ATTACKS.get("exact")().check(gradient(spec, encoder, x, y))


def test_a_head_that_is_not_sent_ends_nothing(public: pd.DataFrame, encoder: TableEncoder) -> None:
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [40, 30]})
    update = gradient(spec, encoder, encoder.encode(public[:4]), encoder.encode_labels(public[:4]))
    sent = {key: torch.zeros_like(one) if key.startswith("linears.2") else one for key, one in update.update.items()}
    assert len(ATTACKS.get("exact")().run(replace(update, update=sent), 0).rows) == 4
