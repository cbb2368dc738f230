"""Settings of the optimizer."""

import pytest
import torch
from torch import nn

from lightleak.core.errors import UsageError
from lightleak.targets.optimizers import OptimizerConfig


@pytest.mark.parametrize(
    ("config", "kind", "expected"),
    [
        (OptimizerConfig("sgd", 0.1, 0.9, 0.01), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        (OptimizerConfig("adam", 0.1, weight_decay=0.2), torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.2}),
        (OptimizerConfig("adamw", 0.1), torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.0}),
    ],
)
def test_builds_what_it_names(config: OptimizerConfig, kind: type, expected: dict[str, float]) -> None:
    frozen, trained = nn.Parameter(torch.zeros(1), requires_grad=False), nn.Parameter(torch.zeros(2))
    optimizer = config.build([frozen, trained])
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert group["params"] == [trained]
    assert {key: group[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "lbfgs"}, "optimizer must be one of sgd, adam, adamw, got 'lbfgs'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, got nan"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"name": "adam", "momentum": 0.9}, "momentum is a setting of 'sgd'"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OptimizerConfig(**settings)
