"""Settings, and how the attack is made of them."""

from dataclasses import fields
from typing import Any

import pytest

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.exact.attack import ExactInversion
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.core.errors import UsageError


def test_settings_survive_the_way_through_a_file() -> None:
    config = ExactConfig().with_options(chains=7, prior="schema")
    assert (config.chains, config.prior, config.sweeps) == (7, "schema", ExactConfig().sweeps)
    assert ExactConfig(**config.to_dict()) == config
    assert set(config.to_dict()) == {field.name for field in fields(ExactConfig)}
    assert ExactConfig().chains == 192  # `with_options` changed a copy


@pytest.mark.parametrize("name", ["chains", "most_chains", "sweeps", "patience"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True, "7", None])
def test_work_is_counted_in_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"{name} must be (a whole number|at least 1), got"):
        ExactConfig(**{name: value})


def test_the_rest_is_checked_too() -> None:
    assert ExactConfig(enumerate_below=0).enumerate_below == 0
    with pytest.raises(UsageError, match="enumerate_below must be at least 0, got -1"):
        ExactConfig(enumerate_below=-1)
    with pytest.raises(UsageError, match="prior must be one of auto, marginals, statistics, schema, got 'truth'"):
        ExactConfig(prior="truth")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="exact has no setting restarts; settings: prior, chains, "):
        ExactConfig().with_options(restarts=3)


def test_the_attack_is_registered_with_its_settings() -> None:
    attack = ATTACKS.get("exact")(patience=3)
    assert isinstance(attack, ExactInversion) and attack.name == "exact"
    assert attack.options() == ExactConfig(patience=3).to_dict()
    with pytest.raises(UsageError, match="exact has no setting steps"):
        ATTACKS.get("exact")(steps=3)


@pytest.mark.parametrize(("prior", "marginals"), [("auto", True), ("marginals", True), ("schema", False)])
def test_the_threat_model_names_what_is_used(prior: Any, marginals: bool) -> None:
    model = ExactInversion(ExactConfig(prior=prior)).threat_model
    assert model.marginals is marginals and model.labels == "restored" and model.update
