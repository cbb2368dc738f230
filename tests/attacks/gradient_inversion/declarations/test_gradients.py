"""The published attacks are configurations of one engine, each with the settings of its paper."""

from dataclasses import fields

import pytest

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.core.errors import UsageError

# What each attack has that TabLeak has not (TabLeak Sec. 4: ablations; App. C.3: GradInversion's adaption).
DIFFERENCES = {
    "tableak": {},
    "tableak_no_pooling": {"restarts": 1, "pooling": "none"},
    "tableak_no_softmax": {"categorical": "none"},
    "inverting_gradients": {"restarts": 1, "pooling": "none", "categorical": "none", "numerical": "none"},
    "deep_gradient_leakage": {
        "restarts": 1,
        "pooling": "none",
        "categorical": "none",
        "numerical": "none",
        "objective": "squared_error",
    },
    "gradinversion": {
        "restarts": 1,
        "pooling": "none",
        "categorical": "none",
        "numerical": "none",
        "l2_prior": 1e-4,
        "batch_norm_prior": 1e-3,
    },
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_an_attack_differs_from_tableak_in_these_settings(name: str) -> None:
    attack = ATTACKS.get(name)()
    assert isinstance(attack, GradientInversion)
    assert attack.name == name and len(attack.citation) > 20
    assert attack.options() == InversionConfig(**DIFFERENCES[name]).to_dict()
    assert attack.threat_model.labels == "true"
    assert attack.threat_model.batch_statistics is (name == "gradinversion")
    assert ATTACKS.get(name)(labels="geng").threat_model.labels == "restored"


def test_every_registered_attack_says_what_it_assumes() -> None:
    assert set(DIFFERENCES) | {"random"} <= set(ATTACKS.names())
    for name in ATTACKS.names():
        attack = ATTACKS.get(name)()
        assert attack.name == name and attack.citation
        assert "server that knows" in attack.threat_model.describe()
        assert isinstance(attack.options(), dict)


def test_settings_are_changed_by_name() -> None:
    attack = ATTACKS.get("inverting_gradients")(steps=7, restarts=2, pooling="mean")
    assert (attack.config.steps, attack.config.restarts, attack.config.pooling) == (7, 2, "mean")
    assert attack.config.categorical == "none"
    assert set(attack.options()) == {field.name for field in fields(InversionConfig)}


@pytest.mark.parametrize("name", [*DIFFERENCES, "random"])
def test_an_unknown_setting_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="has no setting temperature; settings: "):
        ATTACKS.get(name)(temperature=2)


def test_an_unknown_attack_is_refused_with_the_closest() -> None:
    with pytest.raises(UsageError, match=r"unknown attack 'tabelak' .did you mean 'tableak'"):
        ATTACKS.get("tabelak")
