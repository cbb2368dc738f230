"""What is left of a gradient."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual


@pytest.mark.parametrize(("hidden", "n_classes"), [((12, 10), 2), ((9, 8, 7), 3)])
def test_explained_rows_are_taken_out(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    rows, labels = (1, 1, 4, 9, 9, 30), (0, 1, 0, 1, 1, n_classes - 1)
    batch = make_batch(hidden=hidden, n_classes=n_classes, rows=rows, labels=labels, precise=True)
    x, counts = batch.distinct()
    nothing = Residual.of(batch.chain, batch.observed, 6)
    assert nothing.rows_left == 6 and nothing.relative == 1.0 and len(nothing.x) == len(nothing.counts) == 0
    some = nothing.with_rows(x[:2], counts[:2])
    rest = batch.chain.gradient(x[2:], counts[2:], 6)
    for left, expected in zip(some.left, rest, strict=True):
        torch.testing.assert_close(left, expected, rtol=1e-8, atol=1e-13)
    assert some.rows_left == 6 - int(counts[:2].sum())
    whole = some.with_rows(x[2:], counts[2:])
    assert whole.rows_left == 0 and whole.relative < 1e-12
    at_once = nothing.explaining(x, counts)
    for one, other in zip(whole.left, at_once.left, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-15)


def test_explaining_forgets_what_was_explained_before(make_batch: Any) -> None:
    batch = make_batch(5)
    x, counts = batch.distinct()
    first = Residual.of(batch.chain, batch.observed, 5).with_rows(x[:3], counts[:3])
    other = first.explaining(x[3:], counts[3:])
    assert other.rows_left == 3 and torch.equal(other.x, x[3:])
    assert first.rows_left == 2 and torch.equal(first.x, x[:3])  # and leaves the old one alone


def test_relative_is_over_all_layers(make_batch: Any) -> None:
    batch = make_batch(5)
    x, counts = batch.distinct()
    some = Residual.of(batch.chain, batch.observed, 5).with_rows(x[:2], counts[:2])
    left, whole = (torch.cat([t.flatten() for t in part]).norm() for part in (some.left, batch.observed))
    assert some.relative == pytest.approx(float(left / whole))
    assert Residual.of(batch.chain, batch.observed, 5).with_rows(x, counts).relative < 1e-6  # float32's rounding
