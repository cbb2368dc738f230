"""TabM, DeepTab's and pytorch-frame's models as targets: their own logits, and errors that name what is missing."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.layout import Block, EncodedLayout
from lightleak.targets import NETWORKS, NetworkSpec, build_network
from lightleak.targets.client_form import ClientForm, OneHotEmbedding
from lightleak.targets.functional import without_dropout
from lightleak.targets.other_libraries import FrameNetwork, TabM
from lightleak.targets.packages import FromPackage

NUMBERS = (Block("age", 0, 1, False), Block("stay", 1, 2, False))
CODES = (Block("ward", 2, 6, True), Block("sex", 6, 8, True))
LAYOUT = EncodedLayout((*NUMBERS, *CODES))
SMALL = {
    "tabm": {"k": 3, "n_blocks": 2, "d_block": 6},
    "deeptab_mlp": {"layer_sizes": [6, 5]},
    "frame_mlp": {"channels": 6, "num_layers": 2},
    "frame_resnet": {"channels": 6, "num_layers": 1},
    "frame_ft_transformer": {"channels": 8, "num_layers": 1},
}
FRAMES = [name for name in SMALL if issubclass(NETWORKS.get(name), FrameNetwork)]


def rows(n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Encoded rows, numbers and codes."""
    draws = torch.Generator().manual_seed(4)
    codes = torch.stack([torch.randint(block.width, (n,), generator=draws) for block in CODES], 1)
    numbers = torch.randn(n, len(NUMBERS), generator=draws)
    blocks = [one_hot(codes[:, k], block.width).float() for k, block in enumerate(CODES)]
    return torch.cat([numbers, *blocks], 1), numbers, codes


def build(name: str, layout: EncodedLayout = LAYOUT) -> torch.nn.Module:
    return without_dropout(build_network(NetworkSpec(name, 3, layout, SMALL[name]), seed=1))


@pytest.mark.parametrize("name", FRAMES)
def test_one_hot_rows_give_pytorch_frames_logits(name: str) -> None:
    network, (x, numbers, codes) = build(name), rows()
    logits = network(x)
    assert isinstance(network, ClientForm)
    # The library's own look-up and mask of missing codes, in the place of products with one-hot columns.
    for key, layer in list(network.network.named_modules()):
        vars(layer).pop("encode_forward", None)
        if isinstance(layer, OneHotEmbedding):
            table = torch.nn.Embedding.from_pretrained(layer.weight.detach(), padding_idx=0)
            network.network.set_submodule(key, table)
    torch.testing.assert_close(network.network(numbers, codes), logits)


def test_one_hot_rows_give_tabms_logits() -> None:
    tabm = pytest.importorskip("tabm", reason="the extra zoo brings it")
    network, (x, numbers, codes) = build("tabm"), rows()
    assert isinstance(network, TabM)
    cardinalities = [block.width for block in CODES]
    own = tabm.TabM.make(n_num_features=len(NUMBERS), cat_cardinalities=cardinalities, d_out=3, **SMALL["tabm"])
    own.load_state_dict(network.members.state_dict(), strict=False)
    torch.testing.assert_close(without_dropout(own)(numbers, codes).mean(1), network(x))


@pytest.mark.parametrize("deeptab_mlp", ["deeptab_mlp"])
def test_one_hot_rows_give_deeptabs_logits(deeptab_mlp: str) -> None:
    network, (x, numbers, codes) = build(deeptab_mlp), rows()
    columns = [column.unsqueeze(1) for column in numbers.T], [column.unsqueeze(1).float() for column in codes.T]
    torch.testing.assert_close(network.mlp(*columns, []), network(x))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("blocks", [NUMBERS[:1], (Block("ward", 0, 4, True),)])
def test_tables_of_one_kind_of_columns_are_taken(name: str, blocks: tuple[Block, ...]) -> None:
    network = build(name, EncodedLayout(blocks))
    assert network.eval()(torch.zeros(4, sum(block.width for block in blocks))).shape == (4, 3)


@pytest.mark.parametrize("name", SMALL)
def test_settings_that_the_library_does_not_have_are_named(name: str) -> None:
    with pytest.raises(UsageError, match=r"does not take .*nonsense"):
        build_network(NetworkSpec(name, 2, LAYOUT, {"nonsense": 1}), seed=0)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tabm", r"TabM needs tabm: pip install .*\.\[zoo\]"),
        ("deeptab_mlp", "DeepTabMLP needs deeptab: pip install deeptab"),
        ("frame_resnet", r"FrameResNet needs pytorch-frame: pip install .*\.\[zoo\]"),
    ],
    ids=lambda _: "",
)
def test_the_missing_package_is_named(target: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightleak.targets.packages.is_missing", lambda package: True)
    with pytest.raises(UnsupportedError, match=message):
        build_network(NetworkSpec(target, 2, LAYOUT), seed=0)


def test_a_network_without_a_package_of_its_own_misses_none() -> None:
    assert FromPackage.missing_package() is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"normalization": "nosuch"}, "normalization must be one of layer_norm, batch_norm, got 'nosuch'"),
        ({"channels": 0}, "channels must be a whole number of at least 1, got 0"),
        ({"dropout_prob": 3}, r"ResNet of pytorch-frame does not take .*'dropout_prob': 3.*: dropout probability"),
    ],
)
def test_values_that_pytorch_frame_does_not_take_are_named(settings: dict[str, object], message: str) -> None:
    pytest.importorskip("torch_frame", reason="the extra zoo brings it")
    with pytest.raises(UsageError, match=message):
        build_network(NetworkSpec("frame_resnet", 2, LAYOUT, settings), seed=0)
