"""Networks whose first layer sees embedded cells: what it says of cells, against the rows themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from lightleak.attacks.gradient_inversion.exact.certify.alternatives import least_exchange
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.network.cells import Affine, affine_inputs, exchanged_cells, find_tables
from lightleak.attacks.gradient_inversion.network.traced import TracedNetwork, trace
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.errors import UnsupportedError
from lightleak.data.encoder import TableEncoder
from lightleak.data.layout import EncodedLayout


class Embedded(nn.Module):
    """Embeddings, one of several ways, then a small network; numbers pass through."""

    def __init__(self, layout: EncodedLayout, way: str, n_classes: int = 2, dim: int = 3) -> None:
        super().__init__()
        self.layout, self.way = layout, way
        blocks = layout.categorical
        self.numbers = [block.start for block in layout.numerical]
        self.tables = nn.ModuleList(nn.Embedding(block.width, dim) for block in blocks)
        self.products = nn.ModuleList(nn.Linear(block.width, dim, bias=False) for block in blocks)
        self.shared = nn.Embedding(sum(block.width for block in blocks), dim)
        self.lifted = nn.Linear(len(self.numbers), dim)
        into = dim if way == "summed" else len(self.numbers) + dim * len(blocks)
        self.first, self.inner = nn.Linear(into, 30), nn.Linear(30, 30)
        self.out = nn.Linear(30, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        parts, offset = [], 0
        for k, block in enumerate(self.layout.categorical):
            one = x[:, block.slice]
            code = one.argmax(-1)
            if self.way == "shared":
                parts.append(self.shared(code + offset))
            elif self.way in ("rows", "columns"):
                matrix = self.tables[k].weight if self.way == "rows" else self.products[k].weight.T
                parts.append(one @ matrix)
            else:
                parts.append(self.tables[k](code))
            offset += block.width
        numbers = x[:, self.numbers]
        seen = self.lifted(numbers) + sum(parts) if self.way == "summed" else torch.cat([numbers, *parts], 1)
        return self.out(torch.tanh(self.inner(nn.functional.gelu(self.first(seen)))))


WAYS = ("looked up", "shared", "rows", "columns", "summed")
STANDARDIZED = ("rows", "columns")


def made(batch: Any, way: str) -> Embedded:
    torch.manual_seed(4)
    return Embedded(batch.encoder.layout, way).double()


def traced(batch: Any, way: str) -> TracedNetwork:
    """The network with the gradient of the batch's rows."""
    module, encoder = made(batch, way), batch.encoder
    cross_entropy(module(batch.x), batch.truth.labels).backward()
    zero = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    observed = {name: zero[name] if p.grad is None else p.grad for name, p in module.named_parameters()}
    with torch.no_grad():  # as callbacks of a training may
        return trace(module, encoder.width, len(batch.x), encoder, observed)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_first_layer_sees_is_affine_in_cells(make_batch: Any, way: str) -> None:
    batch = make_batch(8)
    network = traced(batch, way)
    assert network.names == ("first", "inner", "out") and network.first_input is not None
    seen = network.first_input
    hidden = network.forward(batch.x).hidden[0]
    torch.testing.assert_close(batch.x @ seen.weight.T + seen.bias, hidden, rtol=1e-5, atol=1e-5)
    weight, bias = network.state_map
    view, state = network.view(), batch.x @ weight.T + bias
    found = network.forward(batch.x).hidden[network.searched]
    torch.testing.assert_close(view.hidden(state), found, rtol=1e-5, atol=1e-5)


def test_a_function_that_cells_do_not_add_up_to_is_none(make_batch: Any) -> None:
    encoder = make_batch(8).encoder
    x = exchanged_cells(encoder)
    assert affine_inputs(x[:, :3] + x[:, 3:6], encoder) is not None
    assert affine_inputs(x[:, :3] * x[:, 3:6], encoder) is None
    module = nn.Sequential(nn.LayerNorm(encoder.width), nn.Linear(encoder.width, 20), nn.GELU(), nn.Linear(20, 2))
    with pytest.raises(UnsupportedError, match="one vector per cell"):
        trace(module, encoder.width, 4, encoder)


@pytest.mark.parametrize("way", WAYS)
def test_tables_are_found_by_what_their_gradient_does(make_batch: Any, way: str) -> None:
    batch = make_batch(8)
    found, blocks = find_tables(made(batch, way), batch.encoder), batch.encoder.layout.categorical
    assert sorted(found) == list(range(len(blocks)))
    offset = 0
    for k, block in enumerate(blocks):
        (table,) = found[k]
        owner = {"shared": "shared", "columns": f"products.{k}"}.get(way, f"tables.{k}")
        assert table.name == f"{owner}.weight" and table.standardized == (way in STANDARDIZED)
        first = offset if way == "shared" else 0
        assert table.rows.tolist() == list(range(first, first + block.width))
        offset += block.width
    plain = nn.Sequential(nn.Linear(batch.encoder.width, 20), nn.ReLU(), nn.Linear(20, 2)).double()
    assert not any(table.name.startswith("2") for each in find_tables(plain, batch.encoder).values() for table in each)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("explained", [0, 3])
