"""ProVFL-B on made intermediate results whose size depends on the property."""

import dataclasses

import numpy as np
import pytest
import torch

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.attacks.property_inference.comparison_config import DistributionComparisonConfig
from lightleak.attacks.property_inference.distribution_comparison import DistributionComparison
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts

FRACTION = 0.7
SMALL = {"samples": 40, "sample_size": 200, "queries": 10, "n_quantiles": 20, "held_out": 20, "estimator": "linear"}
REGRESSORS = ("xgboost", "xgboost_published", "decision_tree", "linear", "svr")


def observe(adversary="C1", n=3000, m=200, shift=1.0, seed=0, fraction=FRACTION, by_direction=False, width=8):
    """Results of ``n`` records, of which ``fraction`` have a property that adds ``shift`` to the victim's results."""
    draw = torch.Generator().manual_seed(seed)
    has = torch.rand(n, generator=draw) < fraction
    worth = {"AO": 0.3, "AG": 0.3, "VO": 1.0, "VG": 0.6}
    results = {}
    for kind in ("AO",) if adversary == "C2" else worth:
        noise = torch.randn(n, width, generator=draw)
        if by_direction:
            noise[:, 0] += shift * worth[kind] * (2.0 * has - 1)
        results[kind] = noise if by_direction else noise.abs() + shift * worth[kind] * has[:, None]
    order = torch.randperm(n, generator=draw)
    known = torch.cat([order[has[order]][:m], order[~has[order]][:m]])
    ids = torch.arange(n) * 3 + 5
    auxiliary = AuxiliaryData("sex=Male", ids[known], has[known], ("age",))
    facts = VerticalFacts(2, 0, 1, ("age",), ("sex",), epoch=18, batch_size=64, n_classes=2)
    return IntermediateResults(adversary, ids, results, auxiliary, facts)


def attack(name="provfl_b", **options):
    return PROPERTY_ATTACKS.get(name)(**options)


@pytest.mark.parametrize("estimator", [*REGRESSORS, "mixture"])
def test_every_estimator_finds_the_fraction(estimator):
    # Support vectors need norms of some spread; the made ones have it.
    small = {} if estimator == "mixture" else SMALL
    estimate = attack(**{**small, "estimator": estimator}).run(observe(shift=2.0))
    assert estimate.fraction == pytest.approx(FRACTION, abs=0.06)
    assert estimate.low <= estimate.fraction <= estimate.high < 1
    assert estimate.high - estimate.low > 0
    assert estimate.prior == 0.5


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", "discriminant"])
@pytest.mark.parametrize("fraction", [0.1, 0.9])
def test_every_norm_finds_small_and_large_fractions(norm, fraction):
    estimate = attack("provfl_b_mixture", norm=norm).run(observe(fraction=fraction, shift=3.0))
    assert estimate.fraction == pytest.approx(fraction, abs=0.05)
    assert estimate.low <= fraction <= estimate.high


def test_the_discriminant_sees_what_no_norm_can():
    seen = observe(by_direction=True, shift=1.0)
    assert attack("provfl_b_discriminant").run(seen).fraction == pytest.approx(FRACTION, abs=0.06)
    blind = attack("provfl_b_mixture").run(seen)
    assert "do not differ" in blind.warnings[0]


@pytest.mark.parametrize(("name", "shift"), [("provfl_b_mixture", 0.1), ("provfl_b_discriminant", 1.0)])
@pytest.mark.parametrize("fraction", [0.1, 0.9])
def test_intervals_allow_for_the_pull_of_few_auxiliary_rows(name, shift, fraction):
    """Kinds that seem far apart by chance weigh most and answer too close to the middle."""
    by_direction, found = name == "provfl_b_discriminant", attack(name)
    covered = 0
    for seed in range(60):
        seen = observe(m=60, shift=shift, seed=seed, fraction=fraction, by_direction=by_direction, width=24)
        estimate = found.run(seen, seed)
        covered += estimate.low <= fraction <= estimate.high
    assert covered >= 51  # fewer happen once in 600 times at 0.95


