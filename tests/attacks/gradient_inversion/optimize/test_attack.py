"""A whole attack: it recovers rows, sees nothing but the observation, touches no generator, and repeats itself."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.optimize import attack as attack_module
from lightleak.attacks.gradient_inversion.optimize import shell
from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.data.encoder import TableEncoder

MakeUpdate = Callable[..., tuple[ClientUpdate, GroundTruth]]
Measure = Callable[[Reconstruction, GroundTruth], float]
GRADIENT_ATTACKS = [
    "tableak",
    "tableak_no_pooling",
    "tableak_no_softmax",
    "inverting_gradients",
    "deep_gradient_leakage",
    "gradinversion",
]


def assert_same(one: Reconstruction, other: Reconstruction, tolerance: float = 0.0) -> None:
    """Everything an attack reports but the time it took."""
    torch.testing.assert_close(one.encoded, other.encoded, rtol=0, atol=tolerance)
    assert torch.equal(one.labels, other.labels)
    if tolerance == 0:
        pd.testing.assert_frame_equal(one.rows, other.rows)
        pd.testing.assert_frame_equal(one.uncertainty, other.uncertainty)
    assert one.loss == pytest.approx(other.loss, abs=tolerance, nan_ok=True)


def destroy(*groups: dict[str, Tensor]) -> None:
    """Overwrite tensors in place."""
    for group in groups:
        for tensor in group.values():
            tensor.fill_(7)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_two_rows_come_back(make_update: MakeUpdate, cell_accuracy: Measure, precision: str) -> None:
    update, truth = make_update(2, hidden=[40, 30])
    found = ATTACKS.get("tableak")(steps=300, restarts=3, precision=precision).run(update, seed=1)
    assert cell_accuracy(found, truth) >= 0.95
    assert found.labels.tolist() == truth.labels.tolist()
    assert found.loss < 0.05
    assert found.encoded.dtype == (torch.float64 if precision == "float64" else torch.float32)


def test_eight_rows_come_back_better_than_a_guess(make_update: MakeUpdate, cell_accuracy: Measure) -> None:
    attack, guess = ATTACKS.get("tableak")(steps=300, restarts=5), ATTACKS.get("random")()
    pairs = [make_update(8, hidden=[100, 100], seed=seed) for seed in range(3)]
    updates, seeds = [update for update, _ in pairs], [0, 1, 2]
    right, guessed = (
        np.mean([cell_accuracy(r, truth) for r, (_, truth) in zip(a.run_many(updates, seeds), pairs, strict=True)])
        for a in (attack, guess)
    )
    assert right > guessed + 0.15


@pytest.mark.parametrize("network", ["resnet", "cnn"])
def test_networks_with_batch_norm_leak_too(make_update: MakeUpdate, cell_accuracy: Measure, network: str) -> None:
    update, truth = make_update(4, network, hidden=[40, 30])
    found = ATTACKS.get("tableak")(steps=200, restarts=3).run(update)
    assert cell_accuracy(found, truth) > cell_accuracy(ATTACKS.get("random")().run(update), truth)


@pytest.mark.parametrize("name", [*GRADIENT_ATTACKS, "random"])
def test_an_attack_knows_the_observation_and_nothing_else(make_update: MakeUpdate, name: str) -> None:
    settings = {} if name == "random" else {"steps": 20, "restarts": 2}
    for network in ("mlp", "resnet"):
        update, truth = make_update(4, network, hidden=[9, 8])
        attack = ATTACKS.get(name)(**settings)
        first = attack.run(update, seed=3)
        truth.inputs.fill_(float("nan"))
        truth.labels.fill_(-1)
        assert_same(attack.run(update, seed=3), first)
        # What was reported is its own: whoever overwrites the observation afterwards does not change it.
        kept = replace(first, encoded=first.encoded.clone(), labels=first.labels.clone(), rows=first.rows.copy())
        copy = replace(
            update,
            **{g: {k: v.clone() for k, v in getattr(update, g).items()} for g in ("parameters", "update", "buffers")},
            labels=update.labels.clone(),
        )
        result = attack.run(copy, seed=3)
        destroy(copy.parameters, copy.update, copy.buffers, {"labels": copy.labels})
        assert_same(result, kept)


@pytest.mark.parametrize("labels", ["true", "geng", "bias"])
@pytest.mark.parametrize("name", [*GRADIENT_ATTACKS, "random"])
def test_an_attack_changes_neither_the_observation_nor_any_generator(
    make_update: MakeUpdate, name: str, labels: str
) -> None:
    settings = {} if name == "random" else {"steps": 5, "restarts": 2, "labels": labels}
    update, _ = make_update(4, "resnet", hidden=[9, 8])
    groups = ("parameters", "update", "buffers", "batch_statistics", "encoder_tensors")
    held = {(g, k): v.clone() for g in groups for k, v in getattr(update, g).items()}
    labels_held = update.labels.clone()
    torch.rand(3), np.random.rand(3), random.random()  # no generator is where a seed would put it
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    with torch.no_grad():  # as in a callback
        ATTACKS.get(name)(**settings).run(update)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), states[1], strict=True))
    assert random.getstate() == states[2]
    assert all(torch.equal(getattr(update, g)[k], v) for (g, k), v in held.items())
    assert torch.equal(update.labels, labels_held)


def test_results_do_not_depend_on_the_global_generators(make_update: MakeUpdate) -> None:
    update, _ = make_update(4, hidden=[9, 8], share_labels=False)
    attack = ATTACKS.get("tableak")(steps=20, restarts=2, labels="geng")
    results = []
    for seed in range(2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        results.append(attack.run(update, seed=5))
    assert_same(*results)
    assert not torch.equal(attack.run(update, seed=6).encoded, results[0].encoded)


@pytest.mark.parametrize("network", ["mlp", "resnet"])
def test_a_result_depends_on_its_update_and_its_seed_alone(make_update: MakeUpdate, network: str) -> None:
    updates = [make_update(4, network, seed, hidden=[9, 8])[0] for seed in range(3)]
    attack = ATTACKS.get("tableak")(steps=25, restarts=3, precision="float64")
    together = attack.run_many(updates, [7, 8, 9])
    for update, seed, found in zip(updates, [7, 8, 9], together, strict=True):
        assert_same(attack.run(update, seed), found, tolerance=1e-5)
    for found, other in zip(attack.run_many(updates[::-1], [9, 8, 7])[::-1], together, strict=True):
        assert_same(found, other, tolerance=1e-5)


def test_updates_of_different_shapes_may_come_in_one_call(make_update: MakeUpdate, encoder: TableEncoder) -> None:
    other = make_update(4, hidden=[9, 8], seed=1)[0]
    tensors = {**other.encoder_tensors, "deviation": 2 * other.encoder_tensors["deviation"]}
    updates = [
        make_update(4, hidden=[9, 8])[0],
        make_update(3, hidden=[9, 8])[0],
        make_update(4, "resnet", hidden=[9, 8])[0],
        replace(other, encoder_tensors=tensors),
        make_update(4, hidden=[9, 8], seed=2)[0],
    ]
    attack, seeds = ATTACKS.get("tableak")(steps=15, restarts=2, precision="float64"), [1, 2, 3, 4, 5]
    told: list[float] = []
    together = attack.run_many(updates, seeds, progress=told.append)
    assert [len(found.rows) for found in together] == [4, 3, 4, 4, 4]
    assert sum(told) == pytest.approx(5)
    for update, seed, found in zip(updates, seeds, together, strict=True):
        assert_same(attack.run(update, seed), found, tolerance=1e-5)
    assert attack.run_many([], []) == []
    with pytest.raises(ValueError, match="zip"):
        attack.run_many(updates, seeds[:2])


@pytest.mark.parametrize("network", ["mlp", "resnet"])
@pytest.mark.parametrize("at_once", [1, 2, 5, 9])
def test_work_in_chunks_is_the_same_work(
    make_update: MakeUpdate, monkeypatch: pytest.MonkeyPatch, network: str, at_once: int
) -> None:
    updates = [make_update(4, network, seed, hidden=[9, 8])[0] for seed in range(3)]
    attack = ATTACKS.get("tableak")(steps=20, restarts=4, precision="float64", keep_ensemble=True, memory_mb=1)
    whole = attack.run_many(updates, [7, 8, 9])
    sizes: list[int] = []
    invert = shell.invert

    def watched(start: Tensor, *rest: object) -> object:
        sizes.append(start.shape[0] * start.shape[1])
        return invert(start, *rest)

    monkeypatch.setattr(shell, "invert", watched)
    monkeypatch.setattr(attack_module, "bytes_per_restart", lambda *_: 2**20 / (at_once + 0.5))
    told: list[float] = []
    chunked = attack.run_many(updates, [7, 8, 9], progress=told.append)
    assert sum(sizes) == 12 and max(sizes) <= at_once and len(sizes) > 1
    assert sum(told) == pytest.approx(3)
    for one, other in zip(whole, chunked, strict=True):
        assert_same(one, other, tolerance=1e-5)
        torch.testing.assert_close(one.ensemble, other.ensemble, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["median", "mean", "none"])
def test_what_is_reported_belongs_together(make_update: MakeUpdate, encoder: TableEncoder, pooling: str) -> None:
    update, _ = make_update(4, hidden=[20, 15])
    found = ATTACKS.get("tableak")(steps=30, restarts=5, pooling=pooling, keep_ensemble=True).run(update, seed=1)
    assert found.ensemble is not None and found.ensemble.shape == (5, 4, encoder.width)
    pd.testing.assert_frame_equal(found.rows, encoder.decode(found.encoded))
    encoder.schema.validate(found.rows, require_label=False)
    assert list(found.uncertainty.columns) == list(found.rows.columns) == list(encoder.schema.names)
    assert found.uncertainty.notna().all(axis=None)
    # The best restart is the one whose rows, as records, fit the gradient best; the others follow its order.
    losses = []
    for restart in found.ensemble:
        rows = encoder.assemble(*encoder.project(restart))
        labels = update.labels.unsqueeze(0)
        matcher = attack_module.build_matcher(
            [update], labels, ATTACKS.get("tableak")().config, torch.device("cpu"), torch.float32
        )
        losses.append(matcher.value_and_grad(rows.view(1, 1, 4, -1))[0].item())
    best = int(np.argmin(losses))
    assert best != 0
    assert found.loss == pytest.approx(losses[best], abs=1e-5)
    assert torch.equal(align(encoder, found.ensemble, best), found.ensemble)
    assert torch.equal(pool(found.ensemble, best, pooling), found.encoded)


def test_a_single_restart_has_no_entropy_and_no_ensemble_unless_asked(make_update: MakeUpdate) -> None:
    update, _ = make_update(3, hidden=[9, 8])
    found = ATTACKS.get("inverting_gradients")(steps=5).run(update)
    assert found.ensemble is None and found.uncertainty.isna().all(axis=None)
    assert found.seconds > 0 and found.attack == "inverting_gradients"


@pytest.mark.parametrize("method", ["geng", "bias"])
def test_labels_are_restored_where_they_are_not_shared(make_update: MakeUpdate, method: str) -> None:
    update, truth = make_update(6, hidden=[100, 100], share_labels=False)
    attack = ATTACKS.get("tableak")(steps=10, restarts=2, labels=method)
    found = attack.run(update)
    assert found.threat_model.labels == "restored"
    assert torch.bincount(found.labels, minlength=2).tolist() == torch.bincount(truth.labels, minlength=2).tolist()
    # The labels of an update that shares them are not read.
    assert_same(attack.run(replace(update, labels=1 - truth.labels)), found)


def test_an_early_stop_stops_early(make_update: MakeUpdate) -> None:
    update, _ = make_update(2, hidden=[40, 30])
    told: list[float] = []
    attack = ATTACKS.get("tableak")(steps=400, restarts=3, stop_below=0.2)
    found = attack.run_many([update], [1], progress=told.append)[0]
    whole = ATTACKS.get("tableak")(steps=400, restarts=3).run(update, seed=1)
    assert sum(told) == pytest.approx(1)
    assert not torch.equal(found.encoded, whole.encoded)


@pytest.mark.parametrize("name", GRADIENT_ATTACKS)
def test_unequal_micro_batches_are_refused(make_update: MakeUpdate, name: str) -> None:
    """Their rows weigh differently in the gradient, which is not that of the mean loss."""
    update, _ = make_update(3, hidden=[9, 8])
    accumulated = replace(update, facts=replace(update.facts, batch_size=2))
    with pytest.raises(ObservationError, match="accumulates 3 rows in batches of 2, the last of which has 1"):
        ATTACKS.get(name)().check(accumulated)


def test_micro_batches_with_normalization_of_their_own_are_refused(make_update: MakeUpdate) -> None:
    update, _ = make_update(4, hidden=[9, 8], norm="batch")
    accumulated = replace(update, facts=replace(update.facts, batch_size=2))
    with pytest.raises(ObservationError, match="BatchNorm normalized together; this gradient accumulates 4 rows"):
        ATTACKS.get("tableak")().check(accumulated)
    ATTACKS.get("tableak")().check(update)
    plain, _ = make_update(4, hidden=[9, 8])
    ATTACKS.get("tableak")().check(replace(plain, facts=replace(plain.facts, batch_size=2)))
