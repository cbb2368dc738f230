"""The attack on updates of which signs alone were sent."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.joint import signed as of_signed
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals
from lightleak.attacks.gradient_inversion.joint.noised_signs import NoisedSigns
from lightleak.attacks.gradient_inversion.joint.signed import (
    SignInversion,
    SignsConfig,
    are_signs,
    of_signs,
    with_present,
)
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction

WORK = {"restarts": 2, "steps": 150, "sweeps": 2, "rounds": 1, "round_steps": 50}


def right(found: Reconstruction, batch: Any) -> float:
    """Mean over true rows of the share of categories that the most similar row found has."""
    codes, _ = batch.encoder.project(found.encoded.double())
    return float((codes == batch.cells[0].unsqueeze(1)).double().mean(-1).amax(1).mean())


@pytest.mark.parametrize("encoding", ["standardized", "onehot"])
def test_signs_of_the_first_layer_show_which_categories_occur(
    make_batch: Any, encoding: str, held_against: Any, signed: Any
) -> None:
    batch = make_batch(n=6, encoding=encoding)
    problem, *_ = held_against(batch, signed(batch.update))
    narrowed = with_present(problem, problem.target[0].sign())
    occurring = [set(column.unique().tolist()) for column in batch.cells[0].T]
    assert [set(kept.tolist()) for kept in narrowed.space.present] == occurring
    assert any(len(one) < size for one, size in zip(occurring, problem.space.sizes, strict=True))
    shares = [(-minus).exp().sum() for minus in narrowed.prior.categories]  # type: ignore[union-attr]
    torch.testing.assert_close(torch.stack(shares), torch.ones(len(shares)).double())


def test_more_is_recovered_by_who_knows_that_signs_were_sent(make_batch: Any, signed: Any) -> None:
    batch = make_batch(n=4)
    sent = signed(batch.update)
    unaware = JointInversion(JointConfig(noised_restarts=1, noised_steps=80, noised_rounds=0)).run(sent, seed=0)
    aware = SignInversion(SignsConfig(**WORK)).run(sent, seed=0)
    assert right(aware, batch) > max(right(unaware, batch), 0.9)
    assert aware.certificate.certified == 0 and aware.loss < 0.2 and aware.attack == "exact_signs"


def noised(update: ClientUpdate, cut: float, noise: float) -> ClientUpdate:
    """A third of the elements, cut off, with Laplace noise."""
    draws = torch.Generator().manual_seed(0)

    def part(value: Tensor) -> Tensor:
        uniform = torch.rand(value.shape, generator=draws, dtype=value.dtype) - 0.5
        laplace = -noise * uniform.sign() * (1 - 2 * uniform.abs()).log()
        return (value.clamp(-cut, cut) + laplace) * (torch.rand(value.shape, generator=draws) < 1 / 3)

    return replace(update, update={name: part(value) for name, value in update.update.items()})


def test_rows_are_recovered_from_some_noised_elements_by_who_knows_the_noise(make_batch: Any) -> None:
    batch = make_batch(n=2)
    cut = 0.05 * max(float(value.abs().max()) for value in batch.update.update.values())
    sent = noised(batch.update, cut, cut / 5)
    found = SignInversion(SignsConfig(**WORK, cut=cut, noise=cut / 5)).run(sent, seed=0)
    assert right(found, batch) > 0.9
    assert found.loss == pytest.approx(1, abs=0.2)  # as far from what was sent as the noise moved it
    with pytest.raises(ObservationError, match=r"set cut \(largest size before\) and noise"):
        SignInversion(SignsConfig()).check(sent)
    with pytest.raises(UsageError, match=r"cut and noise must both be 0 .* got cut 1 and noise 0"):
        SignsConfig(cut=1.0)


def test_the_signs_of_noised_elements_are_trusted_by_their_odds() -> None:
    sent = (torch.tensor([[2.0, -0.3, 0.1, 0.0]]),)
    whole = Intervals(*of_signs(sent, torch.inf), (torch.ones(1, 4),))
    assert [bound[0].tolist()[-1] for bound in (*whole.lowest, *whole.highest)] == [-math.inf, math.inf]
    made = NoisedSigns.of_signs(whole, sent, cut=1.0, noise=0.2)
    torch.testing.assert_close(made.sizes[0], torch.tensor([[1.0, 1.0, 3.0, 1000.0]]))
    # Off by (1, 0.5, 0.1) where the cut takes 5 for 1; what was left out counts for nothing.
    assert made.missed((torch.tensor([[5.0, 0.2, 0.0, 9.0]]),)) == pytest.approx((1 + 0.5 + 0.1) / 0.2 / 3)
    half = made.to(torch.float16)
    assert half.sent[0].dtype == half.sizes[0].dtype == torch.float16


def test_nothing_is_searched_where_noise_leaves_too_little_to_tell(
    make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_signed, "solve_within", lambda *_: pytest.fail("searched"))
    # The last bias, which shows labels elsewhere, was cut off and noised, too.
    monkeypatch.setattr(of_signed, "labels_within", lambda *_: torch.tensor([1, 1]))
    batch, done = make_batch(n=2), []
    [found] = SignInversion(SignsConfig(cut=1e-5, noise=0.1)).run_many(
        [noised(batch.update, 1e-5, 0.1)], [0], progress=done.append
    )
    assert found.certificate.status == ("missing", "missing") and sum(done) == pytest.approx(1)
    assert found.labels.tolist() == [1, 1]


def test_an_element_tells_less_the_more_noise_there_is() -> None:
    sent = (torch.tensor([[2.0, -0.3, 0.1, 0.0]]),)
    whole = Intervals(*of_signs(sent, torch.inf), (torch.ones(1, 4),))
    told = [NoisedSigns.of_signs(whole, sent, cut=1.0, noise=noise).nats for noise in (0.1, 1.0, 20.0)]
    # Three elements: nearly cut / noise each, and nearly half its square.
    assert told == pytest.approx([3 * 9, 3 / math.e, 3 / 2 / 20**2], rel=0.02)


def test_three_classes_are_served(make_batch: Any, signed: Any) -> None:
    batch = make_batch(n=4, n_classes=3)
    found = SignInversion(SignsConfig(restarts=1, steps=20, sweeps=1, rounds=0)).run(signed(batch.update), seed=0)
    assert len(found.rows) == 4 and found.labels.max() < 3


def test_progress_sums_to_one_and_other_updates_are_refused(make_batch: Any, signed: Any) -> None:
    batch, done = make_batch(n=3), []
    attack = SignInversion(SignsConfig(restarts=1, steps=5, sweeps=1, rounds=1, round_steps=5))
    attack.run_many([signed(batch.update)], [0], progress=done.append)
    assert sum(done) == pytest.approx(1)
    assert are_signs(signed(batch.update).update.values()) and not are_signs(batch.update.update.values())
    whole = replace(batch.update, update={name: value + 1 for name, value in batch.update.update.items()})
    with pytest.raises(ObservationError, match="elements of many sizes"):
        ATTACKS.get("exact_signs")().check(whole)
