"""The course: rows found, taken out, and what is left."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.exact.rounds import Found, Rounds
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.core.seeds import generator

QUICK = ExactConfig(chains=96, most_chains=192, patience=4)
FEW = ExactConfig(chains=48, most_chains=96, patience=3, enumerate_below=8)


def run(batch: Any, config: ExactConfig = QUICK, observed: Any = None, seed: int = 0) -> Found:
    gradient = batch.observed if observed is None else observed
    draws = generator(seed, "rounds")
    return Rounds(batch.chain, gradient, len(batch.x), batch.encoder, batch.prior, config, draws).run()


def matched(found: Found, batch: Any) -> torch.Tensor:
    """Which of the client's distinct rows each found one is ``[r]``; fails where it is none, or one twice."""
    x, counts = batch.distinct()
    codes, values = batch.encoder.project(x)
    alike = (found.cells[0].unsqueeze(1) == codes).all(-1)
    alike &= ((found.cells[1].unsqueeze(1) - values).abs() < 0.01 * batch.encoder.deviation).all(-1)
    assert bool((alike.sum(1) == 1).all())
    at = alike.int().argmax(1)
    assert len(at.unique()) == len(at)
    assert torch.equal(found.residual.counts, counts[at])
    return at


@pytest.mark.parametrize(
    ("n", "hidden", "n_classes"), [(1, (20, 20), 2), (7, (40, 40), 2), (12, (30, 30, 30), 3), (16, (40, 40), 5)]
)
def test_every_distinct_row_is_found_once_with_its_counts(
    make_batch: Any, n: int, hidden: tuple[int, ...], n_classes: int
) -> None:
    batch = make_batch(n, hidden, n_classes, seed=11)
    found = run(batch)
    assert len(matched(found, batch)) == found.rank == n
    assert found.residual.rows_left == 0 and found.residual.relative < 1e-6
    assert found.proof.cells.shape == (n,) and bool(found.proof.digits.all()) and found.searches >= 1
    torch.testing.assert_close(found.residual.x, batch.encoder.assemble(*found.cells).double(), rtol=0, atol=0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_equal_rows_are_found_once(make_batch: Any, n_classes: int) -> None:
    rows, labels = (3, 50, 3, 90, 120, 50, 3, 7), (0, 1, 0, 0, 1, 0, 0, n_classes - 1)
    batch = make_batch(n_classes=n_classes, rows=rows, labels=labels, seed=3)
    found = run(batch)
    assert len(matched(found, batch)) == found.rank == 5
    assert found.residual.rows_left == 0 and found.residual.counts.sum(1).max() == 3


@pytest.mark.parametrize("factor", [0.5, 0.013, 2.0, 3.0, 0.99, 0.9999])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_scaled_gradient_is_scaled_back(make_batch: Any, factor: float, n_classes: int) -> None:
    batch = make_batch(8, n_classes=n_classes, seed=12)
    found = run(batch, observed=tuple(factor * layer for layer in batch.observed))
    assert len(matched(found, batch)) == 8 and found.residual.rows_left == 0
    for layer, original in zip(found.residual.observed, batch.observed, strict=True):
        torch.testing.assert_close(layer, original, rtol=2e-5, atol=1e-8)


@pytest.mark.parametrize("side", [1, -1])
def test_a_first_unit_at_its_kink_may_have_been_rounded_to_either_side(make_batch: Any, side: int) -> None:
    batch = make_batch(8, seed=12)
    x, counts = batch.distinct()
    preactivations = batch.chain.forward(x).preactivations[0][3]
    unit = int(preactivations.argmax())

    def at_the_kink(beyond: float) -> Any:
        first, *others = batch.chain.biases
        first = first.clone()
        first[unit] += beyond - preactivations[unit]
        return replace(batch.chain, biases=(first, *others))

    seen, there = at_the_kink(-side * 1e-8), at_the_kink(side * 1e-8)
    assert Residual.of(seen, there.gradient(x, counts, 8), 8).explaining(x, counts).relative > 1e-4
    draws = generator(0, "rounds")
    found = Rounds(seen, there.gradient(x, counts, 8), 8, batch.encoder, batch.prior, QUICK, draws).run()
    assert len(matched(found, batch)) == 8 and found.residual.relative < 1e-6
    assert len(found.proof.cells) == 8 and bool(found.proof.cells.all())


@pytest.mark.parametrize(
    ("n", "hidden", "n_classes", "encoding", "seed"),
    [
        (16, (24, 24), 2, "standardized", 42),  # once 19 rows were returned for its 16
        (18, (24, 24), 3, "onehot", 1),
        (9, (30, 10), 5, "minmax", 2),
        (16, (30, 10), 2, "onehot", 3),
    ],
)
def test_what_is_explained_never_exceeds_the_batch(
    make_batch: Any, n: int, hidden: tuple[int, ...], n_classes: int, encoding: str, seed: int
) -> None:
    found = run(make_batch(n, hidden, n_classes, encoding, seed), FEW)
    assert 0 <= found.residual.rows_left <= n
    assert len(found.proof.cells) == len(found.residual.x) == len(found.cells[0]) == len(found.cells[1])
    assert int(found.residual.counts.sum()) == n - found.residual.rows_left


@pytest.mark.parametrize("patience", [1, 3, 5])
def test_work_is_bounded_by_counts(make_batch: Any, patience: int) -> None:
    batch = make_batch(20, seed=1)
    found = run(batch, ExactConfig(chains=1, most_chains=1, sweeps=1, patience=patience, enumerate_below=0))
    assert patience <= found.searches <= patience * (1 + len(found.proof.cells))


def test_where_no_test_is_left_nothing_is_claimed(make_batch: Any) -> None:
    found = run(make_batch(40, (40, 40), 2, seed=1), FEW)
    assert not found.proof.cells.any() and found.residual.rows_left == 40
