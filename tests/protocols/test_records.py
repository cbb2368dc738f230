"""The truth behind a weight delta: what is written comes back, and what is damaged is refused by name."""

import dataclasses
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.protocols import fedsgd
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.records import RecordedAggregate, RecordedBatch, RecordedClient, load_truth
from lightleak.targets import NetworkSpec, build_network

Client = Callable[..., Any]


def same(one: RecordedClient, other: RecordedClient) -> bool:
    for field in dataclasses.fields(RecordedClient):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "buffers":
            if a.keys() != b.keys() or not all(torch.equal(a[name], b[name]) for name in a):
                return False
        elif not (torch.equal(a, b) if isinstance(a, Tensor) else a == b):
            return False
    return True


@settings(max_examples=25)
@given(
    n=st.integers(1, 9),
    epochs=st.integers(1, 3),
    rate=st.floats(1e-12, 1e6),
    momentum=st.floats(0, 0.999),
    reshuffle=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
)
def test_recorded_client_comes_back(
    client: Client,
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    epochs: int,
    rate: float,
    momentum: float,
    reshuffle: bool,
    seed: int,
) -> None:
    _, truth = client(range(n), LocalTraining(epochs, 4, 0.1, reshuffle=reshuffle), name="linear")
    training = LocalTraining(epochs, 7, rate, momentum, 1e-9, reshuffle)
    truth = dataclasses.replace(truth, training=training, dropout=seed, device="cuda")
    folder = tmp_path_factory.mktemp("client")
    truth.save(folder)
    loaded = load_truth(folder)
    assert isinstance(loaded, RecordedClient)
    assert same(loaded, truth)
    assert torch.equal(GroundTruth.load(folder).inputs, truth.inputs)


def test_buffers_come_back(client: Client, tmp_path: Path) -> None:
    _, truth = client(norm="batch")
    assert truth.buffers
    truth.save(tmp_path)
    assert same(RecordedClient.load(tmp_path), truth)


def test_recorded_aggregate_comes_back(client: Client, tmp_path: Path) -> None:
    clients = [client(range(start, start + n), seed=n)[1] for start, n in ((0, 5), (5, 3), (8, 9))]
    truth = RecordedAggregate.of(clients)
    truth.save(tmp_path)
    loaded = load_truth(tmp_path)
    assert isinstance(loaded, RecordedAggregate)
    assert len(loaded.clients) == 3
    assert all(same(one, other) for one, other in zip(loaded.clients, clients, strict=True))
    assert torch.equal(loaded.inputs, torch.cat([c.inputs for c in clients]))
    assert torch.equal(GroundTruth.load(tmp_path).labels, truth.labels)
    assert truth.loss == pytest.approx(sum(c.loss * len(c.labels) for c in clients) / 17)
    assert all(stat.S_IMODE(own.stat().st_mode) == 0o700 for own in tmp_path.glob("client-*"))


def test_any_truth_is_read_for_what_it_is(
    client: Client, encoder: Any, rows: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    spec = NetworkSpec("linear", 2, encoder.layout)
    _, batch = fedsgd.client_update(build_network(spec, seed=1), spec, encoder, *rows, share_labels=False)
    for truth in (batch, client()[1], RecordedAggregate.of([client()[1]]), GroundTruth(*rows)):
        folder = tmp_path / type(truth).__name__
        truth.save(folder)
        assert type(load_truth(folder)) is type(truth)
    with pytest.raises(ObservationError, match=r"truth.safetensors is missing"):
        load_truth(tmp_path)
    assert isinstance(batch, RecordedBatch)


def test_damaged_records_are_refused(client: Client, tmp_path: Path) -> None:
    _, truth = client()
    truth.save(tmp_path)
    path = tmp_path / "client.safetensors"
    whole = path.read_bytes()
    damages = [b"", whole[:20], whole.replace(b'"True"', b'"true"'), whole.replace(b'"order"', b'"ordre"')]
    for damaged in damages:
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(ObservationError, match="is not the record of a client's local training"):
            RecordedClient.load(tmp_path)
    path.unlink()
    with pytest.raises(ObservationError, match="no record of a client's local training"):
        RecordedClient.load(tmp_path)
    with pytest.raises(ObservationError, match="no record of an aggregate's clients"):
        RecordedAggregate.load(tmp_path)


def test_an_order_that_is_not_the_rows_is_refused(client: Client) -> None:
    _, truth = client(range(6))
    twice = truth.order.clone()
    twice[1, 0] = twice[1, 1]
    with pytest.raises(ObservationError, match="each of the 6 rows once in every epoch"):
        dataclasses.replace(truth, order=twice)
    with pytest.raises(ObservationError, match=r"order must be int64 \[2, 6\] .*, got torch.int64 \(1, 6\)"):
        dataclasses.replace(truth, order=truth.order[:1])
    with pytest.raises(ObservationError, match=r"got torch.int32 \(2, 6\)"):
        dataclasses.replace(truth, order=truth.order.int())
