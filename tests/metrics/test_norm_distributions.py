"""Distances between norms with and without a property, against scipy and closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import generator
from lightleak.metrics.norm_distributions import (
    bhattacharyya_coefficient,
    common_edges,
    compare_norms,
    draw_populations,
    histogram_counts,
    histogram_density,
    js_divergence,
    kl_divergence,
    norm_distances,
    smoothed,
    sorted_norm_distances,
)

COUNTS = st.lists(st.integers(0, 200), min_size=2, max_size=40).filter(any)
SAMPLES = st.lists(st.floats(0, 50, width=32), min_size=1, max_size=60).map(torch.tensor)


@given(COUNTS, COUNTS)
def test_distances_are_scipys(first: list[int], second: list[int]) -> None:
    size = min(len(first), len(second))
    p, q = (smoothed(torch.tensor(counts[:size], dtype=torch.float64)) for counts in (first, second))
    assert kl_divergence(p, q) == pytest.approx(entropy(p.numpy(), q.numpy()), abs=1e-12)
    assert js_divergence(p, q) == pytest.approx(jensenshannon(p.numpy(), q.numpy()) ** 2, abs=1e-12)
    assert bhattacharyya_coefficient(p, q) == pytest.approx(float(np.sqrt(p.numpy() * q.numpy()).sum()), abs=1e-12)


@given(SAMPLES, SAMPLES, st.integers(1, 30))
def test_histograms_are_numpys(first: torch.Tensor, second: torch.Tensor, bins: int) -> None:
    edges = common_edges(first, second, bins)
    both = torch.cat([first, second]).double().numpy()
    _, reference = np.histogram(both, bins)
    np.testing.assert_allclose(edges.numpy(), reference, rtol=1e-12, atol=1e-12)
    for sample in (first, second):
        counts, _ = np.histogram(sample.double().numpy(), edges.numpy())
        assert histogram_counts(sample, edges).tolist() == counts.tolist()
        assert float((histogram_density(sample, edges) * edges.diff()).sum()) == pytest.approx(1.0)


@given(SAMPLES, SAMPLES)
def test_bounds_hold(first: torch.Tensor, second: torch.Tensor) -> None:
    found, back = norm_distances(first, second, 10), norm_distances(second, first, 10)
    assert found.kl >= 0 and 0 <= found.js <= math.sqrt(math.log(2)) and 0 <= found.bc <= 1
    # Jensen: -ln BC = -ln sum p sqrt(q/p) <= KL / 2. Table II of the paper breaks this (KL .0327, BC .8692).
    assert found.bc >= math.exp(-found.kl / 2) - 1e-12
    assert (found.js, found.bc) == pytest.approx((back.js, back.bc))
    same = norm_distances(first, first, 10)
    assert (same.kl, same.js, same.bc) == pytest.approx((0, 0, 1), abs=1e-7)


def test_closed_forms() -> None:
    p, q = torch.tensor([0.25, 0.75], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert kl_divergence(p, q) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert bhattacharyya_coefficient(p, q) == pytest.approx(math.sqrt(0.125) + math.sqrt(0.375))
    left, right = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert kl_divergence(left, right) == math.inf
    assert js_divergence(left, right) == pytest.approx(math.log(2))
    assert bhattacharyya_coefficient(left, right) == 0.0


def test_binned_normals_approach_their_closed_forms() -> None:
    # Two normals of deviation 1, means 0 and d: KL = d^2 / 2 and BC = exp(-d^2 / 8); 400,000 rows leave about 1%.
    draws = torch.randn(2, 400_000, generator=generator(0, "normals"), dtype=torch.float64)
    found = norm_distances(draws[0], draws[1] + 0.8, bins=200)
    assert found.kl == pytest.approx(0.32, rel=0.02)
    assert found.bc == pytest.approx(math.exp(-0.08), rel=0.01)
    # The integral of the divergence of N(0, 1) and N(0.8, 1), by scipy.integrate.quad.
    assert found.js**2 == pytest.approx(0.0741779, rel=0.02)


def test_noise_alone_gives_the_divergence_the_docstring_names() -> None:
    # (k - 1) (1/n + 1/n) / 2 with k = 20 bins and n = 2000 rows is 0.0095; uniform draws fill each bin.
    draws = torch.rand(200, 2, 2000, generator=generator(0, "noise"))
    mean = np.mean([norm_distances(a, b, bins=20).kl for a, b in draws])
    assert mean == pytest.approx(0.0095, rel=0.1)


def test_comparison_is_an_entry_of_norms_json() -> None:
    norms = torch.tensor([0.0, 1.0, 1.5, 4.0, 2.0], dtype=torch.float64)
    has = torch.tensor([True, True, False, False, True])
    found = compare_norms(norms, has, bins=2)
    assert found["edges"] == [0.0, 2.0, 4.0]
    # Rows 0, 1 and 4 have it: two below 2, one at 2. Rows 2 and 3 lack it: one in each bin. Each bin is 2 wide.
    assert found["with_property"] == pytest.approx([2 / 6, 1 / 6])
    assert found["without_property"] == pytest.approx([0.25, 0.25])
    assert found["distances"] == norm_distances(norms[has], norms[~has], 2).to_dict()
    p, q = np.array([2.5, 1.5]) / 4, np.array([1.5, 1.5]) / 3
    assert found["distances"]["kl"] == pytest.approx(entropy(p, q))
    assert found["distances"]["js"] == pytest.approx(jensenshannon(p, q))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 1.0])
def test_populations_have_their_shares_and_share_no_row(share: float) -> None:
    has = torch.arange(10_000) % 2 == 0
    norms = torch.arange(10_000, dtype=torch.float64)  # the norm names its row
    ones, mixed = draw_populations(norms, has, share, generator(3), rows=2000)
    assert len(ones) == len(mixed) == 2000
    assert has[ones.long()].all()
    assert has[mixed.long()].float().mean() == share
    assert len(torch.cat([ones, mixed]).unique()) == 4000
    again, _ = draw_populations(norms, has, share, generator(3), rows=2000)
    assert ones.tolist() == again.tolist()


def test_distance_falls_as_the_gap_closes() -> None:
    draw = generator(0, "gap")
    has = torch.arange(20_000) < 12_000
    norms = torch.randn(20_000, generator=draw) + has.float()
    found = [norm_distances(*draw_populations(norms, has, share, draw), bins=20) for share in (0, 0.25, 0.5, 0.75)]
    assert [one.kl for one in found] == sorted((one.kl for one in found), reverse=True)
    assert [one.bc for one in found] == sorted(one.bc for one in found)


def test_sorted_norms_are_read_as_distributions() -> None:
    first, second = torch.rand(2, 300, generator=generator(1), dtype=torch.float64)
    second = second**2
    found = sorted_norm_distances(first, second)
    p, q = np.sort(first.numpy()), np.sort(second.numpy())
    assert found.kl == pytest.approx(entropy(p, q))  # scipy divides by the sums
    assert found.js == pytest.approx(jensenshannon(p, q))
    assert found.bc == pytest.approx(float(np.sqrt(p / p.sum() * q / q.sum()).sum()))
    shuffled = first[torch.randperm(300, generator=generator(2))]
    assert sorted_norm_distances(3 * shuffled, second).kl == pytest.approx(found.kl)
    with pytest.raises(DataError, match="same number of norms, got 2 and 3"):
        sorted_norm_distances(torch.ones(2), torch.ones(3))
    for wrong in (torch.zeros(2), torch.tensor([-1.0, 1.0])):
        with pytest.raises(DataError, match="at least 0 and not all 0"):
            sorted_norm_distances(torch.ones(2), wrong)


def test_wrong_use_is_named() -> None:
    norms, has = torch.rand(10), torch.arange(10) < 5
    with pytest.raises(DataError, match=r"both have shape \[n\], got \(10,\) and \(9,\)"):
        compare_norms(norms, has[:9])
    with pytest.raises(DataError, match="got 10 of 10 with it"):
        compare_norms(norms, torch.ones(10, dtype=torch.bool))
    with pytest.raises(DataError, match="first sample: expected at least one value, all finite"):
        compare_norms(norms * torch.nan, has)
    with pytest.raises(DataError, match=r"within the edges 0\.0 to 0\.5"):
        histogram_counts(torch.tensor([0.7]), torch.tensor([0.0, 0.5]))
    with pytest.raises(UsageError, match="bins must be at least 1, got 0"):
        compare_norms(norms, has, bins=0)
    with pytest.raises(DataError, match=r"6 records with the property are needed at share 0[.]5, got 5"):
        draw_populations(norms, has, 0.5, generator(0), rows=4)
    with pytest.raises(UsageError, match=r"share must lie in \[0, 1\], got 1\.5"):
        draw_populations(norms, has, 1.5, generator(0), rows=4)
    with pytest.raises(UsageError, match="rows must be at least 1, got 0"):
        draw_populations(norms, has, 0.5, generator(0), rows=0)


def test_one_value_everywhere_has_no_distance() -> None:
    found = compare_norms(torch.full((10,), 3.0), torch.arange(10) < 5, bins=4)
    assert found["edges"] == [2.5, 2.75, 3.0, 3.25, 3.5]
    assert found["distances"] == pytest.approx({"kl": 0.0, "js": 0.0, "bc": 1.0}, abs=1e-9)
