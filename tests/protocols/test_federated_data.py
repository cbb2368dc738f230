"""Clients of a federation as Lightning data: who is drawn depends on seed and round alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from lightleak.core.errors import DataError, UsageError
from lightleak.protocols.federated_data import FederatedData, RoundSampler

N_ROWS = 40


def rows(n: int = N_ROWS) -> TensorDataset:
    return TensorDataset(torch.arange(n).float().unsqueeze(1).expand(n, 3), torch.arange(n) % 2)


def data(n_clients: int = 8, **changes: Any) -> FederatedData:
    partition = [range(client, N_ROWS, n_clients) for client in range(n_clients)]
    return FederatedData(rows(), **({"partition": partition, "seed": 5} | changes))


def drawn(of: FederatedData, n_rounds: int, start: int = 0) -> list[list[int]]:
    loader = of.train_dataloader()
    loader.sampler.set_epoch(start)
    return [[part.client for part in batch] for _ in range(n_rounds) for batch in loader]


def test_a_batch_is_a_round_of_clients_with_their_own_rows() -> None:
    federation = data(clients_per_round=3)
    before = torch.get_rng_state()
    (batch,) = federation.train_dataloader()
    assert torch.equal(torch.get_rng_state(), before)
    assert len(batch) == 3
    for client, inputs, labels in batch:
        assert inputs[:, 0].long().tolist() == federation.partition[client].tolist()
        assert torch.equal(labels, inputs[:, 0].long() % 2)
    assert len(federation.train_dataloader()) == 1


def test_who_is_drawn_depends_on_seed_and_round_alone() -> None:
    first = drawn(data(clients_per_round=3), 6)
    assert all(len(set(clients)) == 3 for clients in first)
    assert drawn(data(clients_per_round=3), 3, start=3) == first[3:]
    assert len({tuple(clients) for clients in first}) > 1
    assert drawn(data(clients_per_round=3, seed=6), 6) != first
    assert {client for clients in drawn(data(clients_per_round=3), 40) for client in clients} == set(range(8))


def test_the_rounds_of_the_client_that_is_drawn_most_are_counted() -> None:
    federation = data(clients_per_round=3)
    drawn_often = torch.tensor([client for clients in drawn(federation, 9) for client in clients]).bincount()
    sampler = RoundSampler(len(federation.partition), federation.n_sampled, federation.seed)
    assert sampler.most_rounds_of_a_client(9) == int(drawn_often.max())
    assert sampler.most_rounds_of_a_client(0) == 0


def test_every_client_is_drawn_equally_often() -> None:
    """2 of 5 in 1,000 rounds: 400 each, within four standard deviations of a binomial count (15.5)."""
    sampler = RoundSampler(5, 2, seed=0)
    counts = torch.bincount(torch.cat([clients for _ in range(1000) for clients in sampler]), minlength=5)
    assert (counts - 400).abs().max() < 62


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (8, 8), (1.0, 8), (0.5, 4), (0.01, 1), (0.3, 2)])
def test_clients_per_round_is_a_count_or_a_share(asked: float, expected: int) -> None:
    assert data(clients_per_round=asked).n_sampled == expected


def test_validation_and_test_rows_are_served_in_order() -> None:
    federation = data(validation=rows(9), test=rows(7))
    for loader, n in ((federation.val_dataloader(), 9), (federation.test_dataloader(), 7)):
        assert torch.cat([inputs[:, 0] for inputs, _ in loader]).tolist() == list(range(n))
    assert data().val_dataloader() == []
    assert data().test_dataloader() == []


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"clients_per_round": 9}, UsageError, r"at most 8 \(clients\), got 9"),
        ({"clients_per_round": 0}, UsageError, "at least 1"),
        ({"clients_per_round": 1.5}, UsageError, "a share must be above 0 and at most 1.0, got 1.5"),
        ({"clients_per_round": 0.0}, UsageError, "a share must be above 0"),
        ({"clients_per_round": True}, UsageError, "got True"),
        ({"partition": []}, UsageError, "at least one client"),
        ({"partition": [[0], []]}, DataError, "the rows of client 1 must be indices from 0 to 39, at least one"),
        ({"partition": [[0, 40]]}, DataError, r"indices from 0 to 39, at least one; got \[0, 40\]"),
        ({"partition": [[-1, 4]]}, DataError, "client 0 must be indices"),
        ({"partition": [[0, 1], np.array([2, 1])]}, DataError, "row 1 belongs to 2 clients"),
        ({"partition": [[3, 3]]}, DataError, "rows of client 0 must be different, got row 3 2 times"),
        ({"partition": [[0], [0.9, 1.7]]}, DataError, r"rows of client 1 must be whole numbers, got \[0.9, 1.7\]"),
        ({"partition": [[True, False]]}, DataError, "rows of client 0 must be whole numbers"),
        ({"numbers": range(7)}, DataError, "numbers must be one for each of the 40 rows, got 7"),
        ({"numbers": np.linspace(0, 1, N_ROWS)}, DataError, "numbers must be whole numbers"),
    ],
)
def test_wrong_federations_are_refused(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        data(**change)
