"""From observations to a matcher: the closed form where it holds, the client's mode, nobody else's randomness."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain
from lightleak.attacks.gradient_inversion.optimize.matcher import NetworkMatcher
from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.problem import build_matcher, bytes_per_restart, of_usual_norm
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.layout import EncodedLayout
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network

MakeUpdate = Callable[..., tuple[ClientUpdate, object]]
CPU = torch.device("cpu")
CASES = [
    ("linear", {}, ["linears.0"]),
    ("mlp", {"hidden": [9, 8]}, ["linears.0", "linears.1", "linears.2"]),
    ("mlp", {"hidden": [9], "dropout": 0.5}, ["linears.0", "linears.1"]),
    ("mlp", {"hidden": [9], "activation": "gelu"}, None),
    ("mlp", {"hidden": [9], "norm": "batch"}, None),
    ("mlp", {"hidden": [9], "norm": "layer"}, None),
    ("resnet", {"hidden": [9]}, None),
    ("cnn", {"hidden": [9]}, None),
]


@pytest.mark.parametrize(("name", "options", "chain"), CASES, ids=str)
def test_plain_relu_networks_take_the_closed_form(
    encoder: TableEncoder, make_update: MakeUpdate, name: str, options: dict[str, object], chain: list[str] | None
) -> None:
    assert relu_chain(build_network(NetworkSpec(name, 2, encoder.layout, options), seed=0)) == chain
    if "dropout" in options:
        return
    update, truth = make_update(4, name, **options)
    matcher = build_matcher([update], update.labels.unsqueeze(0), InversionConfig(), CPU, torch.float32)
    assert isinstance(matcher, NetworkMatcher if chain is None else MLPMatcher)
    value, derivative = matcher.value_and_grad(truth.inputs.view(1, 1, 4, -1))
    assert value.shape == (1, 1) and derivative.shape == (1, 1, 4, encoder.width)
    assert value.item() < 1e-4  # the gradient of the true batch is the client's


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_matcher_works_in_the_precision_asked_for(
    encoder: TableEncoder, make_update: MakeUpdate, dtype: torch.dtype
) -> None:
    for network in ("mlp", "resnet"):
        update, _ = make_update(4, network, hidden=[9, 8])
        matcher = build_matcher([update], update.labels.unsqueeze(0), InversionConfig(), CPU, dtype)
        value, derivative = matcher.value_and_grad(torch.rand(1, 2, 4, encoder.width, dtype=dtype))
        assert value.dtype == derivative.dtype == dtype


@pytest.mark.parametrize("factor", [1e-30, 1e-15, 1e15, 1e30])
@pytest.mark.parametrize("network", ["mlp", "resnet"])
def test_the_cosine_does_not_depend_on_the_scale_of_an_update(
    encoder: TableEncoder, make_update: MakeUpdate, network: str, factor: float
) -> None:
    update, _ = make_update(4, network, hidden=[9, 8])
    scaled = replace(update, update={name: (t.double() * factor).float() for name, t in update.update.items()})
    x = torch.rand(1, 2, 4, encoder.width)
    one, other = (
        build_matcher([u], u.labels.unsqueeze(0), InversionConfig(), CPU, torch.float32).value_and_grad(x)
        for u in (update, scaled)
    )
    torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-5)


def test_an_update_of_usual_norm_or_of_zeros_is_compared_unchanged(make_update: MakeUpdate) -> None:
    update, _ = make_update(4, hidden=[9, 8])
    zero = replace(update, update={name: torch.zeros_like(t) for name, t in update.update.items()})
    assert of_usual_norm(update) is update and of_usual_norm(zero) is zero


@pytest.mark.parametrize("training", [True, False])
def test_the_network_is_in_the_clients_mode_without_dropout(make_update: MakeUpdate, training: bool) -> None:
    update, _ = make_update(4, "resnet_preact", training_mode=training, width=6, hidden_dropout=0.5)
    modes = [(module, module.training) for module in client_network(update).modules()]
    dropouts = [mode for module, mode in modes if isinstance(module, nn.Dropout)]
    assert len(dropouts) > 0 and not any(dropouts)
    assert all(mode is training for module, mode in modes if not isinstance(module, nn.Dropout))


class OnPlainTorch(nn.Module):
    """A user's network with PyTorch's own normalization."""

    def __init__(self, layout: EncodedLayout, n_classes: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(layout.width, 9), nn.Linear(9, n_classes)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(9)])

    def forward(self, x: Tensor) -> Tensor:
        return self.linears[1](torch.relu(self.norms[0](self.linears[0](x))))


@pytest.mark.parametrize("training", [True, False])
def test_a_network_on_pytorchs_normalization_is_attacked_rightly(
    encoder: TableEncoder, make_update: MakeUpdate, monkeypatch: pytest.MonkeyPatch, training: bool
) -> None:
    monkeypatch.setitem(NETWORKS._entries, "plain", OnPlainTorch)
    ours, _ = make_update(4, "mlp", hidden=[9], norm="batch", training_mode=training)
    theirs = replace(ours, network={**ours.network, "name": "plain", "options": {}})
    x = torch.randn(1, 2, 4, encoder.width)
    config, labels = InversionConfig(), ours.labels.unsqueeze(0)
    one, other = (
        build_matcher([update], labels, config, CPU, torch.float32).value_and_grad(x) for update in (ours, theirs)
    )
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


def test_memory_grows_with_gradient_rows_and_precision(make_update: MakeUpdate) -> None:
    small, _ = make_update(4, hidden=[9, 8])
    wide, _ = make_update(4, hidden=[90, 80])
    long, _ = make_update(40, hidden=[9, 8])
    size = bytes_per_restart(small, "float32")
    assert size < bytes_per_restart(wide, "float32") and size < bytes_per_restart(long, "float32")
    assert bytes_per_restart(small, "float64") == 2 * size
    assert size > 4 * sum(p.numel() for p in small.parameters.values())
