"""What a noised gradient can tell at most, and what an attack returns where that is nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion, pose
from lightleak.attacks.gradient_inversion.joint.capacity import gain_at_most, is_hopeless, nats
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.decision import Cells, is_no_better, posterior_draws, resampled
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.seeds import generator


def noised(batch: Any, noise: float) -> JointProblem:
    draws = generator(0, "noise")
    gradient = tuple(
        layer + noise * torch.randn(layer.shape, generator=draws, dtype=layer.dtype)
        for layer in observed_gradient(batch.update)
    )
    return pose(batch.update, batch.encoder, gradient, noise, "auto")


def labels_of(batch: Any) -> torch.Tensor:
    return batch.truth.labels.clone()


def test_noise_takes_nats(make_batch: Any) -> None:
    batch = make_batch(n=6)
    told = [nats(noised(batch, s), labels_of(batch), generator(0, "believed")) for s in (1e-4, 1e-2, 1.0, 100.0)]
    assert told == sorted(told, reverse=True) and told[0] > 100 and told[-1] < 1e-3
    # Where noise is strong the bound is half the signal's variance over the noise's.
    assert told[-2] / told[-1] == pytest.approx(1e4, rel=0.05)
    assert gain_at_most(told[-1], 6 * 4) < 0.01


def test_noise_and_updates_that_are_no_gradients_are_hopeless(make_batch: Any) -> None:
    batch = make_batch(n=6)
    draws = generator(0, "believed")
    assert is_hopeless(noised(batch, 100.0), labels_of(batch), draws)
    weak = noised(batch, 1e-4)
    assert not is_hopeless(weak, labels_of(batch), draws)
    assert is_hopeless(replace(weak, target=tuple(1e-3 * t for t in weak.target)), labels_of(batch), draws)


@pytest.mark.parametrize("noise", [3.0, 1e4])
def test_behind_noise_that_hides_everything_the_attack_returns_the_guess(make_batch: Any, noise: float) -> None:
    batch = make_batch(n=6)
    sent = {
        name: value + noise * torch.randn(value.shape, generator=generator(1, name))
        for name, value in batch.update.update.items()
    }
    update = replace(batch.update, update=sent, state="noised")
    found = JointInversion(JointConfig(noised_restarts=1, noised_steps=20)).run(update, seed=3)
    guess = ATTACKS.get("random")().run(update, seed=3)
    torch.testing.assert_close(found.encoded.float(), guess.encoded.float())
    assert found.certificate is not None and set(found.certificate.status) == {"missing"}


def test_draws_stay_at_the_truth_where_noise_is_weak_and_forget_it_where_it_is_not(make_batch: Any) -> None:
    batch = make_batch(n=6)
    for noise, is_kept in ((1e-4, True), (10.0, False)):
        problem = noised(batch, noise)
        truth = JointRows(*problem.space.coordinates(batch.cells), labels_of(batch))
        cells = Cells.of(problem, truth)
        draws = posterior_draws(problem, truth, generator(0, "draws"))
        common = [cells.in_common(Cells.of(problem, draw), batch.encoder) for draw in draws]
        assert (min(common) > 0.95) == is_kept, common
        other = JointRows(*problem.space.draw(6, generator(5, "others")), truth.labels)
        guess = Cells.of(problem, resampled(noised(batch, 1e4), other, generator(2, "guess")))
        if is_kept:
            assert not is_no_better(problem, truth, guess, generator(1, "draws"))


def test_cells_in_common_do_not_depend_on_the_order_of_rows(make_batch: Any) -> None:
    batch = make_batch(n=6)
    problem = noised(batch, 1e-2)
    cells = Cells.of(problem, JointRows(*problem.space.coordinates(batch.cells), labels_of(batch)))
    assert cells.in_common(Cells(cells.codes.flip(0), cells.values.flip(0)), batch.encoder) == 1
