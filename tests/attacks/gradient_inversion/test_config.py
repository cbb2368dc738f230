"""Settings: TabLeak's by default, changed by name, refused where they have no meaning."""

import json
import math
from dataclasses import fields

import pytest

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.core.errors import UsageError


def test_the_defaults_are_tableaks() -> None:
    config = InversionConfig()
    # TabLeak Sec. 4 and App. B: 30 restarts, Adam with 0.06 for 1500 steps, sign of the gradient, cosine, median.
    assert (config.restarts, config.steps, config.learning_rate, config.sign) == (30, 1500, 0.06, True)
    assert (config.objective, config.categorical, config.numerical, config.pooling) == (
        "cosine",
        "softmax",
        "sigmoid",
        "median",
    )


def test_options_change_a_copy() -> None:
    config = InversionConfig()
    changed = config.with_options(restarts=3, pooling="mean", stop_below=1e-3)
    assert (changed.restarts, changed.pooling, changed.stop_below) == (3, "mean", 1e-3)
    assert config == InversionConfig()
    assert InversionConfig(**json.loads(json.dumps(changed.to_dict()))) == changed


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="has no setting restart, stepz; settings: restarts, steps, learning_rate"):
        InversionConfig().with_options(stepz=1, restart=2)


BAD = [
    ("restarts", 0, "restarts must be at least 1, got 0"),
    ("steps", -5, "steps must be at least 1, got -5"),
    ("memory_mb", 0, "memory_mb must be at least 1, got 0"),
    ("memory_mb", "all", "memory_mb must be a whole number, got 'all'"),
    ("memory_mb", 0.5, "memory_mb must be a whole number, got 0.5"),
    ("restarts", "30", "restarts must be a whole number, got '30'"),
    ("steps", 1e3, "steps must be a whole number, got 1000.0"),
    ("restarts", True, "restarts must be a whole number, got True"),
    ("learning_rate", 0.0, "learning_rate must be above 0, got 0.0"),
    ("learning_rate", math.nan, "learning_rate must be a finite number, got nan"),
    ("learning_rate", math.inf, "learning_rate must be a finite number, got inf"),
    ("learning_rate", None, "learning_rate must be a finite number, got None"),
    ("l2_prior", -1.0, "l2_prior must be at least 0, got -1.0"),
    ("batch_norm_prior", -1, "batch_norm_prior must be at least 0, got -1"),
    ("stop_below", "never", "stop_below must be a finite number, got 'never'"),
    ("sign", 1, "sign must be true or false, got 1"),
    ("keep_ensemble", "no", "keep_ensemble must be true or false, got 'no'"),
    ("objective", "l2", "objective must be one of cosine, squared_error, relative_error, got 'l2'"),
    ("categorical", "gumbel", "categorical must be one of softmax, none, got 'gumbel'"),
    ("numerical", "tanh", "numerical must be one of sigmoid, none, clamp, got 'tanh'"),
    ("pooling", "mode", "pooling must be one of median, mean, none, got 'mode'"),
    ("labels", "restored", "labels must be one of true, geng, bias, got 'restored'"),
    ("initialization", "zero", "initialization must be one of unit, symmetric, normal, prior, got .zero."),
    ("schedule", "linear", "schedule must be one of step, cosine, got 'linear'"),
    ("numerical_learning_rate", 0.0, "numerical_learning_rate must be above 0, got 0.0"),
    ("whitening", -1e-2, "whitening must be above 0, got -0.01"),
    ("mask_derivative", "soft", "mask_derivative must be one of zero, straight_through, got 'soft'"),
    ("mask_width", 0.0, "mask_width must be above 0, got 0.0"),
    ("mask_width_end", -0.1, "mask_width_end must be above 0, got -0.1"),
    ("prior_weight", -1.0, "prior_weight must be at least 0, got -1.0"),
    ("temperature_end", 0.0, "temperature_end must be above 0, got 0.0"),
    ("mask_absent", 1, "mask_absent must be true or false, got 1"),
    ("tie_numbers", "yes", "tie_numbers must be true or false, got 'yes'"),
    ("learning_rate_decay", 1.5, "learning_rate_decay must be above 0 and at most 1, got 1.5"),
    ("decay_every", 0, "decay_every must be at least 1, got 0"),
    ("entropy", "hard", "entropy must be one of frequency, soft, got 'hard'"),
    ("precision", "float16", "precision must be one of float32, float64, bfloat16, tf32, got 'float16'"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD, ids=lambda part: str(part)[:20])
def test_a_value_without_meaning_is_refused_when_it_is_set(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InversionConfig(**{name: value})
    with pytest.raises(UsageError, match=message):
        InversionConfig().with_options(**{name: value})


def test_every_setting_has_a_case() -> None:
    assert {name for name, *_ in BAD} == {field.name for field in fields(InversionConfig)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "cosine", "learning_rate_decay": 0.5}, "schedule 'cosine' needs learning_rate_decay 1, got 0.5"),
        ({"stop_below": 0.05, "temperature_end": 0.1}, "stop_below needs temperature_end 1, got 0.1"),
        ({"initialization": "prior"}, "initialization 'prior': needs categorical 'softmax', got 'none'"),
        ({"temperature_end": 0.5, "mask_absent": True}, "temperature_end, mask_absent: needs categorical 'softmax'"),
        ({"prior_weight": 1.0}, "prior_weight: needs categorical 'softmax', got 'none'"),
    ],
    ids=str,
)
def test_settings_without_meaning_beside_each_other_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        InversionConfig(**({} if "schedule" in settings else {"categorical": "none"}), **settings)


def test_what_settings_need_is_told() -> None:
    plain, full = (
        InversionConfig(),
        InversionConfig(whitening=0.1, mask_derivative="straight_through", prior_weight=1.0),
    )
    assert plain.needs_closed_form == plain.needs_prior == ()
    assert full.needs_closed_form == ("mask_derivative 'straight_through'", "whitening")
    assert full.needs_prior == (*full.needs_closed_form, "prior_weight")


def test_without_a_budget_a_call_takes_a_cpus() -> None:
    assert InversionConfig().memory_mb is None
    assert InversionConfig().memory_bytes == InversionConfig(memory_mb=1024).memory_bytes == 2**30
