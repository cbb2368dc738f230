"""GANDALF against pytorch-tabular's own layers, and without pytorch-tabular."""

import pytest
import torch

from lightleak.data.layout import EncodedLayout
from lightleak.targets.gandalf import GANDALF
from lightleak.targets.normalization import BatchNorm1d


def one_hot_rows(layout: EncodedLayout, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Encode category codes ``[n, categorical]`` and numbers ``[n, numerical]``."""
    rows = torch.zeros(len(codes), layout.width)
    for column, block in enumerate(layout.categorical):
        rows[torch.arange(len(codes)), block.start + codes[:, column]] = 1
    for column, block in enumerate(layout.numerical):
        rows[:, block.start] = numbers[:, column]
    return rows


@pytest.mark.parametrize("training", [True, False])
def test_one_hot_rows_give_pytorch_tabulars_logits(layout: EncodedLayout, training: bool) -> None:
    from pytorch_tabular.models.gandalf.gandalf import GANDALFBackbone

    network = GANDALF(layout, n_classes=3, stages=3).train(training)
    backbone = GANDALFBackbone([(4, 2), (3, 2)], n_continuous_features=3, gflu_stages=3)
    embedding = backbone._build_embedding_layer()
    backbone.load_state_dict(network.backbone.state_dict())
    embedding.load_state_dict(network.embedding.state_dict())
    backbone.train(training), embedding.train(training)

    codes = torch.stack([torch.randint(0, 3, (9,)), torch.randint(0, 2, (9,))], dim=1)
    numbers = torch.randn(9, 3)
    # Code 0 is pytorch-tabular's unknown category.
    expected = network.output(backbone(embedding({"continuous": numbers, "categorical": codes + 1})))
    torch.testing.assert_close(network(one_hot_rows(layout, codes, numbers)), expected)


def test_its_batch_norm_is_ours(layout: EncodedLayout) -> None:
    network = GANDALF(layout, n_classes=2)
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm1d)]
    assert [type(norm) for norm in norms] == [BatchNorm1d]


@pytest.mark.parametrize("categorical", [True, False])
def test_layouts_of_one_kind(layout: EncodedLayout, categorical: bool) -> None:
    from lightleak.data.layout import Block

    pure = EncodedLayout((Block("a", 0, 3, True), Block("b", 3, 5, True))) if categorical else layout.of_numerical(5)
    assert GANDALF(pure, n_classes=2)(torch.randn(4, 5)).shape == (4, 2)


def test_the_unknown_category_gets_no_gradient(layout: EncodedLayout) -> None:
    network = GANDALF(layout, n_classes=2)
    network(torch.randn(4, layout.width)).sum().backward()
    for embedding in network.embedding.cat_embedding_layers:
        assert embedding.weight.grad[0].abs().max() == 0
        assert embedding.weight.grad[1:].abs().max() > 0
