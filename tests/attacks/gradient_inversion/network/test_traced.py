"""Networks seen through their linear layers, against plain autograd."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.chain import ReLUChain
from lightleak.attacks.gradient_inversion.network.traced import TracedNetwork, trace
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

WIDTH = 38
"""Of encoded rows."""


class Residual(nn.Module):
    """Reads its rows twice, adds, normalizes; nothing of it is a chain."""

    def __init__(self, n_classes: int = 2) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(WIDTH, 12), nn.Linear(12, 12)
        self.norm, self.wide, self.out = nn.LayerNorm(12), nn.Linear(12 + WIDTH, 15), nn.Linear(15, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = h + torch.tanh(self.inner(self.norm(h)))
        return self.out(nn.functional.silu(self.wide(torch.cat([h, x], -1))))


def smooth(n_classes: int = 2) -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 14),
        nn.GELU(),
        nn.Linear(14, 11),
        nn.ELU(),
        nn.Linear(11, 9),
        nn.Tanh(),
        nn.Linear(9, n_classes),
    )


def one_hidden(n_classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 14), nn.GELU(), nn.Linear(14, n_classes))


MAKERS = [smooth, Residual, one_hidden]


def seeded(make: Callable[..., nn.Module], n_classes: int = 2) -> nn.Module:
    torch.manual_seed(3)
    return make(n_classes).double()


def rows(n: int = 6) -> Tensor:
    return torch.randn(n, WIDTH, generator=generator(1, "rows"), dtype=torch.float64)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gradient_of_every_tested_layer_is_autograds(make: Callable[..., nn.Module], n_classes: int) -> None:
    module, x = seeded(make, n_classes), rows()
    network = trace(module, WIDTH, n_rows=6)
    labels = torch.arange(6) % n_classes
    counts = nn.functional.one_hot(labels, n_classes).double()
    nn.functional.cross_entropy(module(x), labels).backward()
    assert network.depth == len(network.shapes) >= 2 and network.n_classes == n_classes
    for name, found in zip(network.names, network.gradient(x, counts, 6), strict=True):
        layer: Any = module.get_submodule(name)
        torch.testing.assert_close(found, torch.cat([layer.weight.grad, layer.bias.grad.unsqueeze(-1)], -1))
    assert all(not parameter.requires_grad for parameter in network.module.parameters())


@pytest.mark.parametrize("make", MAKERS)
def test_slopes_are_those_of_hidden_inputs_and_errors(make: Callable[..., nn.Module]) -> None:
    network, x = trace(seeded(make, 3), WIDTH, n_rows=6), rows()
    directions = torch.randn(4, WIDTH, generator=generator(2, "directions"), dtype=torch.float64)
    directions[1] *= 1e-4  # a wide number's unit
    counts = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0], [0, 1, 1], [1, 0, 0]]).double()

    def errors(at: Tensor) -> tuple[Tensor, ...]:
        seen = network.forward(at)
        return network.errors(seen, (counts.sum(-1, keepdim=True) * seen.probabilities - counts) / 5)

    here, step = network.forward(x), 1e-4
    for found, function in (
        (network.slopes(here, directions), lambda at: network.forward(at).hidden),
        (network.error_slopes(here, counts, directions, 5), errors),
    ):
        for f, direction in enumerate(directions):
            length = direction.norm()
            ahead, behind = (function(x + sign * step * direction / length) for sign in (1, -1))
            for of_layer, one, other in zip(found, ahead, behind, strict=True):
                slope = (one - other) * length / (2 * step)
                torch.testing.assert_close(of_layer[:, f], slope, rtol=1e-4, atol=1e-8 * float(length))


@pytest.mark.parametrize("make", MAKERS)
def test_the_view_computes_what_the_network_computes(make: Callable[..., nn.Module]) -> None:
    network, x = trace(seeded(make), WIDTH, n_rows=6), rows()
    weight, bias = network.state_map
    state, view, seen = x @ weight.T + bias, network.view(), network.forward(x)
    assert view.has_directions
    torch.testing.assert_close(view.hidden(state), seen.hidden[network.searched])
    torch.testing.assert_close(view.hidden(state.view(2, 3, -1)).flatten(0, 1), view.hidden(state))
    output = torch.tensor([[1.0, -1.0]]).double().expand(6, -1)
    directions = network.backpropagated(network.searched, seen, output)
    torch.testing.assert_close(view.directions(state), directions)
    metric = torch.randn(directions.shape[1], 3, generator=generator(0, "metric"), dtype=torch.float64)
    torch.testing.assert_close(view.onto(metric).directions(state), directions @ metric)
    assert view.onto(metric).to(torch.float32).directions(state.float()).dtype == torch.float32
    steps = torch.randn(2, state.shape[1], generator=generator(0, "steps"), dtype=torch.float64)
    inputs = torch.eye(seen.hidden[network.searched].shape[1]).double()
    jacobian = view.jacobian(state, steps, inputs)
    moved = (view.hidden(state + 1e-4 * steps[1]) - view.hidden(state - 1e-4 * steps[1])) / 2e-4
    torch.testing.assert_close(jacobian[..., 1], moved, rtol=1e-4, atol=1e-7)
    bent = (view.directions(state + 1e-4 * steps[1]) - view.directions(state - 1e-4 * steps[1])) / 2e-4
    torch.testing.assert_close(view.direction_slopes(state, steps)[..., 1], bent, rtol=1e-4, atol=1e-7)


def test_a_plain_chain_traced_is_the_chain(make_batch: Any) -> None:
    batch = make_batch(n=6, hidden=(12, 9), n_classes=3)
    chain: ReLUChain = batch.chain
    layers: list[nn.Module] = []
    for weight, bias in zip(chain.weights, chain.biases, strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": bias})
        layers += [layer, nn.ReLU()]
    module = nn.Sequential(*layers[:-1]).double()
    for layer, weight, bias in zip(module[::2], chain.weights, chain.biases, strict=True):
        layer.weight.data, layer.bias.data = weight, bias
    traced = trace(module, batch.x.shape[1], 6)
    assert traced.searched == chain.searched
    x, counts = batch.distinct()
    for one, other in zip(traced.gradient(x, counts, 6), chain.gradient(x, counts, 6), strict=True):
        torch.testing.assert_close(one, other)


def test_cell_steps_exchange_categories_exactly(make_batch: Any) -> None:
    batch = make_batch(n=4, n_classes=2)
    encoder: TableEncoder = batch.encoder
    x = batch.x
    layers = nn.Linear(x.shape[1], 14), nn.GELU(), nn.Linear(14, 9), nn.Tanh(), nn.Linear(9, 2)
    network = trace(nn.Sequential(*layers), x.shape[1], n_rows=4)
    steps = network.cell_steps(x, encoder)
    codes, values = encoder.project(x)
    block = encoder.layout.categorical[1]
    other = codes.clone()
    other[:, 1] = (codes[:, 1] + 1) % block.width
    swapped = network.forward(encoder.assemble(other, values).double()).hidden
    each = torch.arange(4)
    for step, before, after in zip(steps, network.forward(x).hidden, swapped, strict=True):
        by_cell = step / encoder.scale.unsqueeze(-1)
        change = by_cell[each, block.start + other[:, 1]] - by_cell[each, block.start + codes[:, 1]]
        torch.testing.assert_close(change, after - before, rtol=1e-5, atol=1e-6)


def test_the_layer_with_most_inputs_that_shows_all_rows_is_searched() -> None:
    def searched(n_rows: int, *widths: int) -> int:
        sizes = (WIDTH, *widths, 2)
        layers = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.GELU())]
        return trace(nn.Sequential(*layers[:-1]), WIDTH, n_rows).searched

    assert searched(8, 20) == 0
    assert searched(8, 20, 20) == searched(8, 20, 20, 20) == 1
    assert searched(8, 20, 40, 20) == 2
    assert searched(30, 40, 50, 20) == 1


class Tied(nn.Module):
    """One matrix is used by a layer and once more without it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.out = nn.Linear(WIDTH, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inner(torch.tanh(self.first(x))))
        return self.out(h + h @ self.inner.weight)


