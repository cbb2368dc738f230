"""Several clients as one: their mean by rows, and only what holds for all of them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.protocols import fedsgd
from lightleak.protocols.aggregate import aggregate_updates, weighted_mean
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.records import RecordedAggregate
from lightleak.protocols.replay import replay, require_replay
from lightleak.targets import NetworkSpec, build_network

Client = Callable[..., Any]


def changed(update: ClientUpdate, **facts: Any) -> ClientUpdate:
    return dataclasses.replace(update, facts=dataclasses.replace(update.facts, **facts))


@settings(max_examples=15)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_the_mean_is_weighted_by_rows(client: Client, sizes: list[int], seed: int) -> None:
    clients = [client(range(n), seed=seed + i) for i, n in enumerate(sizes)]
    updates = [update for update, _ in clients]
    together = aggregate_updates(updates)
    for name, value in together.update.items():
        expected = sum(u.update[name].double() * n for u, n in zip(updates, sizes, strict=True)) / sum(sizes)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-8)
    facts = together.facts
    assert (facts.n_rows, facts.n_clients, facts.client_rows) == (sum(sizes), len(sizes), tuple(sizes))
    assert torch.equal(together.labels, torch.cat([u.labels for u in updates]))
    assert (together.batch_labels is None) == (len(set(sizes)) > 1)
    assert require_replay(together, RecordedAggregate.of([truth for _, truth in clients])) == 0.0


def test_labels_are_kept_client_after_client(client: Client) -> None:
    one, other = (client(chosen)[0] for chosen in (range(12), range(12, 24)))
    together = aggregate_updates([one, other])
    assert torch.equal(together.labels[12:], other.labels)
    assert together.batch_labels.shape == (2, 2, 12)
    assert torch.equal(together.batch_labels[1], other.batch_labels[0])
    some = aggregate_updates([one, dataclasses.replace(other, labels=None, batch_labels=None)])
    assert some.labels is None
    assert some.batch_labels is None
    counts = aggregate_updates([one, dataclasses.replace(other, batch_labels=None)])
    assert counts.labels is not None
    assert counts.batch_labels is None


def test_local_steps_are_stated_where_all_clients_made_them(client: Client) -> None:
    (four, _), (five, _), (twelve, _) = (client(range(n)) for n in (4, 7, 12))
    assert aggregate_updates([five, five]).facts.local_steps == 4
    assert aggregate_updates([four, twelve]).facts.local_steps is None


def test_unknown_epochs_stay_unknown(client: Client) -> None:
    hidden = [
        changed(dataclasses.replace(client(range(12), seed=seed)[0], batch_labels=None), epochs=None, batch_size=None)
        for seed in (0, 1)
    ]
    together = aggregate_updates(hidden)
    assert (together.facts.epochs, together.facts.batch_size, together.facts.local_steps) == (None, None, 6)


def releases(client: ClientUpdate, *shares: float) -> ClientUpdate:
    """A gradient, and further ones of the same rows at the same weights: it times each share."""
    scaled = ({name: share * value for name, value in client.update.items()} for share in (1.0, *shares))
    return ClientUpdate.of_releases([dataclasses.replace(client, update=update) for update in scaled])


def test_every_release_is_averaged(encoder: TableEncoder, rows: tuple[Tensor, Tensor]) -> None:
    spec = NetworkSpec("mlp", 2, encoder.layout)
    network = build_network(spec, seed=1)
    one, other = (
        changed(
            fedsgd.client_update(network, spec, encoder, *(part[chosen] for part in rows), share_labels=False)[0],
            batch_size=None,
        )
        for chosen in (slice(4), slice(4, 16))
    )
    together = aggregate_updates([releases(one, 2.0, 3.0), releases(other, 4.0, 5.0)])
    for name, sent in together.further_updates.items():
        for release, shares in zip(sent, ((2.0, 4.0), (3.0, 5.0)), strict=True):
            expected = (shares[0] * 4 * one.update[name] + shares[1] * 12 * other.update[name]) / 16
            torch.testing.assert_close(release, expected)
    for fewer in (releases(other, 4.0), other):
        with pytest.raises(ObservationError, match="must share the further parameters; update 1 differs"):
            aggregate_updates([releases(one, 2.0, 3.0), fewer])


def test_an_aggregate_survives_its_journey(client: Client, tmp_path: Path) -> None:
    updates = [client(range(12), seed=seed, norm="batch")[0] for seed in (0, 1)]
    together = aggregate_updates(updates)
    together.save(tmp_path)
    loaded = ClientUpdate.load(tmp_path)
    assert loaded.facts == together.facts
    assert torch.equal(loaded.batch_labels, together.batch_labels)
    # A stored update and a fresh one may be put together.
    updates[0].save(tmp_path / "one")
    again = aggregate_updates([ClientUpdate.load(tmp_path / "one"), updates[1]])
    assert all(torch.equal(again.update[name], value) for name, value in together.update.items())


def test_gradients_are_averaged_too(encoder: TableEncoder, rows: tuple[Tensor, Tensor]) -> None:
    """The mean over clients of equal size is the gradient of all their rows."""
    spec = NetworkSpec("mlp", 2, encoder.layout)

    def gradient(start: int, end: int) -> ClientUpdate:
        network, batch = build_network(spec, seed=1), (rows[0][start:end], rows[1][start:end])
        return fedsgd.client_update(network, spec, encoder, *batch, share_labels=True)[0]

    together, whole = aggregate_updates([gradient(0, 8), gradient(8, 16)]), gradient(0, 16)
    for name, value in whole.update.items():
        torch.testing.assert_close(together.update[name], value)
    with pytest.raises(ObservationError, match=r"must share batch_size \(8, 5\)"):
        aggregate_updates([gradient(0, 8), gradient(8, 13)])


def test_integers_are_rounded() -> None:
    steps = [{"n": torch.tensor(2)}, {"n": torch.tensor(5)}]
    assert weighted_mean(steps, [1, 1])["n"].dtype == torch.long
    assert int(weighted_mean(steps, [1, 3])["n"]) == 4


def test_half_precision_is_summed_in_single() -> None:
    ones = [{"w": torch.ones(1, dtype=torch.bfloat16)}] * 999
    assert float(weighted_mean(ones, [1] * 999)["w"]) == 1.0


def bent(update: ClientUpdate, group: str) -> ClientUpdate:
    named = dict(getattr(update, group))
    name = next(iter(named))
    return dataclasses.replace(update, **{group: {**named, name: named[name] + 1}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda u: bent(u, "parameters"), "share the parameters; update 1 differs"),
        (lambda u: bent(u, "buffers"), "share the buffers"),
        (lambda u: dataclasses.replace(u, buffers={}), "share the buffers"),
        (lambda u: bent(u, "encoder_tensors"), "share the encoder tensors"),
        (lambda u: dataclasses.replace(u, encoder={**u.encoder, "encoding": "quantile"}), "share the encoder;"),
        (lambda u: dataclasses.replace(u, network={**u.network, "options": {"hidden": [3]}}), "share the network"),
        (lambda u: dataclasses.replace(u, marginals={"job": [0.5, 0.5]}), "share the marginals"),
        (lambda u: dataclasses.replace(u, kind="gradient"), r"share kind \('delta', 'gradient'\)"),
        (lambda u: dataclasses.replace(u, state="noised"), r"share state \('raw', 'noised'\)"),
        (lambda u: dataclasses.replace(u, training_mode=False), r"share training_mode \(True, False\)"),
        (lambda u: changed(u, epoch=3), r"share epoch \(0, 3\)"),
        (lambda u: changed(u, learning_rate=0.2), r"share learning_rate \(0.1, 0.2\)"),
        (lambda u: changed(u, momentum=0.5), r"share momentum \(0.0, 0.5\)"),
        (lambda u: changed(u, batch_size=None), r"share batch_size \(4, None\)"),
        (lambda u: changed(u, defense="clipping"), r"share defense \('none', 'clipping'\)"),
    ],
)
def test_mixed_updates_are_refused(
    client: Client, change: Callable[[ClientUpdate], ClientUpdate], message: str
) -> None:
    update, _ = client(range(12), norm="batch")
    with pytest.raises(ObservationError, match=message):
        aggregate_updates([update, change(update)])


def test_what_cannot_be_put_together_is_refused(client: Client) -> None:
    update, truth = client(range(12))
    together = aggregate_updates([update, update])
    with pytest.raises(ObservationError, match="update 1 is an aggregate of 2 clients itself"):
        aggregate_updates([update, together])
    with pytest.raises(UsageError, match="at least one update, got none"):
        aggregate_updates([])
    with pytest.raises(ObservationError, match="speaks of 24 rows, the recorded batch has 12 rows"):
        replay(together, truth)
    assert replay(aggregate_updates([update]), truth) == 0.0


def test_an_aggregate_of_a_round_moves_as_its_parts(client: Client) -> None:
    """One full-batch step each: the mean of the deltas is the step on all rows (McMahan et al. 2017, Sec. 2)."""
    step = LocalTraining(1, 48, 0.5)
    parts = aggregate_updates([client(range(16), step)[0], client(range(16, 48), step)[0]])
    whole, _ = client(range(48), step)
    for name, value in whole.update.items():
        torch.testing.assert_close(parts.update[name], value, rtol=1e-4, atol=1e-7)
