"""The attack from outside: whole batches come back, and what it certifies is so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.attack import ExactInversion
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import ImageScale
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import client_update as delta_update
from lightleak.targets.spec import NetworkSpec, build_network

FEW = ExactConfig(chains=32, most_chains=32, sweeps=8, patience=2, enumerate_below=6)
"""As little work as still finds rows of small batches."""

WHOLE = ExactConfig(chains=96, most_chains=384)
"""Enough for every batch that is recovered whole here, in half the time of the default."""


def attack(config: ExactConfig = FEW) -> ExactInversion:
    return ExactInversion(config)


def same(one: Reconstruction, other: Reconstruction) -> bool:
    """Bit for bit, seconds aside."""
    pd.testing.assert_frame_equal(one.rows, other.rows, check_exact=True)
    pd.testing.assert_frame_equal(one.uncertainty, other.uncertainty, check_exact=True)
    assert torch.equal(one.labels, other.labels) and torch.equal(one.encoded, other.encoded)
    return one.loss == other.loss and one.certificate == other.certificate


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(
    ("n", "hidden", "n_classes", "seed"),
    [(2, (20, 20), 2, 1), (8, (40, 40), 2, 2), (8, (30, 30, 30), 2, 3), (12, (40, 40), 3, 4), (12, (40, 30, 30), 5, 5)],
)
def test_every_row_and_label_of_a_batch(
    make_batch: Any, recovered: Any, n: int, hidden: tuple[int, ...], n_classes: int, seed: int, encoding: str
) -> None:
    batch = make_batch(n, hidden, n_classes, encoding, seed)
    found = attack(WHOLE).run(batch.update, seed)
    assert recovered(found, batch) == n
    assert found.certificate is not None and found.certificate.complete and found.certificate.certified == n
    assert found.certificate.residual == found.loss < 1e-6
    assert found.certificate.multiplicity == (1,) * n
    batch.encoder.schema.validate(found.rows, require_label=False)
    torch.testing.assert_close(found.encoded, batch.encoder.encode(found.rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("source", ["marginals", "statistics", "schema"])
def test_every_source_of_knowledge_serves(make_batch: Any, recovered: Any, source: Any) -> None:
    batch = make_batch(9, seed=5)
    found = attack(replace(WHOLE, prior=source)).run(batch.update)
    assert recovered(found, batch) == 9 and found.threat_model.marginals is (source == "marginals")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_that_are_equal_come_back_as_often_as_they_are_there(
    make_batch: Any, recovered: Any, n_classes: int
) -> None:
    rows, labels = (3, 50, 3, 90, 120, 50, 3, 7), (0, 1, 0, 0, 1, 0, 0, n_classes - 1)
    batch = make_batch(n_classes=n_classes, rows=rows, labels=labels, seed=3)
    found = attack(WHOLE).run(batch.update)
    assert recovered(found, batch) == 8 and found.certificate is not None and found.loss < 1e-6
    # Rows that differ but share all masks could have the same sum: of those that are equal only the cells are proven.
    assert found.certificate.complete
    assert list(found.certificate.digits) == [times == 1 for times in found.certificate.multiplicity]
    groups = found.rows.groupby("price").size()
    assert found.certificate.multiplicity == tuple(groups[found.rows["price"]].tolist())
    assert sorted(found.certificate.multiplicity) == [1, 1, 1, 2, 2, 3, 3, 3]


def test_the_order_of_the_clients_rows_has_no_meaning(make_batch: Any, recovered: Any) -> None:
    first = make_batch(8, seed=7, rows=tuple(range(8)))
    order = (5, 2, 7, 0, 1, 6, 4, 3)
    labels = tuple(first.truth.labels[list(order)].tolist())
    other = make_batch(8, seed=7, rows=order, labels=labels)
    one, two = (attack(WHOLE).run(batch.update) for batch in (first, other))
    assert recovered(one, first) == recovered(two, first) == recovered(one, other) == 8
    assert one.certificate is not None and two.certificate is not None
    assert sorted(one.certificate.status) == sorted(two.certificate.status)
    assert one.certificate.feasibility == two.certificate.feasibility


@pytest.mark.parametrize(("n", "hidden"), [(7, (24, 24)), (9, (12, 12))])
def test_the_same_seed_gives_the_same_bits(make_batch: Any, n: int, hidden: tuple[int, ...]) -> None:
    """Also where torch's global generator stands elsewhere, other updates are attacked, and the truth is gone."""
    batch, other = make_batch(n, hidden, seed=8), make_batch(3, hidden, seed=9)
    first = attack().run(batch.update, 5)
    torch.manual_seed(77)
    rows, labels = batch.truth.inputs.clone(), batch.truth.labels.clone()
    batch.truth.inputs.fill_(float("nan"))
    batch.truth.labels.fill_(-1)
    try:
        state = torch.get_rng_state()
        told: list[float] = []
        _, again = attack().run_many([other.update, batch.update], [1, 5], progress=told.append)
        assert torch.equal(torch.get_rng_state(), state)  # and does not draw from it either
    finally:
        batch.truth.inputs.copy_(rows)
        batch.truth.labels.copy_(labels)
    assert same(first, again) and sum(told) == pytest.approx(2)


