"""Rows that stand out of the noise: what passes, what does not, and what is left."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.attacks.gradient_inversion.joint.visible_rows import noised_spaces, noised_tests, visible_rows
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator

N = 6
HIDDEN = (50, 50)


def noised_layers(batch: Any, noise: float) -> tuple[torch.Tensor, ...]:
    draws = generator(1, "noise")
    return tuple(o + noise * torch.randn(o.shape, generator=draws, dtype=torch.float64) for o in batch.observed)


def searched(batch: Any, noise: float) -> tuple[Residual, RowDomain, torch.Tensor]:
    layers = noised_layers(batch, noise)
    space = RowDomain.whole(batch.encoder, batch.prior)
    return Residual.of(batch.chain, layers, N), space, torch.full_like(layers[batch.chain.searched], noise**2)


@pytest.fixture(scope="module")
def batch(make_batch: Any) -> Any:
    return make_batch(n=N, hidden=HIDDEN, precise=True)


def test_every_row_is_found_with_its_label_behind_weak_noise(batch: Any) -> None:
    residual, space, variance = searched(batch, 1e-6)
    found = visible_rows(residual, space, variance, generator(0, "search"))
    truth, _ = space.coordinates(batch.cells)
    order = [int((found.codes == row).all(-1).nonzero().flatten()[0]) for row in truth]
    assert sorted(order) == list(range(N))
    assert torch.equal(found.labels[order], batch.truth.labels)


def test_nothing_is_found_where_noise_hides_everything(batch: Any) -> None:
    residual, space, variance = searched(batch, 10.0)
    found = visible_rows(residual, space, variance, generator(0, "search"))
    assert isinstance(found, JointRows) and not len(found.labels)


def test_true_rows_pass_and_others_do_not(batch: Any) -> None:
    residual, space, variance = searched(batch, 1e-6)
    layer = batch.chain.searched
    spaces = noised_spaces(residual.left[layer], variance, N)
    assert spaces.rank == N
    x = space.encode(batch.cells)
    true = noised_tests(batch.chain, layer, spaces, x, N)
    assert bool(true.passed.all()) and torch.equal(true.labels, batch.truth.labels)
    others = space.encode(space.cells(*space.draw(200, generator(2, "others"))))
    known = (others.unsqueeze(1) - x).abs().amax(-1).amin(-1) < 1e-9
    wrong = noised_tests(batch.chain, layer, spaces, others[~known], N)
    assert not bool(wrong.passed.any())


def test_the_rank_is_that_of_what_stands_out_and_no_more_than_the_rows(batch: Any) -> None:
    residual, _, variance = searched(batch, 1e-6)
    left = residual.left[batch.chain.searched]
    assert [noised_spaces(left, variance, most).rank for most in (2, N)] == [2, N]
    assert noised_spaces(torch.randn_like(left) * 1e-9, variance, N).rank == 0
