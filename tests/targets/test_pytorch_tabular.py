"""pytorch-tabular's models as targets: its own logits, reproducible, with derivatives by every column."""

import re

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.layout import Block, EncodedLayout
from lightleak.targets import NETWORKS, NetworkSpec, build_network
from lightleak.targets.client_form import OneHotEmbedding
from lightleak.targets.functional import cross_entropy, functional_call, without_dropout
from lightleak.targets.normalization import with_functional_normalization
from lightleak.targets.pytorch_tabular import PyTorchTabularNetwork

NUMBERS = (Block("age", 0, 1, False), Block("stay", 5, 6, False))
CODES = (Block("ward", 1, 5, True), Block("sex", 6, 8, True))
LAYOUT = EncodedLayout((NUMBERS[0], CODES[0], NUMBERS[1], CODES[1]))
SMALL = {
    "category_embedding": {"layers": "8-8"},
    "ft_transformer": {"input_embed_dim": 8, "num_heads": 2, "num_attn_blocks": 1},
    "autoint": {"embedding_dim": 4, "attn_embed_dim": 8, "num_attn_blocks": 1},
    "danet": {"n_layers": 2, "abstlay_dim_1": 4, "abstlay_dim_2": 8, "k": 2},
    "tabnet": {"n_d": 4, "n_a": 4, "n_steps": 2},
}


def rows(n: int) -> tuple[Tensor, dict[str, Tensor]]:
    draws = torch.Generator().manual_seed(4)
    codes = torch.stack([torch.randint(block.width, (n,), generator=draws) for block in CODES], 1)
    x = torch.randn(n, LAYOUT.width, generator=draws)
    for column, block in enumerate(CODES):
        x[:, block.slice] = torch.nn.functional.one_hot(codes[:, column], block.width).float()
    return x, {"continuous": x[:, [0, 5]], "categorical": codes}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("training", [True, False])
def test_one_hot_rows_give_pytorch_tabulars_logits(name: str, training: bool) -> None:
    network = build_network(NetworkSpec(name, 3, LAYOUT, SMALL[name]), seed=1)
    assert isinstance(network, PyTorchTabularNetwork)
    without_dropout(network.train(training))
    x, batch = rows(6)
    model = network.network
    # The library's own look-up, in the place of products with one-hot columns.
    for key, layer in list(model.named_modules()):
        if isinstance(layer, OneHotEmbedding):
            model.set_submodule(key, torch.nn.Embedding.from_pretrained(layer.weight.detach()))
    torch.testing.assert_close(model(batch), build(name, training)(x))


def build(name: str, training: bool) -> torch.nn.Module:
    return without_dropout(build_network(NetworkSpec(name, 3, LAYOUT, SMALL[name]), seed=1).train(training))


@pytest.mark.parametrize("name", SMALL)
def test_the_gradient_has_a_derivative_by_every_column_as_attacks_take_it(name: str) -> None:
    network = with_functional_normalization(build(name, training=True)).double()
    x = rows(6)[0].double().expand(2, 6, -1).clone().requires_grad_()
    labels = torch.arange(6) % 3

    def loss(values: dict[str, Tensor], one: Tensor) -> Tensor:
        return cross_entropy(functional_call(network, values, (one,)), labels)

    gradients = vmap(grad(loss), in_dims=(None, 0))(dict(network.named_parameters()), x)
    (derivative,) = torch.autograd.grad(sum(g.square().sum() for g in gradients.values()), x)
    assert derivative.isfinite().all()
    assert all(bool(derivative[..., block.slice].any()) for block in LAYOUT.blocks)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("blocks", [NUMBERS[:1], (Block("ward", 0, 4, True),)])
def test_tables_of_one_kind_of_columns_are_taken(name: str, blocks: tuple[Block, ...]) -> None:
    layout = EncodedLayout(blocks)
    network = build_network(NetworkSpec(name, 2, layout, SMALL[name]), seed=0)
    assert network.eval()(torch.zeros(4, layout.width)).shape == (4, 2)


def test_tabnet_names_the_package_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightleak.targets.packages.is_missing", lambda package: True)
    with pytest.raises(UnsupportedError, match=r"needs pytorch-tabnet: pip install .*\.\[tabnet\]"):
        build_network(NetworkSpec("tabnet", 2, LAYOUT), seed=0)


def test_no_rows_are_embedded_to_none() -> None:
    assert build("category_embedding", False)(torch.zeros(0, LAYOUT.width)).shape == (0, 3)


def test_the_seed_alone_decides_the_weights() -> None:
    state = torch.random.get_rng_state()
    one, other = (build("ft_transformer", True).state_dict() for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, other[key]) for key, value in one.items())
    assert set(SMALL) <= set(NETWORKS)


def test_settings_that_the_library_does_not_have_are_named() -> None:
    with pytest.raises(UsageError, match=r"AutoInt of pytorch-tabular does not take .*nonsense"):
        build_network(NetworkSpec("autoint", 2, LAYOUT, {"nonsense": 1}), seed=0)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("ft_transformer", {"num_heads": 7}, "must be multiples of 'num_heads'"),
        ("ft_transformer", {"num_heads": 0}, "zero"),
        ("autoint", {"num_heads": 3}, "divisible by num_heads"),
        ("category_embedding", {"layers": 5}, "has no attribute 'split'"),
        ("category_embedding", {"layers": "x"}, "invalid literal"),
        ("category_embedding", {"activation": "nosuch"}, "nosuch"),
        ("category_embedding", {"dropout": 2}, "probability"),
        ("category_embedding", {"dropout": "x"}, "not supported"),
        ("tabnet", {"n_steps": 0}, "n_steps should be a positive integer"),
        ("tabnet", {"virtual_batch_size": 0}, "zero"),
    ],
)
def test_values_that_a_model_fails_on_are_named(name: str, settings: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=f"of pytorch-tabular does not take {re.escape(str(settings))}: .*{reason}"):
        build_network(NetworkSpec(name, 2, LAYOUT, settings), seed=0)