@pytest.mark.parametrize("on_zeros", [False, True])
def test_noise_never_certifies_a_wrong_row(
    make_batch: Any, noised: Any, certified_wrongly: Callable[..., int], on_zeros: bool
) -> None:
    claimed = []
    for seed in range(11 if on_zeros else 22):
        n, hidden = (1, 2, 3, 5, 8)[seed % 5], ((24, 24), (20, 20, 20), (30, 16), (16, 30))[seed % 4]
        clean = make_batch(n, hidden, (2, 3, 5)[seed % 3], ("standardized", "onehot", "minmax")[seed // 2 % 3], seed)
        batch = noised(clean, 10 ** (-7 + 0.5 * (seed % 11)), seed, on_zeros)
        found = attack().run(batch.update, seed)
        assert certified_wrongly(found, batch) == 0, seed
        assert found.certificate is not None
        claimed.append((seed % 11, found.certificate.certified))
    # A test that could fail: little noise leaves proofs, much leaves none.
    assert on_zeros or any(rows for level, rows in claimed if level <= 1)
    assert not any(rows for level, rows in claimed if level >= 5)


def test_a_permuted_gradient_certifies_nothing(make_batch: Any) -> None:
    for seed in range(12):
        batch = make_batch((2, 4, 7)[seed % 3], ((24, 24), (20, 20, 20))[seed % 2], (2, 3)[seed // 2 % 2], seed=seed)
        draws = torch.Generator().manual_seed(seed)
        changed = dict(batch.update.update)
        for name, gradient in changed.items():
            whole = torch.randperm(gradient.numel(), generator=draws).view(gradient.shape)
            if seed % 4 == 0:
                changed[name] = gradient.flatten()[whole]
            elif seed % 4 == 1 and name == "linears.1.weight":
                changed[name] = gradient[torch.randperm(len(gradient), generator=draws)]
            elif (seed % 4, name) in ((2, "linears.1.weight"), (3, "linears.0.weight")):
                changed[name] = gradient[:, torch.randperm(gradient.shape[1], generator=draws)]
        found = attack().run(replace(batch.update, update=changed), seed)
        assert found.certificate is not None and found.certificate.certified == 0, seed
        assert found.loss > 1e-3


@pytest.mark.parametrize("encoding", ["standardized", "onehot"])
def test_near_and_beyond_the_rank_limit_no_row_is_certified_wrongly(
    make_batch: Any, certified_wrongly: Callable[..., int], encoding: str
) -> None:
    statuses = set()
    for seed in range(6):
        hidden = ((16, 16), (24, 14), (14, 14, 14))[seed % 3]
        n = hidden[1] + (-6, -3, 0, 5)[seed % 4]
        batch = make_batch(n, hidden, (2, 3, 5)[seed // 2 % 3], encoding, seed)
        found = attack().run(batch.update, seed)
        assert certified_wrongly(found, batch) == 0, seed
        assert found.certificate is not None
        assert found.certificate.complete or found.loss > 1e-6
        statuses |= set(found.certificate.status)
        batch.encoder.schema.validate(found.rows, require_label=False)
        assert not found.uncertainty.isna().any().any() and len(found.uncertainty) == n
    assert {"certified", "missing"} <= statuses


def test_rows_that_are_missing_are_guesses_of_the_prior_and_say_so(make_batch: Any) -> None:
    batch = make_batch(18, (12, 12), 3, seed=10)
    found = attack().run(batch.update)
    assert found.certificate is not None and found.certificate.feasibility.expected == "approximate"
    assert found.certificate.certified == 0 and "missing" in found.certificate.status
    schema, encoder = batch.encoder.schema, batch.encoder
    schema.validate(found.rows, require_label=False)
    for column, lower, upper in zip(schema.numerical, encoder.lower.tolist(), encoder.upper.tolist(), strict=True):
        assert found.rows[column.name].between(lower - 1e-6, upper + 1e-6).all()
    missing = [i for i, status in enumerate(found.certificate.status) if status == "missing"]
    assert missing == list(range(18 - len(missing), 18))  # guesses stand last
    assert (found.uncertainty.loc[missing, "region"] > 0.2).all()
    expected = torch.bincount(batch.truth.labels, minlength=3)
    assert int((torch.bincount(found.labels, minlength=3) - expected).abs().max()) <= 2


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("factor", [0.3, 0.99, 0.9999, 2.0])
def test_a_client_that_scales_its_gradient_gains_nothing(
    make_batch: Any, recovered: Any, factor: float, rows: int
) -> None:
    batch = make_batch(rows, n_classes=3, seed=11)
    scaled = {name: factor * gradient for name, gradient in batch.update.update.items()}
    found = attack(WHOLE).run(replace(batch.update, update=scaled))
    assert recovered(found, batch) == rows and found.certificate is not None and found.certificate.complete


def test_an_aggregate_of_equal_clients_is_one_batch(make_batch: Any, recovered: Any) -> None:
    clients = [make_batch(4, seed=3, rows=rows) for rows in ((1, 2, 3, 4), (5, 6, 7, 8))]
    both = make_batch(8, seed=3, rows=(1, 2, 3, 4, 5, 6, 7, 8))
    update = aggregate_updates([client.update for client in clients])
    assert update.facts.n_clients == 2 and update.facts.n_rows == 8
    found = attack(WHOLE).run(update)
    assert recovered(found, both) == 8 and found.certificate is not None and found.certificate.complete


def test_an_aggregate_of_unequal_clients_is_refused(make_batch: Any) -> None:
    update = make_batch(7, seed=3).update
    facts = replace(update.facts, n_clients=2, client_rows=(3, 4))
    with pytest.raises(ObservationError, match=r"exact needs clients with equal numbers of rows.*got \[3, 4\]"):
        attack().run(replace(update, facts=facts))


def test_weight_updates_are_sent_to_their_own_attack(make_batch: Any) -> None:
    batch = make_batch(4)
    spec = NetworkSpec.from_dict(batch.update.network)
    training = LocalTraining(epochs=2, batch_size=2, learning_rate=0.01)
    delta, _ = delta_update(
        build_network(spec, 0), spec, batch.encoder, batch.truth.inputs, batch.truth.labels, training,
        share_labels="none", seed=0,
    )  # fmt: skip
    with pytest.raises(ObservationError, match=r"this update is a delta of 2 epochs \(FedAvg\); use exact_fedavg"):
        attack().check(delta)


def test_other_updates_are_refused_before_any_work(make_batch: Any, make_update: Any) -> None:
    update = make_batch(4).update
    scale = ImageScale((1, 1, 38), (0.5,), (0.25,)).to_state()[0]
    with pytest.raises(UnsupportedError, match="exact reconstructs rows of a table; this update is on images"):
        attack().check(replace(update, encoder=scale, encoder_tensors={}))
    with pytest.raises(UnsupportedError, match="exact needs the loss 'cross_entropy', got 'mse'"):
        attack().check(replace(update, facts=replace(update.facts, loss="mse")))
    for network, options, found in (
        ("mlp", {"norm": "batch"}, "MLP mixes the rows of a batch by BatchNorm"),
        ("resnet", {}, "ConcatenatingResNet mixes the rows of a batch by BatchNorm"),
        ("linear", {}, "needs a hidden layer, and .* has none"),
    ):
        with pytest.raises(UnsupportedError, match=found):
            attack().check(make_update(network=network, **options)[0])
    with pytest.raises(ObservationError, match="prior 'marginals': the update carries none"):
        attack(ExactConfig(prior="marginals")).check(replace(update, marginals=None))
    wrong = {name: torch.zeros(3, *value.shape[1:]) for name, value in update.parameters.items()}
    with pytest.raises(ObservationError, match="parameters of the network 'mlp'"):
        attack().check(replace(update, parameters=wrong, update=wrong))
    # One wrong update among several stops all of them.
    with pytest.raises(UnsupportedError, match="Linear has none"):
        attack().run_many([update, make_update(network="linear")[0]], [0, 1])


def test_numbers_that_are_ranks_are_refused(make_batch: Any) -> None:
    batch = make_batch(4)
    frame = batch.encoder.decode(make_batch(40, seed=1).truth.inputs)
    facts, tensors = TableEncoder(batch.encoder.schema, "quantile").fit(frame).to_state()
    with pytest.raises(UnsupportedError, match="an affine map, got the encoding 'quantile'"):
        attack().check(replace(batch.update, encoder=facts, encoder_tensors=tensors))


def test_the_update_is_left_as_it_was(make_batch: Any) -> None:
    update = make_batch(5, seed=12).update
    groups = ("parameters", "update", "encoder_tensors")
    before = {(group, name): value.clone() for group in groups for name, value in getattr(update, group).items()}
    attack().run(update)
    assert all(torch.equal(getattr(update, group)[name], value) for (group, name), value in before.items())
