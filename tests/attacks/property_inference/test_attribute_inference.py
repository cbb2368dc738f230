"""AIA and AIA* on made results, where the classes overlap by a known amount."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.attacks.property_inference.attribute_inference import (
    AttributeInferenceConfig,
    aia,
    aia_adjusted,
    aia_raw,
    held_out_rates,
)
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.seeds import generator

FRACTION, N = 0.8, 6000


def make(shift: float = 0.7, m: int = 1000, seed: int = 0, copies: int = 1) -> IntermediateResults:
    """``N`` records of which 0.8 have the property; every unit of AO and AG is moved by ``shift`` deviations by it."""
    draw = generator(seed, "made")
    has = torch.randperm(N, generator=draw) < FRACTION * N
    results = {kind: torch.randn(N, 4, generator=draw) for kind in ("AO", "AG", "VO", "VG")}
    for kind in ("AO", "AG"):
        results[kind] += shift * has.unsqueeze(1)
    results["AG"] *= 2.0**-10  # gradients of a batch mean are small
    features = (torch.randn(N, 6, generator=draw) + 2 * shift * has.unsqueeze(1) > 0).to(torch.uint8)
    groups = [(has == value).nonzero().squeeze(1)[: m // 2 // copies].repeat(copies) for value in (True, False)]
    at = torch.cat(groups)
    ids = 3 * torch.arange(N) + 5
    known = AuxiliaryData("x=1", ids[at], has[at], ("a",))
    facts = VerticalFacts(2, 1, 0, ("a",), ("x",), 0, 64, 2)
    return IntermediateResults("C1", ids, results, known, facts, features)


def passive(observation: IntermediateResults) -> IntermediateResults:
    return dataclasses.replace(observation, adversary="C2", results={"AO": observation.results["AO"]})


@pytest.fixture(scope="module")
def observation() -> IntermediateResults:
    return make()


def test_the_plain_count_is_drawn_to_one_half_and_the_adjusted_one_is_not(observation: IntermediateResults) -> None:
    plain, adjusted = aia().run(observation), aia_adjusted().run(observation)
    # Two classes sqrt(8) * 0.7 deviations apart: the best classifier is right on 0.84 of either.
    assert 0.74 < adjusted.details["held_out_accuracy"] < 0.86
    assert 0.6 < plain.fraction < 0.76
    assert abs(adjusted.fraction - FRACTION) < 0.04
    for estimate in (plain, adjusted):
        assert estimate.low <= FRACTION <= estimate.high
        assert estimate.low <= estimate.fraction <= estimate.high
        assert estimate.prior == 0.5 and estimate.warnings == ()
    assert adjusted.high - adjusted.low < plain.high - plain.low
    assert adjusted.details["held_out_rows"] == 1000 and plain.details["held_out_rows"] == 100


def test_the_adjusted_interval_covers_the_truth() -> None:
    covered = 0
    for seed in range(10):
        estimate = aia_adjusted().run(make(m=160, seed=seed), seed)
        covered += estimate.low <= FRACTION <= estimate.high
    assert covered >= 8  # fewer happen once in 90 times at 0.95


@pytest.mark.parametrize("classifier", ["svm", "decision_tree"])
def test_other_classifiers_are_corrected_as_well(observation: IntermediateResults, classifier: str) -> None:
    estimate = aia_adjusted(classifier=classifier).run(observation)
    assert abs(estimate.fraction - FRACTION) < 0.1 and estimate.low <= FRACTION <= estimate.high
    assert aia(classifier=classifier).run(observation).fraction < FRACTION - 0.05


def test_the_same_seed_gives_the_same_estimate_and_another_seed_another(observation: IntermediateResults) -> None:
    first, again, other = (aia().run(observation, seed) for seed in (1, 1, 2))
    assert dataclasses.replace(first, seconds=0) == dataclasses.replace(again, seconds=0)
    assert first.fraction != other.fraction


def test_only_the_chosen_kinds_are_read(observation: IntermediateResults) -> None:
    chosen = aia(kinds=("AO",)).run(observation)
    assert chosen.fraction == aia().run(passive(observation)).fraction
    assert chosen.fraction != aia().run(observation).fraction
    assert "active party (C1) that reads AO of every record and knows of 1000 of them" in chosen.threat_model
    assert "passive party (C2)" in aia().run(passive(observation)).threat_model


@pytest.mark.parametrize("as_published", [False, True])
def test_the_size_of_gradients_matters_only_as_published(observation: IntermediateResults, as_published: bool) -> None:
    larger = {kind: values * (2.0**10 if kind == "AG" else 1.0) for kind, values in observation.results.items()}
    rescaled = dataclasses.replace(observation, results=larger)
    attack = aia(as_published=as_published, kinds=("AG",))
    assert (attack.run(observation).fraction == attack.run(rescaled).fraction) != as_published


def test_the_published_layout_spoils_what_the_mended_one_can_do() -> None:
    clear = make(shift=2.0)
    assert abs(aia().run(clear).fraction - FRACTION) < 0.02
    assert abs(aia(as_published=True).run(clear).fraction - FRACTION) > 0.05
    # Of one kind there is nothing to lay out wrongly.
    assert abs(aia(as_published=True).run(passive(clear)).fraction - FRACTION) < 0.03


def test_raw_columns_are_read_in_place_of_results(observation: IntermediateResults) -> None:
    assert observation.features is not None
    blank = {kind: torch.zeros_like(values) for kind, values in observation.results.items()}
    bits = dataclasses.replace(observation, results=blank)
    as_float = dataclasses.replace(bits, features=observation.features.float())
    estimate = aia_raw(adjusted=True).run(bits)
    assert abs(estimate.fraction - FRACTION) < 0.04
    assert aia_raw().run(bits).fraction == aia_raw().run(as_float).fraction == aia_raw().run(observation).fraction
    assert "reads its own columns" in estimate.threat_model


def test_a_property_that_leaves_no_trace_is_warned_of() -> None:
    estimate = aia_adjusted().run(make(shift=0.0))
    assert estimate.fraction == pytest.approx(0.5)
    assert "not better than chance" in estimate.warnings[0] and "auxiliary prior 0.500" in estimate.warnings[1]
    assert estimate.low < 0.1 and estimate.high > 0.9
    assert any("not better than chance" in warning for warning in aia().run(make(shift=0.0)).warnings)


def test_copies_are_never_held_out_and_trained_on() -> None:
    """Ten copies of 100 rows: a model that has seen a row's copy would know it, and look better than it is."""
    estimate = aia_adjusted().run(make(shift=0.0, copies=10))
    assert estimate.details["held_out_rows"] == 100
    assert 0.3 < estimate.details["held_out_accuracy"] < 0.7


