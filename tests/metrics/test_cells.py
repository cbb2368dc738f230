"""Which cells are right once the rows are matched (TabLeak Eq. 6 and 7)."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError, UsageError
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics import MatchedBatch, cells

SEEDS = st.integers(0, 10_000)
WRONG = st.sampled_from([0.0, 0.2, 0.5, 1.0])


@settings(max_examples=60)
@given(seed=SEEDS, n=st.integers(1, 5), wrong=WRONG)
def test_totals_are_those_of_the_best_of_all_orders(make_case: Callable, slow: object, seed: int, n: int, wrong: float):
    case = make_case(seed, n, wrong)
    batch = case.batch
    assert sorted(batch.order.tolist()) == list(range(n))
    assert (int(batch.hits.sum()), int(batch.equal.all(-1).sum())) == slow.best_totals(case)


@given(seed=SEEDS, n=st.integers(1, 12), wrong=WRONG)
def test_cells_are_those_of_a_loop(make_case: Callable, slow: object, seed: int, n: int, wrong: float):
    case = make_case(seed, n, wrong)
    batch = MatchedBatch.compare(case.encoder, case.truth, case.guess)
    assert batch.hits.tolist() == slow.hits(case, batch.order.tolist())


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 12))
def test_order_of_the_rows_changes_no_total(make_case: Callable, seed: int, n: int):
    case = make_case(seed, n)
    other = np.random.default_rng(seed)
    shuffled = MatchedBatch.compare(
        case.encoder, case.truth.iloc[other.permutation(n)], case.guess.iloc[other.permutation(n)]
    )
    assert shuffled.hits.sum() == case.batch.hits.sum()
    assert shuffled.equal.all(-1).sum() == case.batch.equal.all(-1).sum()


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 12))
def test_shuffled_truth_is_recovered_whole(make_case: Callable, seed: int, n: int):
    case = make_case(seed, n, wrong=0.0)
    assert case.batch.hits.all() and case.batch.equal.all()
    assert not case.batch.errors.any()


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 12))
def test_tables_and_tensors_are_compared_alike(make_case: Callable, seed: int, n: int):
    case = make_case(seed, n)
    encoder = case.encoder
    truth, guess = (encoder.project(encoder.encode(rows), clamp=False) for rows in (case.truth, case.guess))
    by_table = MatchedBatch.compare(encoder, case.truth, case.guess)
    by_tensor = MatchedBatch.compare(encoder, truth, guess)
    assert torch.equal(by_table.hits, by_tensor.hits) and torch.equal(by_table.order, by_tensor.order)


def test_work_cut_into_pieces_gives_the_same(make_case: Callable, monkeypatch: pytest.MonkeyPatch):
    case = make_case(0, 12)
    whole = MatchedBatch.compare(case.encoder, case.truth, case.guess)
    monkeypatch.setattr(cells, "_CELLS_AT_ONCE", 1)
    pieces = MatchedBatch.compare(case.encoder, case.truth, case.guess)
    assert torch.equal(whole.order, pieces.order)


@pytest.fixture
def ages() -> TableEncoder:
    schema = TableSchema((Column.integer("age"), Column.continuous("pay")), Column.categorical("ill", ["0", "1"]))
    return TableEncoder(schema).fit(pd.DataFrame({"age": [20, 40, 60], "pay": [0.0, 1.0, 2.0]}))  # deviations 20 and 1


@pytest.mark.parametrize(("age", "right"), [(46, True), (47, False), (34, True), (33, False)])
def test_tolerance_is_0319_deviations_in_the_units_of_the_column(ages: TableEncoder, age: int, right: bool):
    truth, guess = pd.DataFrame({"age": [40], "pay": [1.0]}), pd.DataFrame({"age": [age], "pay": [1.0]})
    assert MatchedBatch.compare(ages, truth, guess).hits.tolist() == [[right, True]]  # 0.319 * 20 = 6.38
    assert MatchedBatch.compare(ages, truth, guess, tolerance=1.0).hits.all()


def test_equal_means_to_a_millionth_of_a_deviation(ages: TableEncoder):
    truth = pd.DataFrame({"age": [40], "pay": [1.0]})
    for pay, same in ((1.0 + 9e-7, True), (1.0 + 2e-6, False)):
        batch = MatchedBatch.compare(ages, truth, pd.DataFrame({"age": [40], "pay": [pay]}))
        assert batch.hits.all() and batch.equal.tolist() == [[True, same]]
    fuzzy = (torch.empty(1, 0, dtype=torch.long), torch.tensor([[40.4, 1.0]]))
    assert MatchedBatch.compare(ages, truth, fuzzy).equal.all()  # whole numbers are rounded first
    near = MatchedBatch.compare(ages, truth, pd.DataFrame({"age": [41], "pay": [1.0]}))
    assert near.hits.all() and near.equal.tolist() == [[False, True]]


def test_among_equally_good_orders_one_with_most_equal_rows_is_taken(ages: TableEncoder):
    # Every pairing has all cells right; only the crossed one has an equal row.
    truth = pd.DataFrame({"age": [40, 41], "pay": [1.0, 1.0]})
    for guess in ([41, 42], [42, 41]):
        batch = MatchedBatch.compare(ages, truth, pd.DataFrame({"age": guess, "pay": [1.0, 1.0]}))
        assert batch.hits.all() and int(batch.equal.all(-1).sum()) == 1


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_wrong(ages: TableEncoder, broken: float):
    truth = pd.DataFrame({"age": [40, 60], "pay": [1.0, 2.0]})
    batch = MatchedBatch.compare(ages, truth, pd.DataFrame({"age": [60, 40], "pay": [2.0, broken]}))
    assert batch.order.tolist() == [1, 0]
    assert batch.hits.tolist() == batch.equal.tolist() == [[True, False], [True, True]]
    with pytest.raises(DataError, match=r"'pay' of the truth must be finite"):
        MatchedBatch.compare(ages, pd.DataFrame({"age": [40], "pay": [broken]}), truth.head(1))


def test_uncertainty_follows_its_rows(ages: TableEncoder):
    truth, guess = (pd.DataFrame({"age": a, "pay": [1.0, 1.0]}) for a in ([20, 60], [60, 20]))
    # Columns in another order and a foreign index: names and positions count.
    uncertainty = pd.DataFrame({"pay": [0.1, 0.2], "age": [0.3, 0.4]}, index=[7, 5])
    batch = MatchedBatch.compare(ages, truth, guess, uncertainty)
    assert batch.entropy.tolist() == [[0.4, 0.2], [0.3, 0.1]]
    assert MatchedBatch.compare(ages, truth, guess).entropy.isnan().all()
    for wrong in (uncertainty.head(1), uncertainty[["pay"]]):
        with pytest.raises(DataError, match="uncertainty must have 2 rows"):
            MatchedBatch.compare(ages, truth, guess, wrong)


def test_tables_that_do_not_fit_are_refused(make_case: Callable):
    case = make_case(0, 3)
    with pytest.raises(UsageError, match="got 2 for 3"):
        MatchedBatch.compare(case.encoder, case.truth, case.guess.head(2))
    with pytest.raises(UsageError, match="at least 1"):
        MatchedBatch.compare(case.encoder, case.truth.head(0), case.guess.head(0))
    with pytest.raises(DataError, match=r"\['sex'\] are missing"):
        MatchedBatch.compare(case.encoder, case.truth, case.guess.drop(columns="sex"))
    with pytest.raises(DataError, match=r"'color': expected one of .*, got 'pink'"):
        MatchedBatch.compare(case.encoder, case.truth, case.guess.assign(color="pink"))
    with pytest.raises(DataError, match=r"'height': expected numbers \(continuous\)"):
        MatchedBatch.compare(case.encoder, case.truth, case.guess.assign(height="tall"))


def test_tolerances_of_adult_are_those_of_table_7(data_dir):
    from lightleak.data.datasets import load_dataset

    table = load_dataset("adult", data_dir)
    tolerances = (0.319 * TableEncoder(table.schema).fit(table.train).deviation).tolist()
    expected = [4.2, 33699, 0.8, 2395, 129, 3.8]  # TabLeak Table 7
    assert tolerances == pytest.approx(expected, rel=0.02)
