"""Matching and pooling: the order of rows is without meaning, and a known order is found again."""

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE, similarity
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import TableSchema
from lightleak.data.table import Table


@pytest.fixture(scope="module")
def distinct(table: Table, encoder: TableEncoder) -> Tensor:
    """Six rows ``[6, d]``, every two of which agree on at most two of their five cells."""
    rows, chosen = encoder.encode(table.train), []
    alike = similarity(encoder, rows, rows)
    for i in range(len(rows)):
        if all(alike[i, j] <= 0.4 for j in chosen):
            chosen.append(i)
    assert len(chosen) >= 6
    return rows[chosen[:6]]


def ensemble_of(encoder: TableEncoder, rows: Tensor, restarts: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy copies of the rows in random orders, and the orders: copy k holds row ``order[k, i]`` at place i."""
    draw = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(len(rows), generator=draw) for _ in range(restarts)])
    noise = 0.02 * torch.randn(restarts, *rows.shape, generator=draw) / encoder.scale.float().clamp_min(1)
    return rows[order] + noise, order


def test_similarity_is_the_share_of_agreeing_cells(table: Table, encoder: TableEncoder) -> None:
    frame = table.train.head(7)
    x = encoder.encode(frame)
    got = similarity(encoder, x[:4], x[3:].expand(2, 4, -1))
    assert got.shape == (2, 4, 4)
    deviation = dict(zip([c.name for c in encoder.schema.numerical], encoder.deviation.tolist(), strict=True))
    for i in range(4):
        for j in range(4):
            one, other = frame.iloc[i], frame.iloc[3 + j]
            right = [
                abs(one[c.name] - other[c.name]) <= TOLERANCE * deviation[c.name]
                if c.is_numerical
                else one[c.name] == other[c.name]
                for c in encoder.schema.columns
            ]
            assert got[0, i, j] == got[1, i, j] == pytest.approx(sum(right) / len(right))


@settings(max_examples=20)
@given(restarts=st.integers(2, 6), best=st.integers(0, 5), seed=st.integers(0, 10**6))
def test_align_finds_a_known_order(
    encoder: TableEncoder, distinct: Tensor, restarts: int, best: int, seed: int
) -> None:
    best %= restarts
    ensemble, order = ensemble_of(encoder, distinct, restarts, seed)
    before = ensemble.clone()
    aligned = align(encoder, ensemble, best)
    assert torch.equal(ensemble, before)
    assert torch.equal(aligned[best], ensemble[best])
    for k in range(restarts):
        found = (aligned[k].unsqueeze(1) - distinct).norm(dim=-1).argmin(-1)
        assert found.tolist() == order[best].tolist()
        rows = {tuple(row) for row in ensemble[k].tolist()}
        assert {tuple(row) for row in aligned[k].tolist()} == rows  # a permutation, no row twice


@pytest.mark.parametrize("pooling", ["median", "mean"])
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_the_order_of_rows_within_a_restart_does_not_matter(
    encoder: TableEncoder, distinct: Tensor, pooling: str, seed: int
) -> None:
    ensemble, _ = ensemble_of(encoder, distinct, 4, seed)
    expected = pool(align(encoder, ensemble, 1), 1, pooling)
    for k in (0, 2, 3):
        shuffled = ensemble.clone()
        shuffled[k] = ensemble[k, torch.randperm(6)]
        torch.testing.assert_close(pool(align(encoder, shuffled, 1), 1, pooling), expected, rtol=0, atol=0)
    # A permutation of the reference permutes the result and nothing more.
    turned = ensemble.clone()
    turned[1] = ensemble[1].roll(2, 0)
    torch.testing.assert_close(pool(align(encoder, turned, 1), 1, pooling), expected.roll(2, 0))


def test_pooling_takes_median_mean_or_the_best() -> None:
    aligned = torch.tensor([[[0.0, 5.0]], [[1.0, 1.0]], [[10.0, 3.0]], [[2.0, 2.0]]])
    assert pool(aligned, 2, "median").tolist() == [[1.0, 2.0]]  # the lower of the two middle values
    assert pool(aligned[:3], 2, "median").tolist() == [[1.0, 3.0]]
    assert pool(aligned, 2, "mean").tolist() == [[3.25, 2.75]]
    assert pool(aligned, 2, "none").tolist() == [[10.0, 3.0]]


@pytest.mark.parametrize("pooling", ["median", "mean", "none"])
def test_an_ensemble_of_one_is_its_own_pool(encoder: TableEncoder, distinct: Tensor, pooling: str) -> None:
    ensemble = distinct.unsqueeze(0)
    assert torch.equal(pool(align(encoder, ensemble, 0), 0, pooling), distinct)


def test_pooling_outvotes_a_wrong_restart() -> None:
    columns = (Column.categorical("a", list("uvw")), Column.integer("b", 0, 100))
    schema = TableSchema(columns, Column.categorical("y", ["0", "1"]))
    frame = pd.DataFrame({"a": list("uvwu"), "b": [0, 30, 60, 90], "y": list("0101")})
    encoder = TableEncoder(schema).fit(frame)
    right = encoder.encode(frame)
    wrong = encoder.encode(frame.assign(a=list("vvwu"), b=[40, 30, 60, 90]))
    pooled = pool(align(encoder, torch.stack([right, right, wrong]), 0), 0, "median")
    pd.testing.assert_frame_equal(encoder.decode(pooled), frame[["a", "b"]])
