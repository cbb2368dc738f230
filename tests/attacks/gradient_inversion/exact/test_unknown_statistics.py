"""BatchNorm on numbers without its statistics: what the gradient determines is proven, the rest is said to be open."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.core.errors import ObservationError, UnsupportedError
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
    """BatchNorm on some of the inputs, which a perceptron sees beside the others, or beside all."""

    def __init__(
        self, at: list[int], width: int, hidden: tuple[int, ...], activation: type[nn.Module], raw: bool, dropout: float
    ) -> None:
        super().__init__()
        self.at, self.others = at, [i for i in range(width) if raw or i not in at]
        width = len(at) + len(self.others)
        self.norm = nn.BatchNorm1d(len(at))
        layers = [part for into, out in pairwise((width, *hidden, 2)) for part in (nn.Linear(into, out), activation())]
        self.layers = nn.Sequential(*layers[:-2], nn.Dropout(dropout), layers[-2])

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(torch.cat([self.norm(x[:, self.at]), x[:, self.others]], 1))
        return logits


def observed(
    encoder: TableEncoder,
    x: Tensor,
    labels: Tensor,
    at: list[int] | None = None,
    activation: type[nn.Module] = nn.ReLU,
    raw: bool = False,
    dropout: float = 0.0,
    **options: Any,
) -> ClientUpdate:
    """The update of a client that normalizes numbers, or the positions ``at``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        chosen = at or encoder.numerical_positions
        module = NumbersNormalized(chosen, encoder.width, (60, 40), activation, raw, dropout)
    spec = NetworkSpec(hand_over(module), 2, encoder.layout)
    return client_update(module, spec, encoder, x, labels, share_labels=False, **options)[0]


def normalized(values: Tensor) -> Tensor:
    return (values - values.mean(0)) / (values.var(0, unbiased=False) + 1e-5).sqrt()


def rows_right(found: Reconstruction, encoder: TableEncoder, x: Tensor, labels: Tensor, clients: int = 1) -> Tensor:
    """Which rows have the categories, label and normalized numbers of a true one, bool ``[n]``."""
    assert found.certificate is not None
    at = encoder.numerical_positions
    mean, deviation = torch.tensor(list(found.certificate.assumed_statistics.values()), dtype=torch.float64).T
    true = torch.cat([normalized(part[:, at].double()) for part in x.chunk(clients)])
    guess = (found.encoded[:, at].double() * encoder.scale[at] + encoder.shift[at] - mean) / deviation
    alike = (encoder.project(x)[0].unsqueeze(0) == encoder.project(found.encoded)[0].unsqueeze(1)).all(-1)
    alike &= labels.unsqueeze(0) == found.labels.unsqueeze(1)
    near = (true.unsqueeze(0) - guess.unsqueeze(1)).abs() < 0.01
    return (alike & near.all(-1)).any(1)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_of_one_client_the_mean_alone_stays_open(make_batch: Callable[..., Any], encoding: str) -> None:
    batch = make_batch(10, encoding=encoding)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    found = EXACT.run(observed(encoder, x, labels))
    assert found.certificate is not None and found.certificate.complete and all(found.certificate.normalized_proven)
    reason = found.certificate.feasibility.reason
    assert "area, points, fee, edition are open up to a shift" in reason
    assert "rooms" not in reason.partition("those of")[2]  # whole numbers make the scale exact
    true, guess = (encoder.project(rows.double(), clamp=False)[1] for rows in (x, found.encoded))
    pairs = zip(true.T, guess.T, batch.encoder.schema.numerical, strict=True)
    for own, other, column in pairs:
        apart = [(values.sort().values - values.min()) for values in (own, other)]
        torch.testing.assert_close(apart[1], apart[0], atol=0.02 * float(own.std()) + 1e-6, rtol=0.01)
        if column.name == "rooms":  # whole numbers make the scale exact
            torch.testing.assert_close(apart[1], apart[0])


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
    assert tuple(certificate.assumed_statistics) == NUMBERS and all(certificate.normalized_proven)
    assert certificate.residual < 1e-6
    assert bool(rows_right(found, batch.encoder, x, labels).all())
    assert "numbers of rooms, price, area" in certificate.feasibility.reason


