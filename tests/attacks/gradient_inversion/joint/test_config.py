"""Settings of joint inversion."""

import json
from typing import Any

import pytest

from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.core.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restarts", 0),
        ("steps", 1.5),
        ("rounds", -1),
        ("reopenings", True),
        ("ridge", 0.0),
        ("ridge", None),
        ("noise", -1e-3),
        ("noise", float("nan")),
        ("prior", "guess"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        JointConfig().with_options(**{name: value})


def test_unknown_settings_are_named() -> None:
    with pytest.raises(UsageError, match=r"no setting sweep; settings: .*sweeps"):
        JointConfig().with_options(sweep=3)


def test_settings_are_json_ready() -> None:
    config = JointConfig().with_options(noise=0, steps=10)
    assert JointConfig(**json.loads(json.dumps(config.to_dict()))) == config
