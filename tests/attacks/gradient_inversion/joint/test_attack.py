"""Joint inversion as an attack."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.metrics.certificate import wrong_certificates

SMALL = JointConfig(
    restarts=2, steps=250, sweeps=4, rounds=2, round_steps=100, reopenings=1, noised_restarts=2, noised_steps=150
)


@pytest.fixture(scope="module")
def solved(make_batch: Any) -> tuple[Any, Reconstruction]:
    batch = make_batch(n=8, hidden=(24, 24))
    return batch, JointInversion(SMALL).run(batch.update, seed=1)


def test_a_small_batch_is_recovered_with_a_certificate(solved: Any, recovered: Callable[..., int]) -> None:
    batch, found = solved
    assert recovered(found, batch, nearly=True) == 8
    assert found.certificate.complete and found.certificate.residual < 1e-5
    assert found.certificate.multiplicity == (1,) * 8
    assert found.attack == "exact_joint" and found.threat_model.labels == "restored"


def test_a_reconstruction_depends_on_update_and_seed_alone(solved: Any) -> None:
    batch, found = solved
    again = JointInversion(SMALL).run(batch.update, seed=1)
    assert found.rows.equals(again.rows) and torch.equal(found.labels, again.labels)
    assert found.certificate == again.certificate


def test_more_rows_than_units_are_recovered(make_batch: Any, recovered: Callable[..., int]) -> None:
    """Beyond the rank limit of exact inversion: 8 rows, 7 units."""
    batch = make_batch(n=8, hidden=(30, 7))
    found = JointInversion(SMALL).run(batch.update)
    assert recovered(found, batch, nearly=True) == 8


@pytest.mark.parametrize("options", [{"n_classes": 3}, {"hidden": (40, 30, 30)}, {"encoding": "minmax"}])
def test_classes_depths_and_encodings(make_batch: Any, recovered: Callable[..., int], options: dict[str, Any]) -> None:
    batch = make_batch(**{"n": 4, "hidden": (24, 24), **options})
    found = JointInversion(SMALL).run(batch.update)
    assert found.certificate is not None and found.certificate.complete
    assert recovered(found, batch, nearly=True) == 4


def test_a_batch_behind_uneven_noise_is_mostly_right_and_nothing_wrong_is_proven(make_batch: Any, noised: Any) -> None:
    """Its tensors have noise of different deviations, which the attack takes to be one."""
    batch = noised(make_batch(n=4, hidden=(30, 30)), 0.02, seed=0, on_zeros=True)
    found = JointInversion(SMALL).run(batch.update)
    assert found.certificate is not None and found.certificate.feasibility.noise > 0
    assert wrong_certificates(found, batch.truth, batch.encoder) == (0, 0)
    codes, _ = batch.encoder.project(found.encoded.double())
    right = (codes.unsqueeze(1) == batch.cells[0]).double().mean(-1).amax(1).mean()
    assert float(right) > 0.9
    assert not found.uncertainty.isna().any(axis=None)


@pytest.mark.parametrize("name", ["exact_joint", "audit_max"])
def test_a_batch_behind_even_noise_is_proven(make_batch: Any, certified_wrongly: Any, name: str) -> None:
    batch = make_batch(n=4, hidden=(30, 30))
    draws = generator(0, "noise")
    changed = {name: g + 1e-4 * torch.randn(g.shape, generator=draws) for name, g in batch.update.update.items()}
    batch = replace(batch, update=replace(batch.update, update=changed, state="noised"))
    settings = SMALL.to_dict() if name == "exact_joint" else {"exact_joint": SMALL.to_dict()}
    found = ATTACKS.get(name)(**settings).run(batch.update, seed=0)
    assert found.certificate is not None and found.certificate.certified == 4 and certified_wrongly(found, batch) == 0


def test_progress_sums_to_one_per_update(make_batch: Any) -> None:
    batch, told = make_batch(n=3), []
    quick = JointConfig(restarts=1, steps=20, rounds=0)
    JointInversion(quick).run_many([batch.update] * 2, [0, 1], progress=told.append)
    assert sum(told) == pytest.approx(2)


def test_an_unsolved_batch_claims_nothing(make_batch: Any) -> None:
    batch = make_batch(n=30, hidden=(12, 12))
    found = JointInversion(JointConfig(restarts=1, steps=5, sweeps=0, rounds=0)).run(batch.update)
    assert found.certificate is not None and found.certificate.certified == 0


def test_updates_without_meaning_are_refused(make_batch: Any) -> None:
    batch, attack = make_batch(), JointInversion(SMALL)
    facts = batch.update.facts
    with pytest.raises(ObservationError, match="FedAvg"):
        attack.check(replace(batch.update, kind="delta"))
    with pytest.raises(ObservationError, match="aggregates 2"):
        attack.check(replace(batch.update, facts=replace(facts, n_clients=2)))
    with pytest.raises(UnsupportedError, match="cross_entropy"):
        attack.check(replace(batch.update, facts=replace(facts, loss="mse")))
    with pytest.raises(UnsupportedError, match="quantile"):
        attack.check(make_batch(encoding="quantile").update)
