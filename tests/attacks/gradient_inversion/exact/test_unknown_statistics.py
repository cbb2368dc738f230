"""BatchNorm on numbers without its statistics: what the gradient determines is proven, the rest is said to be open."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec

EXACT = ATTACKS.get("exact")()
NUMBERS = ("rooms", "price", "area", "points", "fee", "edition")


class NumbersNormalized(nn.Module):
    """BatchNorm on some of the inputs, which a perceptron sees beside the others."""

    def __init__(self, at: list[int], width: int, hidden: tuple[int, ...], activation: type[nn.Module]) -> None:
        super().__init__()
        self.at, self.others = at, [i for i in range(width) if i not in at]
        self.norm = nn.BatchNorm1d(len(at))
        layers = [part for into, out in pairwise((width, *hidden, 2)) for part in (nn.Linear(into, out), activation())]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(torch.cat([self.norm(x[:, self.at]), x[:, self.others]], 1))
        return logits


def observed(
    encoder: TableEncoder,
    x: Tensor,
    labels: Tensor,
    at: list[int] | None = None,
    activation: type[nn.Module] = nn.ReLU,
    **options: Any,
) -> ClientUpdate:
    """The update of a client that normalizes numbers, or the positions ``at``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = NumbersNormalized(at or encoder.numerical_positions, encoder.width, (60, 40), activation)
    spec = NetworkSpec(hand_over(module), 2, encoder.layout)
    return client_update(module, spec, encoder, x, labels, share_labels=False, **options)[0]


def normalized(values: Tensor) -> Tensor:
    return (values - values.mean(0)) / (values.var(0, unbiased=False) + 1e-5).sqrt()


def rows_right(found: Reconstruction, encoder: TableEncoder, x: Tensor, labels: Tensor, clients: int = 1) -> Tensor:
    """Which rows have the categories, label and normalized numbers of a true one, bool ``[n]``."""
    at = encoder.numerical_positions
    true = torch.cat([normalized(part[:, at].double()) for part in x.chunk(clients)])
    guess = found.encoded[:, at].double()  # statistics of the standardizing encoder stand for those of the batch
    alike = (encoder.project(x)[0].unsqueeze(0) == encoder.project(found.encoded)[0].unsqueeze(1)).all(-1)
    alike &= labels.unsqueeze(0) == found.labels.unsqueeze(1)
    near = (true.unsqueeze(0) - guess.unsqueeze(1)).abs() < 0.01
    return (alike & near.all(-1)).any(1)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
@pytest.mark.parametrize("attack", ["exact", "audit_max"])
def test_categories_labels_and_normalized_numbers_are_proven(
    make_batch: Callable[..., Any], attack: str, activation: type[nn.Module]
) -> None:
    batch = make_batch(10)
    x, labels = batch.truth.inputs, batch.truth.labels
    options = {"tableak": {"steps": 1, "restarts": 1}} if attack == "audit_max" else {}
    found = ATTACKS.get(attack)(**options).run(observed(batch.encoder, x, labels, activation=activation))
    certificate = found.certificate
    assert certificate is not None and certificate.complete and certificate.certified_digits == 0
    assert certificate.normalized_columns == NUMBERS and all(certificate.normalized)
    assert bool(rows_right(found, batch.encoder, x, labels).all())
    assert "numbers of rooms, price, area" in certificate.feasibility.reason


def test_numbers_moved_and_stretched_together_give_the_same_answer(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    at = batch.encoder.numerical_positions
    x, labels = batch.truth.inputs.double(), batch.truth.labels
    moved = x.clone()
    moved[:, at] = 3 * moved[:, at] - 0.4
    one, other = (EXACT.run(observed(batch.encoder, rows.float(), labels)) for rows in (x, moved))
    each = [found.encoded[:, at].sort(dim=0).values for found in (one, other)]
    torch.testing.assert_close(*each, rtol=1e-3, atol=1e-3)
    assert one.certificate is not None and not any(one.certificate.digits)


def test_a_column_that_is_not_normalized_keeps_its_numbers(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    found = EXACT.run(observed(encoder, x, labels, at=encoder.numerical_positions[1:]))
    assert found.certificate is not None and found.certificate.complete
    assert found.certificate.normalized_columns == NUMBERS[1:]
    rooms = encoder.decode(x)["rooms"]
    assert sorted(found.rows["rooms"]) == sorted(rooms)


def test_of_an_aggregate_each_clients_numbers_are_normalized(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(10)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    sent = [observed(encoder, x[rows], labels[rows]) for rows in (slice(5), slice(5, 10))]
    found = EXACT.run(aggregate_updates(sent))
    assert found.certificate is not None and any(found.certificate.normalized)
    right = rows_right(found, encoder, x, labels, clients=2)
    assert bool(right[torch.tensor(found.certificate.normalized)].all())


def test_statistics_that_are_known_prove_digits(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    update = observed(batch.encoder, batch.truth.inputs, batch.truth.labels, share_statistics=True)
    found = ATTACKS.get("exact")(batch_statistics=True).run(update)
    assert found.certificate is not None and all(found.certificate.digits) and not found.certificate.normalized_columns


def test_normalized_categories_are_refused(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    every = list(range(batch.encoder.width))
    update = observed(batch.encoder, batch.truth.inputs, batch.truth.labels, at=every)
    with pytest.raises(UnsupportedError, match="statistics it does not share"):
        EXACT.run(update)
