"""Each metric against a loop over cells, over several batches, and inside a MetricCollection."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torchmetrics import MetricCollection

from lightleak.core.errors import UsageError
from lightleak.data.schema import Column, ColumnKind
from lightleak.metrics import (
    METRICS,
    CategoricalAccuracy,
    CellAccuracy,
    EntropyAccuracyCorrelation,
    ExactMatchRate,
    LabelCountError,
    LeakageOverBaseline,
    MatchedBatch,
    NumericalAccuracy,
    NumericalRMSE,
    QuartileAccuracy,
)
from lightleak.metrics.certainty import kendall_tau, ranked_accuracy

SEEDS = st.integers(0, 10_000)
NUMERICAL = {ColumnKind.INTEGER, ColumnKind.CONTINUOUS}
KINDS = {"all": set(ColumnKind), "categorical": {ColumnKind.CATEGORICAL}, "numerical": NUMERICAL}


@settings(max_examples=40)
@given(seed=SEEDS, sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_accuracies_are_means_over_batches_of_a_loop(make_case: Callable, slow: object, seed: int, sizes: list[int]):
    cases = [make_case(seed + i, n) for i, n in enumerate(sizes)]
    for kind, metric in (
        ("all", CellAccuracy()),
        ("categorical", CategoricalAccuracy()),
        ("numerical", NumericalAccuracy()),
    ):
        expected = []
        for case in cases:
            batch = case.batch
            metric.update(batch)
            expected.append(slow.accuracy(case, batch.order.tolist(), KINDS[kind]))
        assert metric.compute().item() == pytest.approx(sum(expected) / len(expected), abs=1e-12)


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 6), standardized=st.booleans())
def test_rmse_is_that_of_a_loop(make_case: Callable, slow: object, seed: int, n: int, standardized: bool):
    case = make_case(seed, n)
    expected = slow.rmse(case, case.batch.order.tolist(), standardized)
    assert NumericalRMSE(standardized)(case.batch).item() == pytest.approx(expected, rel=1e-12)


@settings(max_examples=40)
@given(seed=SEEDS, n=st.integers(1, 5))
def test_exact_matches_are_whole_rows(make_case: Callable, slow: object, seed: int, n: int):
    case = make_case(seed, n, wrong=0.15)
    order = case.batch.order.tolist()
    assert ExactMatchRate()(case.batch).item() == pytest.approx(slow.best_totals(case)[1] / n)
    near = [all(row) for row in slow.hits(case, order)]
    assert ExactMatchRate(within_tolerance=True)(case.batch).item() == pytest.approx(sum(near) / n)


@given(
    cells=st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.3, 0.6, math.nan])), min_size=1, max_size=6),
    end=st.sampled_from(["top", "bottom"]),
    share=st.sampled_from([0.25, 0.5, 1.0]),
)
def test_ranked_accuracy_is_the_mean_over_all_orders_of_ties(slow: object, cells: list, end: str, share: float):
    hits, entropy = zip(*cells, strict=True)
    expected = slow.ranked_accuracy(hits, entropy, end, share)
    found = ranked_accuracy(torch.tensor(hits), torch.tensor(entropy, dtype=torch.float64), end, share).item()
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_quartiles_rank_each_kind_apart(make_case: Callable):
    batch = make_case(3, 8).batch
    for kind in ("categorical", "numerical"):
        hits, entropy = batch.of_kind(batch.hits, kind), batch.of_kind(batch.entropy, kind)
        for end in ("top", "bottom"):
            assert QuartileAccuracy(kind, end)(batch) == ranked_accuracy(hits, entropy, end)
    assert batch.of_kind(batch.hits, "categorical").shape == (8, 2)
    assert batch.of_kind(batch.hits, "numerical").shape == (8, 3)


def test_share_of_round_numbers_is_not_rounded_up():
    assert 0.07 * 100 > 7  # in floating point
    assert ranked_accuracy(torch.arange(100) < 7, torch.arange(100.0), "top", share=0.07) == 1.0


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_shares_outside_the_batch_are_refused(share: float):
    with pytest.raises(UsageError, match=f"got {share}"):
        QuartileAccuracy("categorical", "top", share)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_kendall_tau_is_scipys(pairs: list[tuple[int, int]]):
    x, y = zip(*pairs, strict=True)
    expected = stats.kendalltau(x, y).statistic
    found = kendall_tau(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)).item()
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", ["categorical", "numerical"])
def test_correlation_is_over_means_of_batches(make_case: Callable, kind: str):
    metric = EntropyAccuracyCorrelation(kind)
    entropies, accuracies = [], []
    for seed in range(8):
        batch = make_case(seed, 5, wrong=0.1 * seed).batch
        metric.update(batch)
        entropies.append(batch.of_kind(batch.entropy, kind).mean().item())
        accuracies.append(batch.of_kind(batch.hits, kind).double().mean().item())
    assert metric.compute().item() == pytest.approx(stats.kendalltau(entropies, accuracies).statistic, abs=1e-12)


def test_correlation_of_equally_accurate_batches_is_nan(make_case: Callable):
    metric = EntropyAccuracyCorrelation("categorical")
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert metric.compute().isnan()
    for seed in range(3):
        metric.update(make_case(seed, 4, wrong=0.0).batch)
    assert metric.compute().isnan()


def test_leakage_is_the_paired_difference(make_case: Callable):
    attack, guess, leakage = CellAccuracy(), CellAccuracy(), LeakageOverBaseline()
    for seed in range(4):
        good, bad = make_case(seed, 6, wrong=0.2).batch, make_case(seed, 6, wrong=1.0).batch
        attack.update(good)
        guess.update(bad)
        leakage.update(good, bad)
    assert leakage.compute().item() == pytest.approx((attack.compute() - guess.compute()).item())
    assert leakage.compute() > 0


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2)))
def test_label_count_error_is_that_of_a_loop(slow: object, labels: tuple[list[int], list[int]]):
    restored, true = labels
    found = LabelCountError()(torch.tensor(restored), torch.tensor(true)).item()
    assert found == pytest.approx(slow.label_count_error(restored, true))
    assert found == LabelCountError()(torch.tensor(sorted(restored)), torch.tensor(true)).item()


def test_labels_of_another_number_are_refused():
    with pytest.raises(UsageError, match="got 2 for 3"):
        LabelCountError().update(torch.tensor([0, 1]), torch.tensor([0, 1, 1]))


def test_batches_on_which_a_metric_is_undefined_are_left_out(make_case: Callable):
    words = [Column.categorical("a", ["x", "y"]), Column.categorical("b", ["x", "y", "z"])]
    without, plain = make_case(0, 4, columns=words).batch, make_case(1, 4).batch
    for metric in (NumericalAccuracy(), NumericalRMSE(), QuartileAccuracy("numerical", "top")):
        metric.update(without)
        assert metric.compute().isnan()
        metric.update(plain)
        alone = metric.clone()
        alone.reset()
        alone.update(plain)
        assert metric.compute() == alone.compute()
        assert not metric.compute().isnan()


def test_a_collection_keeps_metrics_apart_that_agree_on_the_first_batch(make_case: Callable):
    """A MetricCollection shares the state of metrics that look alike after one batch, if their states share names."""
    first, second = make_case(0, 6, wrong=0.0).batch, make_case(1, 6, wrong=0.6).batch
    first = replace(first, entropy=torch.full_like(first.entropy, 0.5))
    metrics = {
        "all": CellAccuracy(),
        "categorical": CategoricalAccuracy(),
        "numerical": NumericalAccuracy(),
        "exact": ExactMatchRate(),
        "near": ExactMatchRate(within_tolerance=True),
        "top": QuartileAccuracy("categorical", "top"),
        "bottom": QuartileAccuracy("categorical", "bottom"),
        "top_half": QuartileAccuracy("categorical", "top", share=0.5),
        "rmse": NumericalRMSE(),
        "raw": NumericalRMSE(standardized=False),
        "tau_c": EntropyAccuracyCorrelation("categorical"),
        "tau_n": EntropyAccuracyCorrelation("numerical"),
    }
    alone = {name: metric.clone() for name, metric in metrics.items()}
    collection = MetricCollection(metrics)
    for batch in (first, second, *(make_case(seed, 6, wrong=0.1 * seed).batch for seed in range(2, 8))):
        collection.update(batch)
        for metric in alone.values():
            metric.update(batch)
    expected = {name: metric.compute().item() for name, metric in alone.items()}
    assert {name: v.item() for name, v in collection.compute().items()} == pytest.approx(expected, nan_ok=True)
    assert len({round(v, 9) for v in expected.values()}) == len(expected)


def test_forward_gives_the_batch_and_compute_the_mean(make_case: Callable):
    metric = CellAccuracy()
    values = [metric(make_case(seed, 5).batch).item() for seed in range(3)]
    assert metric.compute().item() == pytest.approx(sum(values) / 3)
    metric.reset()
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert metric.compute().isnan()


def test_registry_names_every_metric_once():
    assert "cell_accuracy" in METRICS and "kendall_tau_numerical" in METRICS
    assert isinstance(METRICS.get("bottom25_numerical")(), QuartileAccuracy)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="tolerence"):
        CellAccuracy(tolerence=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_metrics_on_a_gpu_take_the_same_batches(make_case: Callable):
    for metric in (CellAccuracy(), EntropyAccuracyCorrelation("categorical")):
        there = metric.clone().to("cuda")
        for seed in range(3):
            batch: MatchedBatch = make_case(seed, 5).batch
            metric.update(batch)
            there.update(batch)
        assert there.compute().device.type == "cuda"
        assert there.compute().item() == pytest.approx(metric.compute().item())
