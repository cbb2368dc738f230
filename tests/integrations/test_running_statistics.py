"""Statistics of a batch, read off the buffers that a client sends back."""

from typing import Any

import pytest
import torch
from torch import nn

from lightleak.attacks import ATTACKS
from lightleak.core.errors import ObservationError, UsageError
from lightleak.integrations.running_statistics import batch_statistics
from lightleak.integrations.state_dicts import client_update
from lightleak.protocols import fedsgd


def stepped(network: nn.Module, x: torch.Tensor, steps: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Buffers before and after forwards in train mode."""
    before = {name: value.clone() for name, value in network.named_buffers()}
    for _ in range(steps):
        network.train()(x)
    return before, dict(network.named_buffers())


@pytest.mark.parametrize("momentum", [0.1, 0.01, None])
def test_the_batchs_statistics_follow_from_one_step(momentum: float | None) -> None:
    network = nn.Sequential(nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    x = 5 + 3 * torch.randn(9, 4, dtype=torch.float64)
    stepped(network, torch.randn(9, 4, dtype=torch.float64), steps=3)
    found = batch_statistics(network, *stepped(network, x))
    hidden = network[1](network[0](x))
    for name, inputs in (("0", x), ("2", hidden)):
        torch.testing.assert_close(found[f"{name}.mean"], inputs.mean(0))
        torch.testing.assert_close(found[f"{name}.var"], inputs.var(0))


def test_buffers_of_another_number_of_steps_and_missing_ones_are_refused() -> None:
    network, x = nn.Sequential(nn.BatchNorm1d(4)), torch.randn(5, 4)
    with pytest.raises(ObservationError, match=r"moved by one step; '0.num_batches_tracked' counted 2"):
        batch_statistics(network, *stepped(network, x, steps=2))
    before, after = stepped(network, x)
    with pytest.raises(ObservationError, match=r"'0.running_var' is missing"):
        batch_statistics(network, before, {name: after[name] for name in after if "var" not in name})
    without = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2))
    assert batch_statistics(without, {}, {}) == {}


def test_rows_are_found_by_the_buffers_that_a_client_sends(federation: Any) -> None:
    made = federation(one_step=True, hidden=[40, 40], norm="batch")
    network, (inputs, labels) = made.network(), made.rows[0]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    nn.functional.cross_entropy(network(inputs), labels).backward()
    buffers = dict(network.named_buffers())
    sent = {name: value.grad for name, value in network.named_parameters()} | buffers
    update = client_update(before, sent, made.view(sends="gradient", share_statistics=True), len(inputs))
    known, _ = fedsgd.client_update(made.network(), made.spec, made.encoder, inputs, labels, share_labels=False)
    assert known.batch_statistics.keys() == set() != update.batch_statistics.keys()
    shared, truth = fedsgd.client_update(
        made.network(), made.spec, made.encoder, inputs, labels, share_labels=False, share_statistics=True
    )
    for name, value in shared.batch_statistics.items():
        torch.testing.assert_close(update.batch_statistics[name].float(), value, rtol=1e-5, atol=1e-5)
    found = ATTACKS.get("exact")(batch_statistics=True).run(update, seed=0)
    # The rounding of the buffers leaves 2e-6 of the gradient, that of the rows' own statistics less than 1e-6.
    assert found.certificate is not None and found.certificate.complete
    codes = made.encoder.project(found.encoded)[0]
    assert sorted(codes.tolist()) == sorted(made.encoder.project(truth.inputs)[0].tolist())
    assert made.view(sends="gradient").share_statistics is False


@pytest.mark.parametrize("settings", [{}, {"sends": "gradient", "training_mode": False}])
def test_updates_of_several_steps_or_in_eval_mode_have_none(federation: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="share_statistics reads the statistics of one step in train mode"):
        federation(one_step=True, hidden=[8], norm="batch").view(share_statistics=True, **settings)