def test_numbers_moved_together_give_the_same_answer(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    at = batch.encoder.numerical_positions
    x, labels = batch.truth.inputs.double(), batch.truth.labels
    moved = x.clone()
    moved[:, at] = moved[:, at] - 0.4
    one, other = (EXACT.run(observed(batch.encoder, rows.float(), labels)) for rows in (x, moved))
    each = [found.encoded[:, at].sort(dim=0).values for found in (one, other)]
    torch.testing.assert_close(*each, rtol=1e-2, atol=1e-2)
    assert one.certificate is not None and not any(one.certificate.digits)


def test_a_column_that_is_not_normalized_keeps_its_numbers(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    found = EXACT.run(observed(encoder, x, labels, at=encoder.numerical_positions[1:]))
    assert found.certificate is not None and found.certificate.complete
    assert tuple(found.certificate.assumed_statistics) == NUMBERS[1:]
    rooms = encoder.decode(x)["rooms"]
    assert sorted(found.rows["rooms"]) == sorted(rooms)


def test_of_an_aggregate_each_clients_numbers_are_normalized(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(10)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    sent = [observed(encoder, x[rows], labels[rows]) for rows in (slice(5), slice(5, 10))]
    found = EXACT.run(aggregate_updates(sent))
    assert found.certificate is not None and any(found.certificate.normalized_proven)
    assert "those of rooms, price, area" in found.certificate.feasibility.reason
    right = rows_right(found, encoder, x, labels, clients=2)
    assert bool(right[torch.tensor(found.certificate.normalized_proven)].all())


@pytest.mark.parametrize("attack", ["exact", "audit_max"])
@pytest.mark.parametrize("clients", [1, 2])
def test_where_each_batch_was_normalized_by_itself_the_scale_stays_open(
    make_batch: Callable[..., Any], attack: str, clients: int
) -> None:
    batch = make_batch(10)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    mean = aggregate_updates([observed(encoder, x[rows], labels[rows]) for rows in (slice(5), slice(5, 10))])
    if clients == 1:  # which accumulated the same two batches
        mean = replace(mean, facts=replace(mean.facts, n_clients=1, client_rows=()))
    options = {"tableak": {"steps": 1, "restarts": 1}} if attack == "audit_max" else {}
    found = ATTACKS.get(attack)(**options).run(mean)
    assert found.certificate is not None and all(found.certificate.normalized_proven)
    assert bool(rows_right(found, encoder, x, labels, clients=2).all())
    assert f"a shift, those of {', '.join(NUMBERS)} up to a scale as well" in found.certificate.feasibility.reason


def test_statistics_of_one_of_several_batches_are_refused(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    update = observed(batch.encoder, batch.truth.inputs, batch.truth.labels, share_statistics=True)
    accumulated = replace(update, facts=replace(update.facts, batch_size=4))
    with pytest.raises(ObservationError, match=r"exact needs rows that BatchNorm normalized together; .* batches of 4"):
        ATTACKS.get("exact")(batch_statistics=True).check(accumulated)
    EXACT.check(accumulated)  # which takes the statistics for unknown


def test_statistics_that_are_known_prove_digits(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(8)
    update = observed(batch.encoder, batch.truth.inputs, batch.truth.labels, share_statistics=True)
    found = ATTACKS.get("exact")(batch_statistics=True).run(update)
    assert found.certificate is not None and all(found.certificate.digits) and not found.certificate.assumed_statistics


def test_behind_dropout_the_first_layer_is_read(make_batch: Callable[..., Any]) -> None:
    batch = make_batch(6)
    encoder, (x, labels) = batch.encoder, (batch.truth.inputs, batch.truth.labels)
    found = EXACT.run(observed(encoder, x, labels, dropout=0.2))
    assert found.certificate is not None and not found.certificate.labels_proven
    alike = (encoder.project(x)[0].unsqueeze(0) == encoder.project(found.encoded)[0].unsqueeze(1)).all(-1)
    assert int(alike.any(1).sum()) >= 4


@pytest.mark.parametrize("seen", ["categories", "raw numbers"])
def test_what_is_normalized_must_be_numbers_that_nothing_else_sees(make_batch: Callable[..., Any], seen: str) -> None:
    batch = make_batch(8)
    every = list(range(batch.encoder.width)) if seen == "categories" else None
    update = observed(batch.encoder, batch.truth.inputs, batch.truth.labels, at=every, raw=seen == "raw numbers")
    with pytest.raises(UnsupportedError, match="statistics it does not share"):
        EXACT.run(update)
