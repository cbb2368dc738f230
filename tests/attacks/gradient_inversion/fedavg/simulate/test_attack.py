"""A whole attack on a FedAvg update: rows come back, wrong use is refused before work, the truth is never read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.fedavg.simulate import attack as attack_module
from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.attacks.gradient_inversion.fedavg.simulate.config import FedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_counts import restore_whole_counts
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_split import shared_positions
from lightleak.attacks.gradient_inversion.fedavg.simulate.problem import (
    bytes_per_candidate,
    schedule_of,
    segment_length,
)
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.image_similarity import matched_psnr
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import ImageScale
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import aggregate_updates

MakeFedAvg = Callable[..., tuple[ClientUpdate, GroundTruth]]
Measure = Callable[[Reconstruction, GroundTruth], float]
FEDAVG = ["fedavg_prior", "fedavg_no_prior", "fedavg_shared", "fedavg_epoch", "fedavg_fedsgd"]
TABULAR = ["tableak_fedavg", "inverting_gradients_fedavg"]
SHORT: dict[str, Any] = {"steps": 3}


def test_two_rows_come_back_from_three_epochs_of_two_batches(make_fedavg: MakeFedAvg, cell_accuracy: Measure) -> None:
    update, truth = make_fedavg(2, training=LocalTraining(3, 1, 0.05), hidden=[40, 30])
    found = ATTACKS.get("tableak_fedavg")(steps=400, restarts=4, label_order="batches").run(update, seed=1)
    assert cell_accuracy(found, truth) >= 0.9
    assert sorted(found.labels.tolist()) == sorted(truth.labels.tolist())
    assert found.loss < 0.05


def test_simulation_beats_taking_the_update_for_one_gradient(make_fedavg: MakeFedAvg, cell_accuracy: Measure) -> None:
    make = ATTACKS.get("tableak_fedavg")
    scores: dict[str, float] = {"full": 0.0, "fedsgd": 0.0}
    for seed in range(2):
        update, truth = make_fedavg(6, seed=seed, training=LocalTraining(3, 3, 0.5), hidden=[40, 30])
        for simulation in scores:
            attack = make(steps=200, restarts=2, simulation=simulation)
            scores[simulation] += cell_accuracy(attack.run(update, seed), truth) / 2
    assert scores["full"] > scores["fedsgd"] + 0.05


@pytest.mark.parametrize("name", [*FEDAVG, *TABULAR])
def test_every_attack_runs_on_any_update_and_repeats_itself(make_fedavg: MakeFedAvg, name: str) -> None:
    update, _ = make_fedavg(5, training=LocalTraining(2, 2, 0.05), hidden=[7])
    attack = ATTACKS.get(name)(**SHORT)
    one, other = attack.run(update, 3), attack.run(update, 3)
    pd.testing.assert_frame_equal(one.rows, other.rows)
    assert one.rows.shape == (5, 5) and torch.equal(one.encoded, other.encoded)
    assert not torch.equal(one.encoded, attack.run(update, 4).encoded)


def test_a_result_does_not_depend_on_its_neighbors_or_on_chunks(make_fedavg: MakeFedAvg) -> None:
    updates = [make_fedavg(4, seed=seed, hidden=[9])[0] for seed in range(3)]
    attack = ATTACKS.get("tableak_fedavg")(steps=4, restarts=3, precision="float64")
    together = attack.run_many(updates, [5, 6, 7])
    for update, seed, found in zip(updates, [5, 6, 7], together, strict=True):
        torch.testing.assert_close(attack.run(update, seed).encoded, found.encoded, rtol=0, atol=1e-9)
    small = ATTACKS.get("tableak_fedavg")(steps=4, restarts=3, precision="float64", memory_mb=1)
    small.bytes_per_restart = lambda update: 2**20  # one candidate at a time
    torch.testing.assert_close(small.run(updates[0], 5).encoded, together[0].encoded, rtol=0, atol=1e-9)


def test_the_order_of_known_counts_tells_nothing(make_fedavg: MakeFedAvg) -> None:
    update, _ = make_fedavg(6, share_labels="counts", hidden=[8])
    assert update.labels is not None and update.batch_labels is None
    turned = replace(update, labels=update.labels.flip(0))
    assert not torch.equal(turned.labels, update.labels)
    attack = ATTACKS.get("tableak_fedavg")(**SHORT)
    assert torch.equal(attack.run(update, 0).encoded, attack.run(turned, 0).encoded)


@pytest.mark.parametrize("reshuffle", [False, True])
@pytest.mark.parametrize("simulation", ["full", "shared"])
def test_the_true_rows_have_no_loss(make_fedavg: MakeFedAvg, simulation: str, reshuffle: bool) -> None:
    """By that loss restarts are chosen; with reshuffled batches every epoch has its own order of labels."""
    training = LocalTraining(3, 6, 0.5, reshuffle=reshuffle)  # one batch, in which only labels have a place
    update, truth = make_fedavg(6, seed=3, training=training, dtype=torch.float64, hidden=[9])
    assert update.batch_labels is not None and 0 < int(truth.labels.sum()) < 6
    attack = ATTACKS.get("tableak_fedavg")(simulation=simulation, label_order="batches", precision="float64")
    posed = attack.pose([(update, 0)], attack.codec(update, torch.device("cpu")), torch.device("cpu"), torch.float64)
    rows = truth.inputs.double()[shared_positions(torch.stack([truth.labels, posed.labels[0]]))[1]]
    loss, _ = posed.matcher.value_and_grad(posed.variables_of(rows.view(1, 1, *rows.shape)))
    assert loss.item() == pytest.approx(0, abs=1e-9)


def test_epochs_that_are_not_told_are_tried(make_fedavg: MakeFedAvg) -> None:
    training = LocalTraining(4, 3, 0.2, reshuffle=False)
    update, _ = make_fedavg(6, training=training, hidden=[30])
    hidden = replace(update, batch_labels=None, facts=replace(update.facts, epochs=None, batch_size=None))
    assert hidden.facts.local_steps == 8
    attack = ATTACKS.get("tableak_fedavg")(steps=30, restarts=1)
    found = attack.run(hidden, 0)
    each = {e: ATTACKS.get("tableak_fedavg")(steps=30, restarts=1, assumed_epochs=e).run(hidden, 0) for e in (4, 8)}
    assert found.loss == min(one.loss for one in each.values())  # one or two epochs would leave batches without rows
    work: list[float] = []
    attack.run_many([hidden], [0], progress=work.append)
    assert sum(work) == pytest.approx(1)


def test_an_aggregate_is_simulated_client_by_client(make_fedavg: MakeFedAvg, cell_accuracy: Measure) -> None:
    pairs = [make_fedavg(2, seed=seed, training=LocalTraining(2, 2, 0.05), hidden=[40, 30]) for seed in range(2)]
    together = aggregate_updates([update for update, _ in pairs])
    truth = GroundTruth(torch.cat([t.inputs for _, t in pairs]), torch.cat([t.labels for _, t in pairs]))
    found = ATTACKS.get("tableak_fedavg")(steps=400, restarts=4).run(together, seed=0)
    assert len(found.rows) == 4
    assert cell_accuracy(found, truth) > 0.75


@pytest.mark.parametrize("labels", ["interpolated", "geng_server", "geng_client"])
def test_labels_are_restored(make_fedavg: MakeFedAvg, labels: str) -> None:
    update, _ = make_fedavg(6, share_labels="none", hidden=[20])
    found = ATTACKS.get("tableak_fedavg")(labels=labels, **SHORT).run(update, 0)
    assert len(found.labels) == 6 and found.threat_model.labels == "restored"


@pytest.mark.parametrize("encoding", ["onehot", "minmax", "quantile"])
def test_labels_are_restored_by_dummy_rows_from_where_rows_lie(
    make_fedavg: MakeFedAvg, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, _ = make_fedavg(6, share_labels="none", encoding=encoding, hidden=[20])
    seen = []

    def spy(update: ClientUpdate, steps: int, dummy: torch.Tensor, method: Any) -> torch.Tensor:
        seen.append(dummy)
        return restore_whole_counts(update, steps, dummy, method)

    monkeypatch.setattr(attack_module, "restore_whole_counts", spy)
    ATTACKS.get("tableak_fedavg")(labels="interpolated", **SHORT).run(update, 0)
    lower, upper = TableEncoder.of(update).encoded_bounds()
    (dummy,) = seen
    assert ((dummy >= lower - 1e-5) & (dummy <= upper + 1e-5)).all()


def test_images_without_labels_are_attacked(make_images: MakeFedAvg) -> None:
    update, _ = make_images()
    found = ATTACKS.get("fedavg_prior")(labels="interpolated", **SHORT).run(replace(update, labels=None), 0)
    assert len(found.labels) == 4 and found.threat_model.labels == "restored"


def test_a_network_without_a_closed_form_is_attacked_too(make_fedavg: MakeFedAvg) -> None:
    update, _ = make_fedavg(6, network="resnet", training=LocalTraining(2, 3, 0.05))
    found = ATTACKS.get("tableak_fedavg")(steps=2, restarts=2).run(update, 0)
    assert found.encoded.isfinite().all()


@pytest.mark.parametrize("name", FEDAVG)
def test_images_are_attacked(make_images: MakeFedAvg, name: str) -> None:
    update, _ = make_images()
    found = ATTACKS.get(name)(total_variation=1e-3, clip=1.0, prior_statistic="conv_max", **SHORT).run(update, 0)
    assert found.rows.shape == (4, 36) and found.rows.to_numpy().min() >= 0 and found.rows.to_numpy().max() <= 1
    assert found.uncertainty.isna().all(axis=None)


def test_images_come_back(make_images: MakeFedAvg) -> None:
    update, truth = make_images(2, training=LocalTraining(2, 1, 0.05))
    scale = ImageScale.from_state(update.encoder)
    before = torch.randn(2, 36)
    found = ATTACKS.get("fedavg_prior")(steps=300, learning_rate=0.1, epoch_prior=0.01, clip=0.1).run(update, 0)

    def quality(rows: torch.Tensor) -> float:
        return float(matched_psnr(scale.decode(rows).flatten(1), scale.decode(truth.inputs).flatten(1)).mean())

    assert quality(found.encoded) > quality(before) + 5


@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_the_cosine_does_not_depend_on_the_scale_of_an_update(make_fedavg: MakeFedAvg, factor: float) -> None:
    update, _ = make_fedavg(4, hidden=[9])
    scaled = replace(update, update={name: (t.double() * factor).float() for name, t in update.update.items()})
    attack = ATTACKS.get("tableak_fedavg")(**SHORT, restarts=2)
    assert attack.run(scaled, 1).loss == pytest.approx(attack.run(update, 1).loss, rel=1e-3)


def test_memory_is_bounded_by_segments(make_fedavg: MakeFedAvg) -> None:
    update, _ = make_fedavg(10, training=LocalTraining(10, 1, 0.05), hidden=[100, 100])
    roomy, tight = FedAvgConfig(restarts=2, memory_mb=1024), FedAvgConfig(restarts=2, memory_mb=1)
    steps = schedule_of(update, roomy).steps
    assert segment_length(update, roomy) == steps == 100
    few = segment_length(update, tight)
    assert 1 <= few < steps
    assert bytes_per_candidate(update, tight, few) < 0.5 * bytes_per_candidate(update, tight, steps)
    one, other = (FedAvgInversion("a", "", replace(c, steps=2)).run(update, 0) for c in (roomy, tight))
    torch.testing.assert_close(one.encoded, other.encoded)


GRADIENT = {"kind": "gradient"}
WRONG: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ("a gradient", {}, GRADIENT, {}, "simulates local training .FedAvg.; this update is one FedSGD gradient"),
    ("no count", {"n_clients": None}, {"batch_labels": None}, {}, "does not say how many .n_clients."),
    ("uneven clients", {"n_clients": 2, "client_rows": (2, 4)}, {"batch_labels": None}, {}, "equally many rows"),
    ("rows that do not sum", {"n_clients": 4}, {"batch_labels": None}, {}, "do not make up"),
    ("steps against E and m", {"local_steps": 5}, {}, {}, "5 local steps contradict"),
    ("steps against both", {"local_steps": 8}, {}, {}, "8 local steps contradict 2 epochs of 2 batches"),
    ("nothing told", {"epochs": None, "local_steps": None}, {"batch_labels": None}, {}, "number of its steps"),
    ("no learning rate", {"learning_rate": None}, {}, {}, "needs the local learning rate, got None"),
    ("Adam", {"optimizer": "adam"}, {}, {}, "simulates local SGD; the clients trained with 'adam'"),
    ("another loss", {"loss": "mse"}, {}, {}, "needs the loss 'cross_entropy', got 'mse'"),
    ("no labels", {}, {"labels": None, "batch_labels": None}, {}, "labels: restored in the config.*interpolated"),
    ("no batch labels", {}, {"batch_labels": None}, {"label_order": "batches"}, "does not share the labels of its"),
    ("no divisor", {}, {}, {"assumed_epochs": 3}, "must divide the update's 4 local steps, got 3"),
    (
        "other epochs",
        {},
        {},
        {"assumed_epochs": 4, "label_order": "batches"},
        "needs the update's own epochs .2., got 4",
    ),
    ("empty batches", {}, {"batch_labels": None}, {"assumed_epochs": 1}, "6 rows cannot be cut into 4 batches"),
    (
        "empty batches told",
        {"epochs": 1, "batch_size": None},
        {"batch_labels": None},
        {},
        "6 rows cannot be cut into 4 batches of equal size",
    ),
    (
        "labels of other rows",
        {},
        {"labels": torch.zeros(6, dtype=torch.long)},
        {"label_order": "batches"},
        "every epoch of batch_labels must be an order of the client's labels",
    ),
    ("image priors", {}, {}, {"total_variation": 1.0}, "are for images; this update is on rows of a table"),
]


@pytest.mark.parametrize(("facts", "fields", "options", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_use_is_refused_before_any_work(
    make_fedavg: MakeFedAvg,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    fields: dict[str, Any],
    options: dict[str, Any],
    message: str,
) -> None:
    good, _ = make_fedavg(6, training=LocalTraining(2, 3, 0.05), hidden=[8])
    wrong = replace(good, **{**fields, "facts": replace(good.facts, **facts)})
    monkeypatch.setattr(FedAvgInversion, "pose", lambda *_: pytest.fail("work was begun"))
    with pytest.raises((ObservationError, UnsupportedError), match=message):
        ATTACKS.get("tableak_fedavg")(**options).run_many([good, wrong], [0, 1])


def test_an_attack_on_tables_refuses_images(make_images: MakeFedAvg) -> None:
    update, _ = make_images()
    gradient = replace(update, kind="gradient", facts=replace(update.facts, epochs=1), batch_labels=None)
    with pytest.raises(UnsupportedError, match="tableak reconstructs rows of a table; this update is on images"):
        ATTACKS.get("tableak")(steps=1).run(gradient)


@pytest.mark.parametrize("name", ["tableak", "inverting_gradients"])
def test_an_attack_on_gradients_refuses_a_weight_delta(make_fedavg: MakeFedAvg, name: str) -> None:
    update, _ = make_fedavg()
    with pytest.raises(
        ObservationError, match=f"{name} inverts one FedSGD gradient; this update is a delta of 2 epochs"
    ):
        ATTACKS.get(name)(steps=1).run(update)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch_prior": -1.0}, "epoch_prior must be at least 0"),
        ({"simulation": "none"}, "simulation must be one of full, shared, epoch, fedsgd"),
        ({"labels": "geng"}, "labels must be one of true, interpolated, geng_server, geng_client"),
        ({"assumed_epochs": 0}, "assumed_epochs must be at least 1"),
        ({"label_order": "batches", "labels": "interpolated"}, "label_order 'batches' needs labels 'true'"),
        ({"lambda_inv": 1}, "has no setting lambda_inv"),
    ],
)
def test_a_setting_without_meaning_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ATTACKS.get("tableak_fedavg")(**options)


def test_the_truth_is_never_needed(make_fedavg: MakeFedAvg) -> None:
    update, truth = make_fedavg(4, share_labels="counts", hidden=[8])
    attack = ATTACKS.get("tableak_fedavg")(**SHORT)
    before = attack.run(update, 0)
    truth.inputs.fill_(7)
    truth.labels.fill_(0)
    assert torch.equal(attack.run(update, 0).encoded, before.encoded)


def test_the_threat_model_says_what_is_known(make_fedavg: MakeFedAvg) -> None:
    told = ATTACKS.get("tableak_fedavg")(label_order="batches").threat_model.describe()
    assert "which batch holds which labels" in told and "how the client trained" in told
    assert "the number of rows of each class" in told
    assert "which batch" not in ATTACKS.get("tableak_fedavg")().threat_model.describe()