class Casting(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class TiedOutput(Tied):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        return self.out(h @ self.first.weight @ self.first.weight.T)


def test_a_layer_whose_weights_are_used_twice_tests_nothing() -> None:
    assert trace(Tied(), WIDTH, 4).names == ("first", "out")
    with pytest.raises(UnsupportedError, match=r"weights of \['first'\] are also used elsewhere in TiedOutput"):
        trace(TiedOutput(), WIDTH, 4)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), "by BatchNorm, whose statistics"),
        (nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, 2)), "something else every time"),
        (nn.Sequential(nn.Linear(WIDTH, 8, bias=False), nn.Linear(8, 2)), "no Linear layer of Sequential with a bias"),
        (nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, 2)), "sees the encoded row itself"),
        (nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, 2), nn.Tanh()), "the logits of Sequential are not"),
        (nn.Linear(WIDTH, 2), "needs a hidden layer, and Linear has none"),
        (Casting(nn.Linear(WIDTH, 8), nn.Linear(8, 2)), "Casting does not compute in float64"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_reason(module: nn.Module, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        trace(module, WIDTH, 4)


def test_known_running_statistics_leave_rows_apart() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).eval()
    assert isinstance(trace(module, WIDTH, 4), TracedNetwork)


@pytest.mark.parametrize("bend", [lambda x: x.clamp(max=5), lambda x: x.clamp(min=-5), torch.abs])
@pytest.mark.parametrize("column", range(WIDTH))
def test_a_column_bent_on_one_side_is_refused(bend: Callable[[Tensor], Tensor], column: int) -> None:
    class Bent(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            x = x.clone()
            x[:, column] = bend(x[:, column])
            return super().forward(x)

    with pytest.raises(UnsupportedError, match=r"Bent changes large encoded values|sees the encoded row itself"):
        trace(Bent(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 2)), WIDTH, 4)


class Beside(nn.Module):
    """A layer is called, on rows or on what a layer returns, and no derivative leads from the logits to it."""

    def __init__(self, gates: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 12) if gates else None
        self.first, self.inner, self.out = nn.Linear(WIDTH, 12), nn.Linear(12, 12), nn.Linear(12, 2)
        self.decoder = nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        gate = 1 if self.gate is None else (self.gate(x) > 0).to(x)
        h = gate * torch.relu(self.first(x))
        self.rebuilt = self.decoder(h)
        return self.out(torch.relu(self.inner(h)))


@pytest.mark.parametrize("gates", [False, True])
def test_layers_that_the_logits_do_not_follow_from_test_nothing(gates: bool) -> None:
    network, rows = trace(Beside(gates), WIDTH, 4), torch.randn(4, WIDTH, dtype=torch.float64)
    assert network.names == ("first", "inner", "out")
    network.errors(network.forward(rows), torch.ones(4, 2).double())
    assert network.view().to(torch.float32).n_classes == 2  # copied after a pass that stored its graph
