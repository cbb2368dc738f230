"""Inner products of terms, held against gradients that are written out."""

from collections.abc import Callable
from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes
from lightleak.attacks.gradient_inversion.joint.kernels import Kernels, gram, inner
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator


def test_products_are_those_of_written_out_gradients(make_batch: Any) -> None:
    batch, other = make_batch(n_classes=3, seed=0), make_batch(n_classes=3, seed=5)
    nodes = Nodes.of([batch.chain, other.chain], (0.3, 0.7))
    space = RowDomain.whole(batch.encoder, batch.prior)
    kernels = Kernels.whitened(nodes, space, 1e-2, generator(0))
    terms, units = nodes.terms(batch.x), torch.eye(4, dtype=torch.float64)
    residual = tuple(torch.randn(t.shape, generator=generator(1), dtype=torch.float64) for t in batch.observed)
    squares, against = gram(terms, kernels), inner(terms, kernels.apply(residual))
    for row in range(3):
        directions = [terms.row(row).gradient(unit.unsqueeze(0)) for unit in units]
        for i, one in enumerate(directions):
            applied = kernels.apply(one)
            expected = sum(float((a * r).sum()) for a, r in zip(applied, residual, strict=True))
            torch.testing.assert_close(float(against[row, i]), expected)
            for j, second in enumerate(directions):
                product = sum(float((a * s).sum()) for a, s in zip(applied, second, strict=True))
                torch.testing.assert_close(float(squares[row, i, j]), product)


def test_plain_value_is_the_squared_norm(
    posed: Any, random_residual: Callable[[JointProblem], tuple[torch.Tensor, ...]]
) -> None:
    problem, _ = posed()
    residual = random_residual(problem)
    expected = sum(float(r.square().sum()) for r in residual)
    torch.testing.assert_close(float(problem.kernels.value(residual)), expected)


def test_a_typical_row_weighs_one_in_every_layer(make_batch: Any) -> None:
    batch = make_batch()
    nodes, space = Nodes.of([batch.chain]), RowDomain.whole(batch.encoder, batch.prior)
    kernels = Kernels.whitened(nodes, space, 1e-2, generator(0))
    terms = nodes.terms(space.rows.of(*space.draw(3000, generator(9))))
    for layer in range(3):
        only = Kernels(
            tuple(k if i == layer else torch.zeros_like(k) for i, k in enumerate(kernels.left) if k is not None),
            kernels.right,
        )
        torch.testing.assert_close(float(gram(terms, only).mean()), 1.0, atol=0.1, rtol=0)