@pytest.mark.parametrize("name", ["provfl_b", "provfl_b_mixture", "provfl_b_discriminant"])
def test_same_seed_same_estimate(name):
    options = {**SMALL, "estimator": "xgboost", "kinds": ["VO"]} if name == "provfl_b" else {}
    seen = observe()
    first, second, other = (attack(name, **options).run(seen, seed=seed) for seed in (1, 1, 2))
    assert dataclasses.replace(first, seconds=0) == dataclasses.replace(second, seconds=0)
    # Only the mixture of norms draws nothing.
    assert (first.fraction == other.fraction) == (name == "provfl_b_mixture")


def test_a_kind_does_not_feel_its_neighbors():
    seen = observe()
    alone = attack(kinds=["AO"], **SMALL).run(seen)
    passive = dataclasses.replace(seen, adversary="C2", results={"AO": seen.results["AO"]})
    together = attack(**SMALL).run(seen)
    assert alone.fraction == together.by_kind["AO"] == attack(**SMALL).run(passive).fraction


def test_the_ensemble_is_the_mean_of_the_kinds():
    estimate = attack(**SMALL).run(observe())
    assert set(estimate.by_kind) == {"AO", "AG", "VO", "VG"}
    assert estimate.fraction == pytest.approx(np.mean(list(estimate.by_kind.values())))
    weighted = attack(ensemble="weighted", **SMALL).run(observe())
    assert weighted.by_kind == estimate.by_kind
    assert weighted.details["weights"]["VO"] > weighted.details["weights"]["AO"]


def test_passive_parties_use_their_outputs_alone():
    estimate = attack("provfl_b_mixture").run(observe("C2", shift=3.0))
    assert set(estimate.by_kind) == {"AO"}
    assert (
        "passive party (C2)" in estimate.threat_model and "sees AO of every record in epoch 18" in estimate.threat_model
    )


def test_global_generators_are_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    attack(**SMALL).run(observe())
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])


@pytest.mark.parametrize("name", ["provfl_b", "provfl_b_mixture", "provfl_b_discriminant"])
def test_an_observation_that_says_nothing_is_called_a_guess(name):
    estimate = attack(name, **(SMALL if name == "provfl_b" else {})).run(observe(shift=0.0))
    assert (estimate.low, estimate.high) == (0, 1)
    assert any("do not differ" in warning for warning in estimate.warnings)


def test_an_interval_around_the_prior_is_reported():
    estimate = attack("provfl_b_mixture").run(observe(fraction=0.5, shift=2.0))
    assert any("auxiliary prior 0.500" in warning for warning in estimate.warnings)
    told_apart = attack("provfl_b_mixture").run(observe(fraction=0.9, shift=2.0))
    assert not told_apart.warnings


def test_auxiliary_rows_unlike_the_records_are_reported():
    seen = observe(shift=2.0)
    at = seen.positions(seen.auxiliary.ids)
    results = {kind: values.clone() for kind, values in seen.results.items()}
    for values in results.values():
        values[at] *= 1.5
    estimate = attack("provfl_b_mixture").run(dataclasses.replace(seen, results=results))
    assert any("no mixture" in warning for warning in estimate.warnings)


def test_repeated_rows_are_no_new_evidence():
    seen = observe(m=100)
    known = seen.auxiliary
    repeated = AuxiliaryData(known.property_name, known.ids.repeat(3), known.has_property.repeat(3), known.columns)
    once = attack("provfl_b_mixture").run(seen)
    thrice = attack("provfl_b_mixture").run(dataclasses.replace(seen, auxiliary=repeated))
    assert thrice.fraction == pytest.approx(once.fraction, abs=0.01)
    assert thrice.high - thrice.low == pytest.approx(once.high - once.low, rel=0.05)


def test_fewer_auxiliary_rows_give_a_wider_interval():
    widths = []
    for m in (50, 400):
        estimate = attack("provfl_b_mixture").run(observe(m=m, shift=2.0))
        widths.append(estimate.high - estimate.low)
    assert widths[0] > 2 * widths[1]


