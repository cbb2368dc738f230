"""Settings of the optimizer."""

from typing import Any

import pytest
import torch
from torch import nn

from lightleak.core.errors import ObservationError, UsageError
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split.classifier import SplitClassifier
from lightleak.targets.split.network import SplitSpec


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
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number, got nan"),
        ({"learning_rate": "0.1"}, "learning_rate must be a finite number, got '0.1'"),
        ({"learning_rate": None}, "learning_rate must be a finite number, got None"),
        ({"learning_rate": True}, "learning_rate must be a finite number, got True"),
        ({"momentum": "x"}, "momentum must be a finite number, got 'x'"),
        ({"weight_decay": float("inf")}, "weight_decay must be a finite number, got inf"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"name": "adam", "momentum": 0.9}, "momentum is a setting of 'sgd'"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OptimizerConfig(**settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nosuch": 1}, "optimizer has no setting 'nosuch'; settings: name, learning_rate, momentum, weight_decay"),
        ("adam", "optimizer must be an OptimizerConfig or its dictionary, got str"),
        ({"learning_rate": "x"}, "learning_rate must be a finite number, got 'x'"),
    ],
)
def test_what_is_no_dictionary_of_settings_is_named(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TabularClassifier(nn.Linear(2, 2), given, n_classes=2)
    with pytest.raises(UsageError, match=message):
        SplitClassifier(SplitSpec((1, 1)), given)


@pytest.mark.parametrize("network", ["mlp", None])
def test_a_classifier_takes_no_bare_name(network: Any) -> None:
    with pytest.raises(UsageError, match=r"network must be a NetworkSpec, its dictionary or an nn\.Module, got "):
        TabularClassifier(network)
    with pytest.raises(ObservationError, match="network specification must be a dictionary, got "):
        NetworkSpec.from_dict(network)
