"""Parts of pytorch-tabular's models that can be differentiated twice, against pytorch-tabular's own."""

import copy

import pytest
import torch
from pytorch_tabular.models.common.layers import activations
from pytorch_tabular.models.danet.danet import DANetBackbone
from torch import Tensor
from torch.func import grad, vmap

from lightleak.targets.differentiable_parts import entmax15, sparsemax, t_softmax, with_differentiable_parts


def test_t_softmax_is_sparse_and_sums_to_one() -> None:
    scores = torch.tensor([3.0, 2.5, 0.0, -4.0])
    shares = t_softmax(scores, torch.tensor(1.0))
    assert shares[2:].max() < 1e-8
    assert shares[:2].min() > 0.1
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0))
    torch.testing.assert_close(t_softmax(scores, torch.tensor(1e6)), torch.softmax(scores, 0), rtol=1e-4, atol=1e-6)


def test_t_softmax_maps_over_stacked_thresholds() -> None:
    scores, t = torch.randn(4, 5), torch.rand(4)
    expected = torch.stack([t_softmax(s, u) for s, u in zip(scores, t, strict=True)])
    torch.testing.assert_close(vmap(t_softmax)(scores, t), expected)


def test_t_softmax_has_values_and_derivatives_of_pytorch_tabular() -> None:
    scores = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    t = torch.rand(3, 1, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 7, dtype=torch.float64)
    ours, theirs = t_softmax(scores, t), activations.t_softmax(scores, t)
    torch.testing.assert_close(ours, theirs)
    for ours_part, theirs_part in zip(
        torch.autograd.grad((ours * weights).sum(), (scores, t)),
        torch.autograd.grad((theirs * weights).sum(), (scores, t)),
        strict=True,
    ):
        torch.testing.assert_close(ours_part, theirs_part)


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_entmax_has_values_and_derivatives_of_pytorch_tabular(dim: int, spread: float) -> None:
    draws = torch.Generator().manual_seed(2)
    scores = (spread * torch.randn(6, 7, generator=draws, dtype=torch.float64)).requires_grad_()
    weights = torch.randn(6, 7, generator=draws, dtype=torch.float64)
    ours, theirs = entmax15(scores, dim), activations.entmax15(scores, dim)
    torch.testing.assert_close(ours, theirs)
    derivatives = [torch.autograd.grad((values * weights).sum(), scores)[0] for values in (ours, theirs)]
    torch.testing.assert_close(*derivatives)
    assert torch.autograd.gradgradcheck(lambda x: entmax15(x, dim), scores)


def test_entmax_maps_and_gives_equal_scores_equal_shares() -> None:
    def squares(x: Tensor) -> Tensor:
        return entmax15(x).square().sum()

    scores = torch.randn(3, 5)
    assert vmap(grad(squares))(scores).isfinite().all()
    torch.testing.assert_close(entmax15(torch.zeros(4)), torch.full((4,), 0.25))


@pytest.mark.parametrize("dim", [-1, 0])
def test_sparsemax_is_the_nearest_point_of_the_simplex(dim: int) -> None:
    scores = torch.randn(6, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    found = sparsemax(scores, dim)
    torch.testing.assert_close(found.sum(dim), torch.ones(7 if dim == 0 else 6, dtype=torch.float64))
    # By the conditions of the projection: one threshold for all that get something, and the others lie below it.
    threshold = (scores - found).where(found > 0, -torch.inf).amax(dim, keepdim=True)
    torch.testing.assert_close(found, (scores - threshold).clamp_min(0))
    assert bool((found == 0).any()) and torch.autograd.gradgradcheck(lambda x: sparsemax(x, dim), scores)
    assert vmap(grad(lambda x: sparsemax(x).square().sum()))(torch.randn(3, 5)).isfinite().all()


def test_tensors_of_tabnet_take_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sparsemax(torch.nn.Module):
        dim = -1

    class Masks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.selector, self.groups = Sparsemax(), torch.eye(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.selector(x) @ self.groups

    for kind in (Sparsemax, Masks):
        monkeypatch.setattr(kind, "__module__", "pytorch_tabnet.made_up")
    network = with_differentiable_parts(Masks()).double()
    torch.testing.assert_close(network(torch.zeros(2, 3).double()), torch.full((2, 3), 1 / 3).double())


def test_replaced_parts_leave_the_outputs_as_they_are() -> None:
    torch.manual_seed(0)
    backbone = DANetBackbone(
        n_continuous_features=5,
        cat_embedding_dims=[],
        n_layers=2,
        abstlay_dim_1=4,
        abstlay_dim_2=8,
        k=2,
        dropout_rate=0.0,
        block_activation=torch.nn.ReLU(),
        virtual_batch_size=8,
        embedding_dropout=0.0,
        batch_norm_continuous_input=False,
    )
    rows = torch.randn(8, 5)
    found = with_differentiable_parts(copy.deepcopy(backbone))
    masks = [module for module in found.modules() if type(module).__name__ == "LearnableLocality"]
    assert masks and all(mask.smax.func is entmax15 for mask in masks)
    torch.testing.assert_close(found(rows), backbone(rows))
