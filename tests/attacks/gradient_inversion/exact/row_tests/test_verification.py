"""The three tests: rows of the batch pass with their counts, others do not."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.row_tests.verification import (
    MOST_EQUAL,
    Verdict,
    label_hypotheses,
    verify,
)
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator

ROW, UNIT, COEFFICIENT = 2e-5, 6e-4, 0.02
"""Tolerances of the course (rounding of float32)."""

NETWORKS = [((40, 40), 2), ((40, 40), 5), ((30, 30, 30), 3)]


def passed(verdict: Verdict) -> torch.Tensor:
    return (verdict.row_distance < ROW) & (verdict.unit_distance < UNIT) & (verdict.coefficient_error < COEFFICIENT)


def verdict_of(batch: Any, x: torch.Tensor, layer: int = 1) -> Verdict:
    gradient = batch.observed[layer]
    return verify(batch.chain, layer, spaces_of(gradient, unit_scale(gradient)), x, len(batch.x))


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), NETWORKS)
@pytest.mark.parametrize("labels", ["as drawn", "equal", "different"])
def test_rows_of_the_batch_pass_with_their_counts(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str, labels: str
) -> None:
    for seed in range(3):
        rows = torch.randperm(400, generator=generator(seed, "of the batch"))[:7].tolist()
        if labels == "as drawn":
            batch = make_batch(hidden=hidden, n_classes=n_classes, encoding=encoding, seed=seed, rows=tuple(rows))
        else:
            # One row three times, one twice.
            rows = (*rows, rows[0], rows[0], rows[1])
            given = [0, 1, 1, 0, n_classes - 1, 0, 1, 0, 0, 1]
            if labels == "different":
                given[9] = 0
                given[8] = 1 if n_classes == 2 else 0
            batch = make_batch(
                hidden=hidden, n_classes=n_classes, encoding=encoding, seed=seed, rows=rows, labels=tuple(given)
            )
        x, counts = batch.distinct()
        verdict = verdict_of(batch, x)
        probabilities = batch.chain.forward(x).probabilities
        # Equal rows whose labels nearly cancel (as with p = 1/2 and one row of each class) are below rounding.
        loud = (counts.sum(-1, keepdim=True) * probabilities - counts).abs().amax(-1) > 0.1
        assert int(loud.sum()) >= 6
        assert bool(passed(verdict)[loud].all()), (seed, verdict)
        assert torch.equal(verdict.counts[loud], counts[loud])


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), NETWORKS)
def test_other_rows_fail(make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str) -> None:
    batch = make_batch(10, hidden, n_classes, encoding, seed=3)
    space = RowDomain.whole(batch.encoder, batch.prior)
    drawn = space.encode(space.cells(*space.draw(3000, generator(0, "others"))))
    assert not bool(passed(verdict_of(batch, drawn)).any())
    # Rows of the batch with one cell of another row, where it differs.
    codes, values = batch.cells
    for column in range(codes.shape[1] + values.shape[1]):
        mixed = codes.clone(), values.clone()
        part, at = (mixed[0], column) if column < codes.shape[1] else (mixed[1], column - codes.shape[1])
        part[:, at] = part[:, at].roll(1)
        x = space.encode(mixed)
        wrong = ~(x.unsqueeze(1) == batch.x).all(-1).any(1)
        assert not bool((passed(verdict_of(batch, x)) & wrong).any())


@pytest.mark.parametrize(("hidden", "n_classes"), NETWORKS)
@pytest.mark.parametrize("factor", [0.5, 0.037, 3.0])
def test_rows_that_are_alone_tell_by_what_a_gradient_was_scaled(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, factor: float
) -> None:
    batch = make_batch(8, hidden, n_classes, seed=4)
    gradient = factor * batch.observed[1]
    verdict = verify(batch.chain, 1, spaces_of(gradient, unit_scale(gradient)), batch.x, 8)
    torch.testing.assert_close(verdict.single, torch.full((8,), 1 / factor).double(), rtol=1e-3, atol=0)
    assert bool((verdict.single_distance < UNIT).all())


def test_every_verdict_depends_on_its_own_row_alone(make_batch: Any) -> None:
    batch = make_batch(6, n_classes=3)
    whole, alone = verdict_of(batch, batch.x), verdict_of(batch, batch.x[2:3])
    assert torch.equal(whole.counts[2:3], alone.counts)
    torch.testing.assert_close(whole.unit_distance[2:3], alone.unit_distance, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_hypotheses_are_different_counts(n_classes: int) -> None:
    found = label_hypotheses(n_classes)
    assert len(set(found)) == len(found) and all(len(counts) == n_classes for counts in found)
    assert {sum(counts) for counts in found} == set(range(1, MOST_EQUAL + 1))
    singles = [counts for counts in found if sum(counts) == 1]
    assert list(found[:n_classes]) == singles and len(singles) == n_classes
    pairs = {counts for counts in found if sum(counts) == 2}
    assert len(pairs) == n_classes * (n_classes + 1) // 2  # every pair of labels