def test_categories_that_no_row_has_are_absent(make_batch: Any, way: str, explained: int) -> None:
    batch = make_batch(6, rows=(3, 7, 9, 12, 20, 21), labels=(0, 1, 0, 1, 1, 0))
    network, encoder = traced(batch, way), batch.encoder
    counts = one_hot(batch.truth.labels, 2).double()
    known, left = batch.x[:explained], batch.x[explained:]
    gradient = network.gradient(left, counts[explained:], 6)[0]
    columns = network.columns(gradient, known, counts[:explained], 6)
    whole = network.columns(network.gradient(batch.x, counts, 6)[0], batch.x[:0], counts[:0], 6)
    domain = infer_domain(columns, encoder, batch.prior, len(left), whole, {})
    codes, values = encoder.project(left)
    for k, present in enumerate(domain.present):
        true = codes[:, k].unique().tolist()
        assert set(true) <= set(present.tolist())
        absent = encoder.layout.categorical[k].width - len(true)
        if way not in STANDARDIZED or absent >= 2:
            assert present.tolist() == true
    if way != "summed":  # there numbers are not determined
        constant = {j for j in range(values.shape[1]) if len(values[:, j].unique()) == 1}
        assert set(domain.constants) == constant and constant
        assert all(domain.constants[j] == pytest.approx(float(values[0, j]), rel=1e-4) for j in constant)


@pytest.mark.parametrize("way", ["looked up", "rows"])
def test_rows_of_the_batch_meet_the_equations_and_others_do_not(make_batch: Any, way: str) -> None:
    batch = make_batch(6)
    network, encoder = traced(batch, way), batch.encoder
    counts = one_hot(batch.truth.labels, 2).double()
    space = RowDomain.whole(encoder, batch.prior)
    gradient = network.gradient(batch.x, counts, 6)[0]
    equations = RowEquations.of(gradient, space, rank=6, seen=network.first_input)
    codes, numbers = space.coordinates(encoder.project(batch.x))
    assert len(equations.values) >= 6 and float(equations.distance(codes, numbers).max()) < 1e-3
    other = codes.clone()
    other[:, 0] = (other[:, 0] + 1) % 5
    other = other[~(other.unsqueeze(1) == codes).all(-1).any(1)]
    assert len(other) and float(equations.distance(other, equations.solve(other)).min()) > 1e-2


def brute(space: RowDomain, seen: Affine) -> float:
    """Least change among all exchanges of a row's categories, numbers projected out."""
    encoder = space.encoder
    blocks = encoder.layout.categorical
    codes = torch.cartesian_prod(*(torch.arange(block.width) for block in blocks))
    x = encoder.assemble(codes, encoder.lower.expand(len(codes), -1)).double()
    basis = torch.linalg.qr(seen.weight[:, list(encoder.numerical_positions)])[0]
    made = x @ seen.weight.T
    return float(torch.pdist(made - made @ basis @ basis.T).min())


def test_no_exchange_changes_what_is_seen_by_less_than_the_least(make_batch: Any) -> None:
    batch = make_batch(6)
    encoder: TableEncoder = batch.encoder
    space = RowDomain.whole(encoder, batch.prior)
    identity = Affine(torch.eye(encoder.width).double(), torch.zeros(encoder.width).double())
    assert least_exchange(space, identity) >= least_exchange(space, None) > 0
    draws = torch.Generator().manual_seed(0)
    mixed = Affine(torch.randn(40, encoder.width, generator=draws).double(), torch.zeros(40).double())
    assert 0 < least_exchange(space, mixed) <= brute(space, mixed) * (1 + 1e-5)
    for way in ("looked up", "summed"):
        seen = traced(batch, way).first_input
        assert seen is not None
        assert least_exchange(space, seen) <= brute(space, seen) * (1 + 1e-5)
    equal = made(batch, "looked up")
    with torch.no_grad():
        equal.tables[0].weight[1] = equal.tables[0].weight[3]
    found = trace(equal, encoder.width, 6, encoder).first_input
    assert found is not None and least_exchange(space, found) < 1e-9


class Bent(Embedded):
    """Numbers are changed before the first layer sees them."""

    def __init__(self, layout: EncodedLayout, bend: Callable[[Tensor], Tensor]) -> None:
        super().__init__(layout, "looked up")
        self.bend = bend

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, self.numbers] = self.bend(x[:, self.numbers])
        return super().forward(x)


@pytest.mark.parametrize(("low", "high"), [(-3.5, 3.5), (-60.0, 60.0), (None, 5.0), (-5.0, None)])
def test_a_clip_of_numbers_beside_embeddings_is_refused(make_batch: Any, low: float | None, high: float | None) -> None:
    encoder = make_batch(8).encoder
    module = Bent(encoder.layout, lambda numbers: numbers.clamp(low, high))
    with pytest.raises(UnsupportedError, match=r"Bent changes large encoded values before layer 'first' sees them"):
        trace(module, encoder.width, 8, encoder)


class Beside(Embedded):
    """The first layer sees embeddings alone; numbers pass another function and a layer of their own."""

    def __init__(self, layout: EncodedLayout, bend: Callable[[Tensor], Tensor]) -> None:
        super().__init__(layout, "looked up")
        self.bend = bend
        self.first = nn.Linear(3 * len(layout.categorical), 30)
        self.own = nn.Linear(len(self.numbers), 30)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.tables[k](x[:, block.slice].argmax(-1)) for k, block in enumerate(self.layout.categorical)]
        own = torch.tanh(self.own(self.bend(x[:, self.numbers])))
        return self.out(torch.tanh(self.inner(nn.functional.gelu(self.first(torch.cat(parts, 1))) + own)))


@pytest.mark.parametrize(("bend", "affine"), [(lambda numbers: 2 * numbers + 1, True), (torch.abs, False)])
def test_it_is_seen_how_numbers_enter_beside_the_first_layer(
    make_batch: Any, bend: Callable[[Tensor], Tensor], affine: bool
) -> None:
    encoder = make_batch(8).encoder
    network = trace(Beside(encoder.layout, bend), encoder.width, 8, encoder)
    assert network.names[0] == "first" and network.numbers_enter_affinely == affine