def test_as_published_leaves_estimates_raw():
    config = DistributionComparisonConfig.as_published(samples=20, sample_size=50, queries=3)
    assert config.features == "sorted" and config.estimator == "xgboost_published"
    assert not config.clip
    estimate = DistributionComparison(config).run(observe(shift=2.0))
    assert (estimate.low, estimate.high) == (0, 1)
    assert [warning.partition(":")[0] for warning in estimate.warnings] == ["no interval was computed"]


def test_clipping_keeps_estimates_in_range():
    # No record has the property beyond those that are known: some estimates fall below 0.
    raw = [attack("provfl_b_mixture", clip=False).run(observe(fraction=0.04, seed=s, m=60)) for s in range(6)]
    kept = [attack("provfl_b_mixture").run(observe(fraction=0.04, seed=s, m=60)) for s in range(6)]
    outside = [value for one in raw for value in one.by_kind.values() if not 0 <= value <= 1]
    assert outside
    assert all(0 <= value <= 1 for one in kept for value in (one.fraction, *one.by_kind.values()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["AO", "XX"]}, "kinds must be one of AO, AG, VO, VG, got 'XX'"),
        ({"kinds": []}, "distinct and at least one"),
        ({"kinds": ["AO", "AO"]}, "distinct and at least one"),
        ({"norm": "l3"}, "norm must be one of l1, l2, linf, discriminant, got 'l3'"),
        ({"estimator": "forest"}, "estimator must be one of mixture, decision_tree"),
        ({"ensemble": "median"}, "ensemble must be one of mean, weighted"),
        ({"features": "moments"}, "features must be one of quantiles, sorted"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"queries": 0}, "queries must be at least 1"),
        ({"sample_size": 2.5}, "sample_size must be a whole number"),
        ({"estimator": "mixture", "queries": 1}, "mixture draws no populations; leave out queries"),
        ({"n_quantiles": 3000}, "n_quantiles must be at most sample_size 2000, got 3000"),
        ({"fraction_step": 3}, "fraction_step must divide 100"),
        ({"ensemble": "weighted", "held_out": 0}, "needs held_out above 0, got 0"),
        ({"quantiles": 3}, "no setting quantiles; settings: kinds, norm"),
    ],
)
def test_settings_are_checked_before_any_work(options, message):
    with pytest.raises(UsageError, match=message):
        attack(**options)


@pytest.mark.parametrize("name", ["provfl_b_mixture", "provfl_b_discriminant"])
def test_what_the_published_code_lacks_is_not_made_as_published(name):
    with pytest.raises(UsageError, match="no setting as_published"):
        attack(name, as_published=True)


def test_the_threat_model_counts_rows_once():
    seen = observe(m=50)
    known = dataclasses.replace(
        seen.auxiliary, ids=seen.auxiliary.ids.repeat(2), has_property=seen.auxiliary.has_property.repeat(2)
    )
    found = attack("provfl_b_mixture").run(dataclasses.replace(seen, auxiliary=known))
    assert found.threat.sample == 100


def test_a_kind_that_cannot_be_seen_is_refused():
    with pytest.raises(UnsupportedError, match="adversary C2 can see AO; kinds asks for VG"):
        attack("provfl_b_mixture", kinds=["AO", "VG"]).run(observe("C2"))
    seen = observe()
    partial = dataclasses.replace(seen, results={"AO": seen.results["AO"]})
    with pytest.raises(ObservationError, match="kinds asks for VO; the observation holds AO"):
        attack("provfl_b_mixture", kinds=["VO"]).run(partial)


def test_too_few_rows_are_refused():
    with pytest.raises(ObservationError, match="sample_size 2000 records; the observation has 1999"):
        attack().check(observe(n=1999))
    attack("provfl_b_mixture").check(observe(n=1999))
    with pytest.raises(ObservationError, match="10 distinct auxiliary rows with sex=Male, got 9"):
        attack("provfl_b_mixture").check(observe(m=9))


def test_options_are_the_settings():
    options = attack("provfl_b_mixture", kinds=["AO"], norm="l2").options()
    assert options["kinds"] == ["AO"] and options["norm"] == "l2" and options["estimator"] == "mixture"
    again = DistributionComparisonConfig(**options)
    assert DistributionComparison(again).options() == options
