"""A network whose derivative does not lead to its inputs is refused by name; one that is differentiable is not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.table import Table
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec

UpdateOf = Callable[[nn.Module], ClientUpdate]


@pytest.fixture
def update_of(table: Table, encoder: TableEncoder) -> UpdateOf:
    rows, labels = encoder.encode(table.train)[:4], encoder.encode_labels(table.train)[:4]

    def make(network: nn.Module) -> ClientUpdate:
        spec = NetworkSpec(hand_over(network), 2, encoder.layout)
        return client_update(network, spec, encoder, rows, labels, share_labels=True, seed=0)[0]

    return make


class After(nn.Module):
    """A GELU network behind a function of the rows."""

    def __init__(self, before: Callable[[Tensor], Tensor], width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before = before
        self.network = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self.before(x))


class LooksUp(nn.Module):
    """Some one-hot columns by their index, the rest as they are."""

    def __init__(self, encoder: TableEncoder, looked_up: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        blocks = encoder.layout.categorical[:looked_up]
        held = {i for block in blocks for i in range(block.start, block.stop)}
        self.slices, self.rest = [block.slice for block in blocks], sorted(set(range(encoder.width)) - held)
        self.tables = nn.ModuleList(nn.Embedding(block.width, 3) for block in blocks)
        self.head = nn.Sequential(nn.Linear(len(self.rest) + 3 * looked_up, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        looked_up = [table(x[:, at].argmax(-1)) for table, at in zip(self.tables, self.slices, strict=True)]
        return self.head(torch.cat([x[:, self.rest], *looked_up], -1))


class Attends(nn.Module):
    """A transformer over columns, with dropout, as PyTorch brings it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lift, self.place = nn.Linear(1, 8), nn.Parameter(torch.randn(width, 8))
        self.attention = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True)
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attention(self.lift(x.unsqueeze(-1)) + self.place).mean(1))


class Normalizes(nn.Module):
    """Fused layer normalization, whose second derivative torch.func gets wrong."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(width, 8), nn.Linear(8, 2)
        self.weight, self.bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.layer_norm(self.first(x), (8,), self.weight, self.bias).tanh())


def refusal(update: ClientUpdate, attack: str = "inverting_gradients") -> str | None:
    try:
        ATTACKS.get(attack)().check(update)
    except UnsupportedError as error:
        return str(error)
    return None


@pytest.mark.parametrize("looked_up", [1, 3])
def test_columns_that_are_looked_up_by_index_are_named_with_layer_and_fix(
    update_of: UpdateOf, encoder: TableEncoder, looked_up: int
) -> None:
    update = update_of(LooksUp(encoder, looked_up))
    names = [block.name for block in encoder.layout.categorical]
    said = refusal(update) or ""
    assert f"does not reach {looked_up} of 5 columns, {', '.join(map(repr, names[:looked_up]))}, though" in said
    assert not any(repr(name) in said for name in names[looked_up:])
    first = encoder.layout.categorical[0]
    assert "'tables.0'" in said and f"x[:, {first.start}:{first.stop}] @ tables.0.weight" in said
    assert refusal(update, "exact") is None and refusal(update, "audit_max") is None  # it exchanges whole cells


@pytest.mark.parametrize("before", [torch.round, torch.sign, lambda x: x.detach(), lambda x: x.long().float()])
def test_rounded_and_detached_inputs_are_refused(
    update_of: UpdateOf, encoder: TableEncoder, before: Callable[[Tensor], Tensor]
) -> None:
    assert "does not reach 5 of 5 columns" in (refusal(update_of(After(before, encoder.width))) or "")


def test_the_product_that_the_message_recommends_is_attacked(update_of: UpdateOf, encoder: TableEncoder) -> None:
    class Multiplies(LooksUp):
        def forward(self, x: Tensor) -> Tensor:
            pairs = zip(self.tables, self.slices, strict=True)
            return self.head(torch.cat([x[:, self.rest], *(x[:, at] @ table.weight for table, at in pairs)], -1))

    assert refusal(update_of(Multiplies(encoder, 3))) is None


def test_a_column_that_the_network_leaves_out_is_no_reason(update_of: UpdateOf, encoder: TableEncoder) -> None:
    kept = torch.ones(encoder.width)
    kept[encoder.layout.blocks[0].slice] = 0
    assert refusal(update_of(After(lambda x: x * kept, encoder.width))) is None


def test_weights_that_happen_to_be_zero_are_no_reason(update_of: UpdateOf, encoder: TableEncoder) -> None:
    network = After(lambda x: x, encoder.width)
    with torch.no_grad():
        network.network[0].weight[:, encoder.layout.blocks[0].slice] = 0
    assert refusal(update_of(network)) is None


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (lambda x: functional.dropout(x, 0.5), "draw random numbers in dropout layers alone"),
        (lambda x: x if x.sum() > 0 else -x, "do not branch on values"),
        (lambda x: x + (x - x.detach()).abs().sqrt(), "is not finite at plausible rows"),
    ],
)
def test_what_has_no_derivative_per_candidate_is_refused(
    update_of: UpdateOf, encoder: TableEncoder, before: Callable[[Tensor], Tensor], message: str
) -> None:
    assert message in (refusal(update_of(After(before, encoder.width))) or "")


def test_a_wrong_derivative_is_found_out(update_of: UpdateOf, encoder: TableEncoder) -> None:
    assert "use nn.LayerNorm" in (refusal(update_of(Normalizes(encoder.width))) or "")


def test_attention_is_attacked(update_of: UpdateOf, encoder: TableEncoder) -> None:
    update = update_of(Attends(encoder.width))
    found = ATTACKS.get("inverting_gradients")(steps=2, restarts=1).run(update)
    assert len(found.rows) == 4 and found.loss < float("inf")


def test_layers_that_write_into_their_buffers_are_refused_before_any_work(
    update_of: UpdateOf, encoder: TableEncoder
) -> None:
    network = After(lambda x: x, encoder.width)
    network.network[0] = nn.utils.parametrizations.spectral_norm(network.network[0])
    assert "no gradient per candidate batch" in (refusal(update_of(network)) or "")


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.Dropout(0.0), None),
        (nn.GELU(), None),
        (nn.LayerNorm(8), None),
        (nn.BatchNorm1d(8), "mixes the rows of a batch by BatchNorm, whose statistics it does not share"),
        (nn.Softmax(0), "mixes the rows of a batch: no row has a gradient of its own"),
        (nn.RReLU(), "computes something else every time"),
    ],
)
def test_exact_inversion_names_what_stands_in_the_way(
    update_of: UpdateOf, encoder: TableEncoder, layer: nn.Module, named: str | None
) -> None:
    network = nn.Sequential(nn.Linear(encoder.width, 8), layer, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    found = refusal(update_of(network), "exact")
    assert found is None if named is None else named in (found or "")
