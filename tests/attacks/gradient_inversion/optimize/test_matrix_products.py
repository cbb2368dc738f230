"""Products in full precision are PyTorch's own; in bfloat16 they are those of rounded factors, added in float32."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.optimize.matrix_products import MatrixProducts

Factors = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def factors() -> Factors:
    return torch.randn(3, 4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_in_full_precision_they_are_pytorchs(factors: Factors, dtype: torch.dtype) -> None:
    total, left, right = (factor.to(dtype) for factor in factors)
    full = MatrixProducts()
    assert full.rounded(left) is left
    assert torch.equal(full.bmm(left, right), torch.bmm(left, right))
    assert torch.equal(full.baddbmm(total, left, right), torch.baddbmm(total, left, right))
    assert torch.equal(full.baddbmm_(total.clone(), left, right), torch.baddbmm(total, left, right))


@pytest.mark.parametrize("once", [lambda products, factor: factor, lambda products, factor: products.rounded(factor)])
def test_in_bfloat16_only_the_product_is_rounded(
    factors: Factors, once: Callable[[MatrixProducts, Tensor], Tensor]
) -> None:
    total, left, right = factors
    products = MatrixProducts(torch.bfloat16)
    exact = left.bfloat16().double() @ right.bfloat16().double()
    left, right = once(products, left), once(products, right)
    of_last_place = 2.0**-8
    product = products.bmm(left, right)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), exact, rtol=of_last_place, atol=1e-6)
    assert not torch.equal(product, exact.float())
    # 1000 + 0.01 has no neighbor in bfloat16 nearer than 1000.
    large = torch.full_like(total, 1000.0)
    into = large.clone()
    found = products.baddbmm_(into, left, right)
    assert found is into
    for added in (found, products.baddbmm(large, left, right)):
        torch.testing.assert_close(added, 1000 + product, rtol=0, atol=1e-4)
