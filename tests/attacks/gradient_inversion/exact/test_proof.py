"""What counts as a proof of a row."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.chain import ReLUChain
from lightleak.attacks.gradient_inversion.exact.proof import proven_rows
from lightleak.attacks.gradient_inversion.exact.residual import Residual
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.attacks.gradient_inversion.exact.spaces import spaces_of, unit_scale

SETTINGS = [((40, 40), 2), ((40, 40), 5), ((30, 30, 30), 3)]
FREE = 6
"""Numerical columns of the table."""


def any_space(batch: Any) -> RowSpace:
    return RowSpace.whole(batch.encoder, batch.prior)


def proven(batch: Any, cells: tuple[Tensor, Tensor], labels: Tensor, n_rows: int | None = None) -> list[bool]:
    """Of these rows as an explanation of the batch."""
    n_rows = n_rows or len(batch.x)
    counts = torch.nn.functional.one_hot(labels, batch.chain.n_classes).double()
    x = batch.encoder.assemble(*cells).double()
    residual = Residual.of(batch.chain, batch.observed, n_rows).with_rows(x, counts)
    whole = [spaces_of(layer, unit_scale(layer)) for layer in batch.observed[:2]]
    return proven_rows(residual, any_space(batch), whole, FREE).tolist()


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
@pytest.mark.parametrize("known", [10, 7, 1])
def test_true_rows_are_proven_together_and_alone(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str, known: int
) -> None:
    batch = make_batch(10, hidden, n_classes, encoding, seed=9)
    cells = batch.cells[0][:known], batch.cells[1][:known]
    assert proven(batch, cells, batch.truth.labels[:known]) == [True] * known


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
@pytest.mark.parametrize("known", [10, 7])
def test_a_row_with_one_wrong_cell_or_label_is_not(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str, known: int
) -> None:
    batch = make_batch(10, hidden, n_classes, encoding, seed=9)
    codes, values, labels = batch.cells[0][:known], batch.cells[1][:known], batch.truth.labels[:known]
    rest = [True] * (known - 1)  # a wrong row does not take the proof of the others away
    for k, column in enumerate(batch.encoder.schema.categorical):
        wrong = codes.clone()
        wrong[0, k] = (wrong[0, k] + 1) % column.width
        assert proven(batch, (wrong, values), labels) == [False, *rest]
    for j, deviation in enumerate(batch.encoder.deviation.tolist()):
        moved = values.clone()
        moved[0, j] += 0.02 * deviation
        assert proven(batch, (codes, moved), labels) == [False, *rest]
    other = labels.clone()
    other[0] = (other[0] + 1) % n_classes
    assert proven(batch, (codes, values), other) == [False, *rest]


def test_a_row_given_twice_is_not_proven_alone(make_batch: Any) -> None:
    batch = make_batch(10, n_classes=3, seed=9)
    counts = torch.nn.functional.one_hot(batch.truth.labels[:3], 3).double()
    counts[1] *= 2
    residual = Residual.of(batch.chain, batch.observed, 10).with_rows(batch.x[:3], counts)
    whole = [spaces_of(layer, unit_scale(layer)) for layer in batch.observed[:2]]
    assert proven_rows(residual, any_space(batch), whole, FREE).tolist() == [True, False, True]


def test_more_rows_than_the_batch_has_prove_nothing(make_batch: Any) -> None:
    batch = make_batch(6, seed=9)
    twice = batch.cells[0].repeat(2, 1), batch.cells[1].repeat(2, 1)
    assert not any(proven(batch, twice, batch.truth.labels.repeat(2)))
    # Nor does a gradient that shows more rows than there were.
    fewer = batch.cells[0][:3], batch.cells[1][:3]
    assert not any(proven(batch, fewer, batch.truth.labels[:3], n_rows=5))
    assert proven(batch, (batch.cells[0][:0], batch.cells[1][:0]), batch.truth.labels[:0]) == []


def test_without_tests_to_spare_a_row_is_proven_by_the_whole_alone(make_batch: Any) -> None:
    batch = make_batch(14, (30, 16), 3, seed=2)
    assert spaces_of(batch.observed[1], unit_scale(batch.observed[1])).rank == 14
    residual = Residual.of(batch.chain, batch.observed, 14)
    counts = torch.nn.functional.one_hot(batch.truth.labels, 3).double()
    whole = [spaces_of(layer, unit_scale(layer)) for layer in batch.observed[:2]]
    tests = whole[1].row_null.shape[1] + whole[1].unit_null.shape[1]
    some = residual.with_rows(batch.x[:5], counts[:5])
    assert (
        proven_rows(some, any_space(batch), whole, tests - 4).any()
        and not proven_rows(some, any_space(batch), whole, tests - 3).any()
    )
    assert proven_rows(residual.with_rows(batch.x, counts), any_space(batch), whole, tests).all()


def test_a_changed_gradient_explained_almost_is_not_explained(make_batch: Any) -> None:
    batch = make_batch(14, (14, 14), 3, seed=2)  # full: no row can be proven alone
    counts = torch.nn.functional.one_hot(batch.truth.labels, 3).double()
    whole = [spaces_of(layer, unit_scale(layer)) for layer in batch.observed[:2]]
    for size, expected in ((0.0, True), (1e-5, False), (1e-3, False)):
        changed = tuple(layer + size * layer.abs().mean() for layer in batch.observed)
        residual = Residual.of(batch.chain, changed, 14).with_rows(batch.x, counts)
        assert residual.relative < 2e-3
        assert bool(proven_rows(residual, any_space(batch), whole, FREE).any()) is expected


def test_a_row_that_adds_nothing_is_not_proven_by_the_whole(make_batch: Any) -> None:
    batch = make_batch(8, (24, 24), 2, seed=4)
    base = batch.chain
    # A well-trained network: it is all but certain of row 0, so that the gradient hardly shows it.
    sure = base.forward(batch.x[:1]).hidden[-1]
    weight = torch.cat(
        [w + side * 30 * sure / sure.square().sum() for w, side in zip(base.weights[-1], (1, -1), strict=True)]
    )
    chain = ReLUChain((*base.weights[:-1], weight.view(2, -1)), base.biases)
    labels = chain.forward(batch.x).probabilities.argmin(-1)
    labels[0] = 0
    counts = torch.nn.functional.one_hot(labels, 2).double()
    residual = Residual.of(chain, tuple(g.float().double() for g in chain.gradient(batch.x, counts, 8)), 8)
    whole = [spaces_of(layer, unit_scale(layer)) for layer in residual.observed[:2]]
    codes = batch.cells[0].clone()
    codes[0, 3] = 1 - codes[0, 3]
    explained = residual.with_rows(batch.encoder.assemble(codes, batch.cells[1]).double(), counts)
    assert explained.relative < 1e-6 and float(explained.own_parts[0]) < 1e-6 * float(explained.own_parts[1:].min())
    found = proven_rows(explained, any_space(batch), whole, FREE)
    assert not found[0] and bool(found[1:].all())