def test_held_out_rates_are_those_of_a_loop() -> None:
    draw = generator(0, "loop")
    known = AuxiliaryData(
        "x=1", torch.tensor([4, 2, 4, 9, 7, 1]), torch.tensor([True, False, True, True, False, False]), ()
    )
    at, folds = torch.tensor([0, 1, 0, 2, 3, 4]), torch.tensor([0, 1, 0, 1, 0, 2])
    called = torch.rand(2, 6, generator=draw) > 0.5
    hits = [bool(called[folds[i], at[i]]) for i in (0, 3)]
    alarms = [bool(called[folds[i], at[i]]) for i in (1, 4)]  # fold 2 has no model, and row 2 is a copy of row 0
    rates = held_out_rates(called, at, known, folds)
    assert (rates.hits, rates.n_with, rates.false_alarms, rates.n_without) == (sum(hits), 2, sum(alarms), 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier": "forest"}, "classifier must be one of network, svm, decision_tree, got 'forest'"),
        ({"kinds": ("AO", "XX")}, "kinds must be one of AO, AG, VO, VG, got 'XX'"),
        ({"kinds": ()}, "kinds must be distinct and at least one"),
        ({"adjusted": True, "as_published": True}, "choose adjusted or as_published"),
        (
            {"clasifier": "svm"},
            "has no setting clasifier; settings: classifier, adjusted, kinds, as_published",
        ),
    ],
)
def test_settings_without_meaning_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        aia(**settings)


def test_raw_columns_have_no_kinds() -> None:
    with pytest.raises(UsageError, match="aia_raw reads the adversary's own columns and no kinds"):
        aia_raw(kinds=("AO",))


def _without_features(observation: IntermediateResults) -> IntermediateResults:
    return dataclasses.replace(observation, features=None)


@pytest.mark.parametrize(
    ("attack", "change", "message"),
    [
        (aia_raw, _without_features, "carries no features"),
        (lambda: aia(kinds=("AO", "VG")), passive, r"must be among those observed \(AO\); missing: VG"),
        (aia, lambda _: make(m=18), "aia needs at least 10 distinct auxiliary rows with x=1, got 9"),
        (aia_adjusted, lambda _: make(m=180, copies=10), "aia_adjusted needs at least 10 distinct .* got 9"),
    ],
)
def test_an_observation_that_cannot_be_served_is_refused_before_any_work(
    observation: IntermediateResults,
    attack: Callable[[], Any],
    change: Callable[[IntermediateResults], IntermediateResults],
    message: str,
) -> None:
    for call in (attack().check, attack().run):
        with pytest.raises(ObservationError, match=message):
            call(change(observation))


def test_names_and_options() -> None:
    assert {"aia", "aia_adjusted", "aia_raw"} <= set(PROPERTY_ATTACKS.names())
    made = [PROPERTY_ATTACKS.get(name)() for name in ("aia", "aia_adjusted", "aia_raw")]
    assert [attack.name for attack in made] == ["aia", "aia_adjusted", "aia_raw"]
    assert [attack.options()["adjusted"] for attack in made] == [False, True, False]
    options = json.loads(json.dumps(aia(kinds=["AO"]).options()))
    assert AttributeInferenceConfig(**options) == AttributeInferenceConfig(kinds=("AO",))


@pytest.mark.gpu
def test_a_gpu_gives_the_same_estimate(observation: IntermediateResults) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    for attack in (aia_adjusted(), aia_raw(), aia(as_published=True)):
        on_gpu = attack.run(observation, device="cuda").fraction
        assert on_gpu == pytest.approx(attack.run(observation).fraction, abs=0.02)
