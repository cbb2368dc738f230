"""Joint inversion of pruned updates: what was sent is exact, what was left out lies between bounds."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.pruned import Pruned, PrunedConfig, PrunedInversion
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.sparsification import GradientCompression, RandomPruning

WORK = {"noised_restarts": 1, "noised_steps": 80}


def pruned(update: ClientUpdate, defense: GradientCompression | RandomPruning) -> ClientUpdate:
    return replace(update, update=defense.apply(update.update, generator(0, "pruning")), state="noised")


def right(found: Reconstruction, batch: Any) -> float:
    """Mean over true rows of the share of categories that the most similar row found has."""
    codes, _ = batch.encoder.project(found.encoded.double())
    return float((codes == batch.cells[0].unsqueeze(1)).double().mean(-1).amax(1).mean())


def test_more_is_recovered_by_who_knows_what_was_left_out(make_batch: Any) -> None:
    batch = make_batch(n=8, hidden=(30, 30))
    sent = pruned(batch.update, GradientCompression(keep=0.2))
    unaware = JointInversion(JointConfig(noised_rounds=0, **WORK)).run(sent, seed=0)
    aware = PrunedInversion(PrunedConfig(fills=3, **WORK)).run(sent, seed=0)
    assert right(aware, batch) > max(right(unaware, batch), 0.9)
    assert aware.certificate.certified == 0 and aware.attack == "exact_pruned"


def test_bounds_of_what_was_left_out_hold_and_what_was_sent_stays(make_batch: Any) -> None:
    batch = make_batch(n=6, hidden=(40, 40))
    whole = observed_gradient(batch.update)
    sent = observed_gradient(pruned(batch.update, GradientCompression(keep=0.3)))
    found = Pruned.of(sent, "smallest")
    filled = found.filled(whole)
    assert all(torch.equal(one, true) for one, true in zip(filled, whole, strict=True))
    far = found.filled(tuple(1e3 * torch.ones_like(layer) for layer in whole))
    for layer, one in zip(sent, far, strict=True):
        out = layer == 0
        assert torch.equal(one[~out], layer[~out])
        for part in (slice(None, -1), slice(-1, None)):  # weights and biases are pruned each on their own
            smallest = layer[:, part][~out[:, part]].abs().min()
            assert (one[:, part][out[:, part]] == smallest).all()
    left = sum(float((t - s).square().sum()) for t, s in zip(whole, sent, strict=True))
    elements = sum(layer.numel() for layer in sent)
    assert found.deviation == pytest.approx((left / elements) ** 0.5, rel=0.6)


def test_elements_left_out_at_random_may_be_as_large_as_any_sent(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(40, 40))
    sent = pruned(batch.update, RandomPruning(probability=0.3))
    found = Pruned.of(observed_gradient(sent), "any")
    far = found.filled(tuple(1e3 * torch.ones_like(layer) for layer in found.sent))
    assert all((one[layer == 0] == 1e3).all() for one, layer in zip(far, found.sent, strict=True))
    aware = PrunedInversion(PrunedConfig(left_out="any", fills=2, **WORK)).run(sent, seed=0)
    assert right(aware, batch) > 0.9


def test_what_was_cut_off_is_at_least_as_large_and_what_was_not_sent_is_open(make_batch: Any) -> None:
    whole = observed_gradient(make_batch(n=6, hidden=(40, 40)).update)
    cut = [layer.clamp(-1e-3, 1e-3) for layer in whole]
    cut[1][:, -1] = 0  # no biases of the second layer
    found = Pruned.of(tuple(cut), "smallest")
    filled = found.filled(whole)
    assert all(torch.equal(one, true) for one, true in zip(filled, whole, strict=True))
    none = found.filled(tuple(torch.zeros_like(layer) for layer in whole))
    assert all(torch.equal(one, layer) for one, layer in zip(none, cut, strict=True))
    alone = Pruned.of(whole, "smallest")  # the largest element may have been cut off, all others were not
    assert sum(int(each.sum()) for each in alone.open) <= 2


@pytest.mark.parametrize("seed", [0, 1])
def test_what_was_not_sent_follows_and_rows_are_proven_by_what_was(make_batch: Any, cut_off: Any, seed: int) -> None:
    batch = make_batch(n=6, hidden=(40, 40), seed=seed)
    whole, update = observed_gradient(batch.update), cut_off(batch.update)
    sent = Pruned.of(observed_gradient(update), "smallest")
    found = sent.completed(6, batch.encoder)
    missing, before = ((one.sent[1] - whole[1]).abs().max() for one in (found, sent))
    assert found.follows and not found.open[1].any() and float(missing) < 0.01 * float(before)
    rows = PrunedInversion(PrunedConfig(fills=2, **WORK)).run(update, seed=0)
    assert rows.certificate.certified == 6 and right(rows, batch) == 1


def test_what_is_open_proves_nothing(make_batch: Any, cut_off: Any) -> None:
    sent = cut_off(make_batch(n=6, hidden=(40, 40)).update, high=0.3)
    found = PrunedInversion(PrunedConfig(fills=1, **WORK)).run(sent, seed=0)
    assert found.certificate.certified == 0


def test_layers_of_which_much_is_open_do_not_count_beside_one_that_is_known(make_batch: Any) -> None:
    whole = observed_gradient(make_batch(n=6, hidden=(40, 40)).update)
    found = Pruned.of(whole, "smallest")
    none, all_of = (tuple(torch.full_like(layer, value, dtype=torch.bool) for layer in whole) for value in (0, 1))
    assert replace(found, open=(none[0], none[1], all_of[2])).open_layers == {2}
    assert replace(found, open=all_of).open_layers == frozenset()


def test_more_is_recovered_by_who_knows_that_no_biases_are_sent(make_batch: Any) -> None:
    batch = make_batch(n=6, hidden=(30, 30))
    changed = {name: value * (not name.endswith("bias")) for name, value in batch.update.update.items()}
    sent = replace(batch.update, update=changed, state="noised")
    aware = PrunedInversion(PrunedConfig(fills=3, **WORK)).run(sent, seed=0)
    unaware = JointInversion(JointConfig(noise=1e-3, noised_rounds=0, **WORK)).run(sent, seed=0)
    assert right(aware, batch) > max(right(unaware, batch), 0.9)


def test_progress_sums_to_at_most_one(make_batch: Any) -> None:
    batch, done = make_batch(n=3), []
    sent = pruned(batch.update, GradientCompression(keep=0.5))
    attack = PrunedInversion(PrunedConfig(noised_restarts=1, noised_steps=5, fills=1))
    attack.run_many([sent], [0], progress=done.append)
    assert sum(done) == pytest.approx(1)


def test_an_update_that_was_not_pruned_and_unknown_settings_are_refused(make_batch: Any) -> None:
    update = make_batch(n=4).update
    whole = replace(update, update={name: value + 1 for name, value in update.update.items()})
    with pytest.raises(ObservationError, match="no element of zero"):
        ATTACKS.get("exact_pruned")().check(whole)
    with pytest.raises(UsageError, match="fills"):
        PrunedConfig(fills=0)
    with pytest.raises(UsageError, match="left_out"):
        ATTACKS.get("exact_pruned")(left_out="largest")
