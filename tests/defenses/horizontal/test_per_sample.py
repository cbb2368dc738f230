"""Row gradients are those of the rows one by one, and their clipped mean is what a loop makes of them."""

import pytest
import torch
from torch import Tensor, nn

from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal.per_sample import clipped_mean, per_sample_gradients
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.functional import gradients

NETWORKS = [
    ("mlp", {"hidden": [6]}),
    ("mlp", {"hidden": [6], "norm": "layer"}),
    ("resnet_preact", {"norm": "layer", "width": 8}),
]


def batch(rows: int = 5) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(0)
    return torch.randn(rows, 4, generator=draws), torch.randint(3, (rows,), generator=draws)


@pytest.mark.parametrize(("name", "options"), NETWORKS)
def test_each_row_on_its_own(name: str, options: dict) -> None:
    network = build_network(NetworkSpec(name, 3, EncodedLayout.of_numerical(4), options), seed=0)
    parameters, (inputs, labels) = dict(network.named_parameters()), batch()
    stacked = per_sample_gradients(network, parameters, {}, inputs, labels)
    for row in range(len(inputs)):
        alone = gradients(network, parameters, {}, inputs[row : row + 1], labels[row : row + 1])
        for key, value in alone.items():
            torch.testing.assert_close(stacked[key][row], value, rtol=1e-4, atol=1e-6)
    assert not any(value.requires_grad for value in stacked.values())


def test_weights_are_those_given_and_not_the_networks_own() -> None:
    network = nn.Linear(4, 3)
    zero = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
    inputs, labels = batch()
    found = per_sample_gradients(network, zero, {}, inputs, labels)["bias"]
    torch.testing.assert_close(found, 1 / 3 - nn.functional.one_hot(labels, 3))


def test_dropout_draws_for_every_row_anew() -> None:
    network = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))
    inputs, labels = torch.ones(64, 4), torch.zeros(64, dtype=torch.long)
    found = per_sample_gradients(network, dict(network.named_parameters()), {}, inputs, labels)["1.weight"]
    dropped = (found[:, 0] == 0).float()
    assert 0.3 < float(dropped.mean()) < 0.7
    assert len(dropped.unique(dim=0)) > 8


@pytest.mark.parametrize("max_norm", [1e-3, 0.7, 1e6])
def test_clipped_mean_equals_a_loop(max_norm: float) -> None:
    draws = torch.Generator().manual_seed(0)
    rows = {
        "a": torch.randn(6, 3, 2, generator=draws),
        "b": torch.randn(6, 2, generator=draws),
        "c": torch.randn(6, generator=draws),
    }
    rows["a"][1] = rows["b"][1] = rows["c"][1] = 0
    total = {name: torch.zeros(value.shape[1:]) for name, value in rows.items()}
    for i in range(6):
        norm = torch.cat([value[i].flatten() for value in rows.values()]).norm()
        factor = min(1.0, max_norm / (float(norm) + 1e-6))
        for name in total:
            total[name] += rows[name][i] * factor / 6
    for name, value in clipped_mean(rows, max_norm).items():
        torch.testing.assert_close(value, total[name])
