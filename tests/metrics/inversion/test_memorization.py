"""Nearer to training rows or not: one half without memorization, one with copies, and an interval that holds."""

import json
import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics.cells import Cells
from lightleak.metrics.inversion.gower import SAME_DISTANCE, column_ranges, nearest_rows
from lightleak.metrics.inversion.memorization import memorization
from lightleak.metrics.inversion.table import as_cells, class_labels, take

SMALL = TableSchema(
    (Column.continuous("a"), Column.integer("b"), Column.categorical("c", ["x", "y"])),
    Column.categorical("y", ["0", "1"]),
)


def draw(n: int, generator: torch.Generator) -> tuple[Cells, torch.Tensor]:
    """Rows of which some are equal, and their classes."""
    numbers = torch.stack([torch.randn(n, generator=generator), torch.randint(0, 4, (n,), generator=generator)], 1)
    numbers[: n // 4, 0] = 0.0
    codes = torch.randint(0, 2, (n, 1), generator=generator)
    return Cells(codes, numbers.double()), torch.randint(0, 2, (n,), generator=generator)


def split(rows: pd.DataFrame, schema: TableSchema, n_train: int) -> tuple:
    cells, labels = as_cells(rows, schema), class_labels(rows, schema)
    return take(cells, slice(None, n_train)), labels[:n_train], take(cells, slice(n_train, None)), labels[n_train:]


@pytest.mark.parametrize(("n_train", "n_held_out"), [(150, 150), (900, 60), (60, 400)])
def test_identical_distributions_give_one_half(n_train: int, n_held_out: int):
    shares, covered, runs = [], 0, 60
    for run in range(runs):
        generator = torch.Generator().manual_seed(run)
        samples, train, held_out = (draw(n, generator) for n in (200, n_train, n_held_out))
        found = memorization(*samples, *train, *held_out, SMALL).overall
        assert 0 <= found.low <= found.share <= found.high <= 1
        shares.append(found.share)
        covered += found.low <= 0.5 <= found.high
    assert np.mean(shares) == pytest.approx(0.5, abs=3 * np.std(shares) / math.sqrt(runs))
    assert covered >= 52  # 57 of 60 expected; fewer than 52 in 1 of 70 series of a true 95% interval


def test_one_row_that_attracts_many_samples_widens_the_interval():
    generator = torch.Generator().manual_seed(0)
    train, held_out = draw(200, generator), draw(200, generator)
    apart, _ = draw(200, generator)
    labels = torch.arange(200) % 2
    together = take(apart, torch.arange(200) % 4)
    spread = memorization(apart, labels, *train, *held_out, SMALL).overall
    heaped = memorization(together, labels, *train, *held_out, SMALL).overall
    assert heaped.n == spread.n == 200
    assert heaped.effective_n < 12 < 60 < spread.effective_n
    assert heaped.high - heaped.low > 2 * (spread.high - spread.low)


def test_distinct_nearest_rows_are_counted_by_their_votes():
    codes, numbers = torch.zeros(40, 1).long(), torch.stack([torch.arange(40.0), torch.zeros(40)], 1).double()
    rows, labels = Cells(codes, numbers), torch.zeros(40).long()
    far = Cells(codes[:1] + 1, numbers[:1] + 1000)  # the held-out row, which no sample is near
    known = (rows, labels, far, labels[:1])

    def distinct(places: torch.Tensor) -> float:
        found = memorization(take(rows, places), torch.zeros(len(places)).long(), *known, SMALL)
        assert found.overall.distinct_rows == found.per_class[0].distinct_rows
        return found.overall.distinct_rows

    assert distinct(torch.arange(40)) == pytest.approx(40)
    assert distinct(torch.arange(40) % 5) == pytest.approx(5)
    assert distinct(torch.zeros(40).long()) == pytest.approx(1)
    assert distinct(torch.tensor([0, 0, 0, 1])) == pytest.approx(16 / 10)  # (3 + 1)**2 / (3**2 + 1**2)


@pytest.mark.parametrize("n_train", [200, 1500])
def test_copies_of_training_rows_give_one(n_train: int, schema: TableSchema, make_rows: Callable):
    known = split(make_rows(0, n_train + 200), schema, n_train)
    chosen = torch.arange(0, n_train, n_train // 100)
    found = memorization(take(known[0], chosen), known[1][chosen], *known, schema)
    assert found.overall.share == pytest.approx(1)
    assert found.overall.low > 0.75
    assert all(one.share == pytest.approx(1) for one in found.per_class)
    mirrored = memorization(take(known[0], chosen), known[1][chosen], *known[2:], *known[:2], schema)
    assert mirrored.overall.share == pytest.approx(0)
    assert mirrored.overall.high < 0.25
    assert mirrored.overall.low == pytest.approx(1 - found.overall.high)
    if n_train == 200:
        assert found.overall.train_mean < found.overall.heldout_mean / 5


def test_equal_sizes_give_the_plain_share(schema: TableSchema, make_rows: Callable):
    rows, samples = make_rows(0, 200).assign(code="0"), make_rows(1, 150, 0.5).assign(code="0")
    known = split(rows, schema, 100)
    found = memorization(samples, class_labels(samples, schema), *known, schema)
    ranges = column_ranges(rows, schema)
    to_train, to_held_out = (nearest_rows(samples, part, schema, ranges)[0] for part in known[::2])
    assert (to_train - to_held_out).abs().min() > SAME_DISTANCE / 7  # no ties
    assert found.overall.share == pytest.approx((to_train < to_held_out).double().mean().item())
    assert found.overall.train_mean == pytest.approx(to_train.mean().item(), abs=1e-6)
    assert found.overall.heldout_mean == pytest.approx(to_held_out.mean().item(), abs=1e-6)
    assert found.per_class[0] == found.overall
    assert found.per_class[1].n == 0 and math.isnan(found.per_class[1].share)


def test_rows_at_one_distance_share_the_vote():
    row = Cells(torch.zeros(1, 1).long(), torch.zeros(1, 2).double())
    three, label = take(row, torch.zeros(3).long()), torch.zeros(3).long()
    same = memorization(row, label[:1], three, label, three, label, SMALL).overall
    assert same.share == pytest.approx(0.5)
    uneven = memorization(row, label[:1], three, label, row, label[:1], SMALL).overall
    assert uneven.share == pytest.approx(0.5)  # three votes of four for three rows of four


def test_equal_distances_are_equal_whatever_their_rounding():
    """A training row ``d`` below and a held-out row ``d`` above are equally near, though not when divided by 13."""
    label = torch.zeros(2).long()
    for at in range(1, 12):
        for d in range(1, min(at, 13 - at) + 1):
            ends_and = torch.tensor([[0.0, 0], [13.0, 0], [at - d, 0], [at + d, 0], [at, 0]], dtype=torch.float64)
            rows = Cells(torch.tensor([[1], [1], [0], [0], [0]]), ends_and)  # the ends only give the range
            train, held_out = take(rows, torch.tensor([2, 0])), take(rows, torch.tensor([3, 1]))
            found = memorization(take(rows, torch.tensor([4])), label[:1], train, label, held_out, label, SMALL)
            assert found.overall.share == pytest.approx(0.5)


def test_every_training_row_counts_in_the_mean_distance():
    numbers = torch.tensor([[0.0, 0], [100.0, 0], [200.0, 0], [300.0, 0], [400.0, 0]], dtype=torch.float64)
    train = Cells(torch.zeros(5, 1).long(), numbers)
    held_out, label = take(train, torch.tensor([2, 4])), torch.zeros(5).long()
    # Two held-out rows, so three draws of two training rows; a sample at 0 is nearest to row 0 in at least one of them.
    seen = {
        memorization(take(train, slice(0, 1)), label[:1], train, label, held_out, label[:2], SMALL, seed).overall
        for seed in range(40)
    }
    assert len({round(one.share, 6) for one in seen}) == 1  # the share needs no draw
    assert len({one.train_mean for one in seen}) > 1
    assert all(one.heldout_mean == pytest.approx(200 / 400 / 3, abs=1e-6) for one in seen)
    # At most 0, 200 and 300: a third draw of row 4 alone would make it 400.
    assert all(0 < one.train_mean <= 500 / 3 / 400 / 3 + 1e-6 for one in seen)


def test_classes_are_compared_with_their_own_rows_and_combined(schema: TableSchema, make_rows: Callable):
    known = split(make_rows(0, 900), schema, 600)
    samples = make_rows(1, 300)
    samples = samples[samples["code"] != "2"]
    labels = class_labels(samples, schema)
    found = memorization(samples, labels, *known, schema, seed=3)
    assert found.overall.n == len(samples) == sum(one.n for one in found.per_class)
    for label in (0, 1, 3):
        of_class = labels == label
        parts = [
            part
            for cells, of_rows in (known[:2], known[2:])
            for part in (take(cells, of_rows == label), of_rows[of_rows == label])
        ]
        # Ranges are those of all rows: two rows more, of another class, keep them.
        ends = Cells(
            torch.zeros(2, 3).long(), torch.stack([torch.cat([known[0].numbers, known[2].numbers]).amin(0)] * 2)
        )
        ends.numbers[1] = torch.cat([known[0].numbers, known[2].numbers]).amax(0)
        with_ends = Cells(*(torch.cat(two) for two in zip(parts[0], ends, strict=True)))
        with_labels = torch.cat([parts[1], torch.tensor([2, 2])])
        alone = memorization(
            samples[of_class.numpy()], labels[of_class], with_ends, with_labels, *parts[2:], schema, seed=3
        )
        assert alone.per_class[label] == found.per_class[label]
        assert alone.overall == found.per_class[label]
    shares = [one.share for one in found.per_class if one.n]
    assert min(shares) < found.overall.share < max(shares)
    assert found.to_dict() == memorization(samples, labels, *known, schema, seed=3).to_dict()


def test_json_and_wrong_use(schema: TableSchema, make_rows: Callable):
    known = split(make_rows(0, 60), schema, 30)
    samples = make_rows(1, 10).assign(code="0")
    found = memorization(samples, class_labels(samples, schema), *known, schema)
    state = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    shares = {"train_mean", "heldout_mean", "share_nearer_to_train", "low", "high"}
    assert set(state) == {*shares, "n", "effective_n", "distinct_rows"}
    assert state["share_nearer_to_train"] == found.overall.share
    nothing = json.loads(json.dumps(found.per_class[1].to_dict(), allow_nan=False))
    assert nothing["n"] == 0 and nothing["train_mean"] is None
    none = take(known[0], slice(0, 0)), known[1][:0]
    with pytest.raises(UsageError, match="held-out rows: at least one"):
        memorization(samples, class_labels(samples, schema), *known[:2], *none, schema)
    with pytest.raises(UsageError, match="training rows: at least one"):
        memorization(samples, class_labels(samples, schema), *none, *known[2:], schema)
    with pytest.raises(UsageError, match="one per row"):
        memorization(samples, torch.zeros(3).long(), *known, schema)
