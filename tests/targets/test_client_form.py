"""Networks of any input form as functions of encoded rows: same logits, same gradients, a derivative by categories."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from lightleak.core.errors import UnsupportedError
from lightleak.data.described_inputs import DescribedInputs, describe_inputs
from lightleak.targets.client_form import ClientForm, OneHotEmbedding
from lightleak.targets.functional import twice_differentiable

WIDTHS = (4, 3, 6)
N = 12


def batch() -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(0)
    codes = torch.stack([torch.randint(width, (N,), generator=draws) for width in WIDTHS], 1)
    codes[0] = torch.tensor(WIDTHS) - 1
    labels = torch.arange(N) % 2
    return {"numbers": torch.randn(N, 2, generator=draws), "codes": codes, "y": labels}


class Embedded(nn.Module):
    """One table per column; padding and normalization as projects have them."""

    def __init__(self) -> None:
        super().__init__()
        paddings = (None, 0, None)
        self.tables = nn.ModuleList(
            nn.Embedding(width, 3, padding_idx=padding) for width, padding in zip(WIDTHS, paddings, strict=True)
        )
        self.norm = nn.BatchNorm1d(2)
        self.rest = nn.Sequential(nn.Linear(11, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        embedded = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.rest(torch.cat([self.norm(numbers), *embedded], 1))


class OneTable(nn.Module):
    """All columns share a table, by offsets, and unknown categories have a row; a class token is looked up too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.token = nn.Embedding(sum(WIDTHS) + 1, 8), nn.Embedding(1, 8)
        self.numbers = nn.Linear(2, 8)
        self.mix = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        codes = rows["codes"] + torch.tensor([0, *WIDTHS[:-1]]).cumsum(0) + 1
        token = self.token(torch.zeros(len(codes), 1, dtype=torch.long))
        tokens = [token, self.numbers(rows["numbers"]).unsqueeze(1), self.table(codes)]
        return {"logits": self.out(self.mix(torch.cat(tokens, 1))[:, 0])}


class Repeated(nn.Module):
    """One table, called for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(max(WIDTHS), 4), nn.Linear(6, 2)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        numbers, codes = inputs
        return self.out(torch.cat([numbers, sum(self.table(codes[:, i]) * (i + 1) for i in range(3))], 1))


def direct(network: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    if isinstance(network, Embedded):
        return network(rows["codes"], rows["numbers"])
    return network(rows)["logits"] if isinstance(network, OneTable) else network((rows["numbers"], rows["codes"]))


def described(network: nn.Module) -> tuple[DescribedInputs, Any]:
    given: Any = batch()
    if isinstance(network, Repeated):
        given = (given["numbers"], given["codes"], given["y"])
    return describe_inputs(given), given


@pytest.mark.parametrize("make", [Embedded, OneTable, Repeated])
@pytest.mark.parametrize("training", [True, False])
def test_logits_and_gradients_are_those_of_the_network(make: Callable[[], nn.Module], training: bool) -> None:
    torch.manual_seed(1)
    network = make().train(training)
    encoder, given = described(network)
    assert encoder.form is not None
    found = ClientForm.of(network, encoder.form, encoder.spread_rows(3))
    assert isinstance(found, ClientForm) and type(found).__name__ == make.__name__
    assert found.training == training
    x, labels = encoder.form.read(given)
    logits = direct(network, batch())
    torch.testing.assert_close(found(x), logits)
    nn.functional.cross_entropy(logits, labels).backward()
    nn.functional.cross_entropy(found(x), labels).backward()
    expected = {f"network.{name}": parameter.grad for name, parameter in network.named_parameters()}
    assert {name for name, _ in found.named_parameters()} == set(expected)
    for name, parameter in found.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)


@pytest.mark.parametrize("make", [Embedded, OneTable, Repeated])
def test_the_gradient_has_a_derivative_by_the_categories_under_vmap(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(1)
    network = make().eval()
    encoder, given = described(network)
    assert encoder.form is not None
    found = ClientForm.of(network, encoder.form, encoder.spread_rows(3)).double()
    rows, labels = encoder.form.read(given)
    x = rows.double().expand(2, *rows.shape).clone().requires_grad_()
    parameters = dict(found.named_parameters())

    def loss(values: dict[str, Tensor], one: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(found, values, (one,)), labels)

    with twice_differentiable():
        gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    (derivative,) = torch.autograd.grad(sum(g.square().sum() for g in gradients.values()), x)
    assert all(bool(derivative[..., block.slice].any()) for block in encoder.layout.blocks)


def test_layers_kept_in_eval_mode_stay_in_it() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    network[0].eval()
    network[3].eval()
    rows = torch.randn(5, 2)
    found = ClientForm.of(network, None, rows)
    assert isinstance(found, ClientForm)
    torch.testing.assert_close(found.train()(rows), network(rows))
    assert ClientForm.of(network.train(), None, rows) is network


def test_a_network_of_encoded_rows_needs_no_form() -> None:
    rows = torch.randn(5, 2)
    encoder = describe_inputs((rows, torch.arange(5) % 2))
    network = nn.Linear(2, 2)
    assert ClientForm.of(network, encoder.form, encoder.spread_rows(3)) is network


class Crossed(Repeated):
    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        numbers, codes = inputs
        return self.out(torch.cat([numbers, self.table(codes[:, 0] + codes[:, 1])], 1))


class Bounded(Repeated):
    def __init__(self) -> None:
        super().__init__()
        self.table.max_norm = 1.0


class Small(Repeated):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Crossed, "'table' is indexed by several columns at once"),
        (Bounded, "'table' has max_norm"),
        (Small, r"Small must take the inputs of a batch \(\[0\], \[1\]\) as one dictionary or tuple"),
    ],
)
def test_what_has_no_such_form_is_refused(make: Callable[[], nn.Module], message: str) -> None:
    network = make()
    encoder, _ = described(network)
    with pytest.raises(UnsupportedError, match=message):
        ClientForm.of(network, encoder.form, encoder.spread_rows(3))


def test_unused_embeddings_are_left_alone() -> None:
    network = Repeated()
    network.unused = nn.Embedding(3, 3)
    encoder, _ = described(network)
    found = ClientForm.of(network, encoder.form, encoder.spread_rows(3))
    kinds = [type(module) for module in found.modules() if isinstance(module, nn.Embedding | OneHotEmbedding)]
    assert kinds == [OneHotEmbedding, nn.Embedding]
