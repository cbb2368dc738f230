"""Layers that are linear with scaled weights, against the linear layers that compute the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.compose.peeling import label_counts, peeled_update
from lightleak.attacks.gradient_inversion.network.linear_forms import (
    from_linear,
    linear_form,
    to_linear,
    with_linear_layers,
)
from lightleak.core.errors import UnsupportedError
from lightleak.protocols import fedavg
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedsgd import client_update
from lightleak.protocols.local_pass import local_pass
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec, build_network


class Scaled(nn.Module):
    """NTK parametrization; biases are scaled too."""

    def __init__(self, n_in: int, n_out: int, transposed: bool = True) -> None:
        super().__init__()
        shape = (n_in, n_out) if transposed else (n_out, n_in)
        self.weight, self.bias = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.zeros(n_out))
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.transposed else self.weight.T
        return x @ weight / len(weight) ** 0.5 + 0.1 * self.bias


class Clipped(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-500, 500)


class Thresholded(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.hardshrink(super().forward(x), 1e-4)


class Rounded(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float().double())


class OfNorm(Scaled):
    """Weights enter by their direction."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ nn.functional.normalize(self.weight, dim=0) + self.bias


class WithoutBias(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class OfPairs(Scaled):
    """Needs more than one tensor."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ self.weight + y + self.bias


class Plain(nn.Linear):
    """Another class, and nothing else."""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(9, 4), (4, 4)])
def test_scaled_weights_are_found_whichever_way_they_lie(shape: tuple[int, int], transposed: bool) -> None:
    form = linear_form(Scaled(*shape, transposed))
    assert form is not None and form.transposed is transposed
    assert form.weight == pytest.approx(shape[0] ** -0.5, rel=1e-13) and form.bias == pytest.approx(0.1, rel=1e-13)


@pytest.mark.parametrize("kind", [Clipped, Thresholded, Rounded, OfNorm, WithoutBias, OfPairs, Plain, nn.Linear])
def test_other_layers_are_left_as_they_are(kind: Callable[[int, int], nn.Module]) -> None:
    assert linear_form(kind(5, 5)) is None
    module = nn.Sequential(kind(5, 5), nn.LayerNorm(5), nn.Tanh())
    before = list(module)
    assert with_linear_layers(module) == {} and list(module) == before
    assert next(module.parameters()).dtype == torch.float32


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(Scaled(6, 5), nn.SELU(), Scaled(5, 4, transposed=False), nn.Mish(), nn.Linear(4, 3))


def test_the_module_computes_the_same_and_gradients_convert_both_ways() -> None:
    module, replaced = network().double(), network().double()
    forms = with_linear_layers(replaced)
    assert set(forms) == {"0", "2"} and all(type(replaced[i]) is nn.Linear for i in (0, 2, 4))
    x, labels = torch.randn(7, 6, dtype=torch.float64), torch.arange(7) % 3
    torch.testing.assert_close(replaced(x), module(x))
    found = []
    for each in (module, replaced):
        nn.functional.cross_entropy(each(x), labels).backward()
        found.append({name: parameter.grad for name, parameter in each.named_parameters()})
    converted = to_linear(found[0], forms)
    assert converted.keys() == found[1].keys()
    for name, gradient in found[1].items():
        torch.testing.assert_close(converted[name], gradient)
        torch.testing.assert_close(from_linear(found[1], forms)[name], found[0][name])


@pytest.fixture
def scaled_batch(make_batch: Any) -> Any:
    """A batch whose network has a trained scale in front and NTK parametrization, and its update."""

    class Fronted(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.rand(width) + 0.5)
            self.layers = nn.Sequential(Scaled(width, 40), nn.SELU(), Scaled(40, 40), nn.SELU(), Scaled(40, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(self.scale * x)

    batch = make_batch(8, (4, 4))
    torch.manual_seed(4)
    spec = NetworkSpec(hand_over(Fronted(batch.encoder.width)), 2, batch.encoder.layout)
    update, _ = client_update(
        build_network(spec, seed=5), spec, batch.encoder, batch.truth.inputs, batch.truth.labels, share_labels=False
    )
    return batch, update


@pytest.mark.parametrize("attack", ["exact", "audit_max"])
def test_every_row_behind_scaled_weights_is_proven(
    scaled_batch: Any, attack: str, recovered: Any, certified_wrongly: Any
) -> None:
    batch, update = scaled_batch
    found = ATTACKS.get(attack)().run(update, seed=0)
    assert recovered(found, batch, nearly=True) == 8 and certified_wrongly(found, batch) == 0
    assert found.certificate.certified == 8 and found.certificate.residual < 1e-6


def test_known_rows_are_taken_out_of_its_gradient(scaled_batch: Any) -> None:
    batch, update = scaled_batch
    peeled = peeled_update(update, batch.truth.inputs[:3].double(), label_counts(batch.truth.labels[:3], 2))
    module = build_network(NetworkSpec.from_dict(update.network), seed=0).double()
    parameters = {name: value.double() for name, value in update.parameters.items()}
    expected = local_pass(module, parameters, {}, batch.truth.inputs[3:].double(), batch.truth.labels[3:]).gradient
    for name, value in expected.items():
        torch.testing.assert_close(peeled.update[name], value, rtol=1e-4, atol=1e-6)


def test_weight_updates_of_such_layers_are_refused(scaled_batch: Any) -> None:
    batch, update = scaled_batch
    spec = NetworkSpec.from_dict(update.network)
    moved, _ = fedavg.client_update(
        build_network(spec, seed=5),
        spec,
        batch.encoder,
        batch.truth.inputs,
        batch.truth.labels,
        LocalTraining(1, 8, 0.1),
        share_labels="none",
        seed=0,
    )
    with pytest.raises(UnsupportedError, match=r"layer 'layers.0' scales its weights in every forward"):
        ATTACKS.get("exact_fedavg")().check(moved)
