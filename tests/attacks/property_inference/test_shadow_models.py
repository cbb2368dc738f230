"""SM-PIA against targets whose world is known: right where a target is like a shadow, at chance where nothing leaks."""

import dataclasses

import pytest
import torch
from torch import Tensor

from lightleak.attacks.property_inference import shadow_models
from lightleak.attacks.property_inference.property_classifiers import assign_folds
from lightleak.attacks.property_inference.shadow_models import (
    ShadowConfig,
    ShadowModels,
    TaskKnowledge,
    cross_pool_accuracy,
    ridge_scores,
    shadow_members,
)
from lightleak.attacks.property_inference.stacked_networks import FeatureRows, Schedule, initial_networks, train
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.seeds import generator

WORLDS = (0.2, 0.8)
SMALL = ShadowConfig(
    n_shadows=20, rows=600, schedule=Schedule("adam", 8, 32, 3e-3), bottom_hidden=(8,), top_hidden=(8,)
)
Game = tuple[IntermediateResults, TaskKnowledge]


def population(n: int, fraction: float, leaks: bool, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Columns ``[n, 6]``, property and label; the property may decide what the columns say of the label."""
    has = torch.rand(n, generator=draw) < fraction
    inputs = torch.randn(n, 6, generator=draw)
    sign = torch.where(has, 1.0, -1.0) if leaks else torch.ones(n)
    labels = sign * inputs[:, 0] + 0.5 * torch.randn(n, generator=draw) > 0
    return inputs, has, labels.long()


def target(world: int, seed: int, leaks: bool = True) -> Game:
    """A target on fresh rows of its world, which has the adversary's columns alone, seen by the active party."""
    draw = generator(seed, "target", world)
    inputs, has, labels = population(1500, WORLDS[world], leaks, draw)
    networks = initial_networks(1, (6, 8, 4, 8, 1), "torch", seed)
    rows = FeatureRows(inputs)
    train(networks, rows, torch.arange(1500).unsqueeze(0), labels.unsqueeze(0), SMALL.schedule, seed)
    everything = torch.arange(1500)
    sent, logits = networks.outputs(rows, everything, layer=2)[0], networks.outputs(rows, everything)[0]
    known = torch.cat([(has == value).nonzero().squeeze(1)[:200] for value in (True, False)])
    facts = VerticalFacts(2, 1, 0, ("a",), ("x",), 0, 64, 2)
    auxiliary = AuxiliaryData("x=1", known, has[known], ("a",))
    observation = IntermediateResults("C1", everything, {"AO": sent}, auxiliary, facts, inputs)
    return observation, TaskKnowledge(labels[known], logits[known])


@pytest.fixture(scope="module")
def games() -> tuple[list[Game], list[Game]]:
    return [target(0, seed) for seed in range(4)], [target(1, seed) for seed in range(4)]


def test_targets_that_are_like_shadows_are_told_apart(games: tuple[list[Game], list[Game]]) -> None:
    attack = ShadowModels(WORLDS, SMALL)
    for world, played in enumerate(games):
        assert [attack.decide(*game).world for game in played] == [world] * 4
    decision = attack.decide(*games[0][0])
    assert decision.shadow_accuracy > 0.9 and decision.warnings == () and decision.score < 0


def test_turned_worlds_turn_the_answer(games: tuple[list[Game], list[Game]]) -> None:
    turned = ShadowModels((WORLDS[1], WORLDS[0]), SMALL)
    assert [turned.decide(*worlds[0]).world for worlds in games] == [1, 0]


def test_a_property_without_influence_is_warned_of() -> None:
    """Among shadows of one pool the worlds look apart, each being the rows it favors; across pools they do not."""
    decision = ShadowModels(WORLDS, SMALL).decide(*target(0, 0, leaks=False))
    assert 0.25 < decision.shadow_accuracy < 0.75
    assert "cannot be distinguished even among shadow models" in decision.warnings[0]


def test_a_target_unlike_every_shadow_is_warned_of(games: tuple[list[Game], list[Game]]) -> None:
    observation, task = games[0][0]
    assert task.logits is not None
    louder = dataclasses.replace(observation, results={"AO": 100 * observation.results["AO"]})
    decision = ShadowModels(WORLDS, SMALL).decide(louder, TaskKnowledge(task.labels, 100 * task.logits))
    assert decision.distance > 3 and any("decision extrapolates" in warning for warning in decision.warnings)


def test_the_order_of_neurons_does_not_matter_and_the_seed_alone_decides(games: tuple[list[Game], list[Game]]) -> None:
    observation, task = games[0][0]
    turned = dataclasses.replace(observation, results={"AO": observation.results["AO"].flip(1)})
    attack = ShadowModels(WORLDS, SMALL)
    first, again = attack.decide(observation, task, 3), attack.decide(turned, task, 3)
    other = attack.decide(observation, task, 4)
    assert first.score == pytest.approx(again.score, abs=1e-5)
    assert first.score != pytest.approx(other.score, abs=1e-5)


def test_a_passive_party_reads_its_outputs_alone(games: tuple[list[Game], list[Game]]) -> None:
    observation, task = games[0][0]
    passive = dataclasses.replace(observation, adversary="C2")
    decision = ShadowModels(WORLDS, SMALL).decide(passive, TaskKnowledge(task.labels))
    assert decision.score != ShadowModels(WORLDS, SMALL).decide(observation, task).score
    with pytest.raises(ObservationError, match="a passive party \\(C2\\) sees no logits"):
        ShadowModels(WORLDS, SMALL).decide(passive, task)


def test_more_classes_have_a_logit_each(games: tuple[list[Game], list[Game]]) -> None:
    observation, task = games[0][0]
    facts = dataclasses.replace(observation.facts, n_classes=3)
    three = dataclasses.replace(observation, facts=facts)
    logits = torch.randn(400, 3, generator=generator(0, "logits"))
    assert ShadowModels(WORLDS, SMALL).decide(three, TaskKnowledge(task.labels, logits)).world in (0, 1)
    with pytest.raises(ObservationError, match=r"logits must have shape \[400, 3\], got \(400, 1\)"):
        ShadowModels(WORLDS, SMALL).check(three, task)


def test_shadows_are_drawn_at_the_fraction_of_their_world() -> None:
    has = torch.arange(50) < 10
    members = shadow_members(has, 0.3, n_shadows=6, rows=200, draw=generator(0, "members"))
    assert has[members].sum(1).tolist() == [60] * 6
    assert members[:, :60].unique().tolist() == list(range(10))
    assert members[:, 60:].unique().tolist() == list(range(10, 50))
    assert not torch.equal(members[0], members[1])


def test_no_shadow_is_trained_on_a_query_row_or_on_the_other_pool(
    games: tuple[list[Game], list[Game]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Tensor] = {}

    def spy(networks: object, rows: FeatureRows, members: Tensor, *rest: object) -> None:
        seen["members"] = members

    monkeypatch.setattr(shadow_models, "train", spy)
    observation, task = games[0][0]
    ShadowModels(WORLDS, SMALL).decide(observation, task, seed=4)
    known = observation.auxiliary
    folds = assign_folds(known.ids, known.has_property, 5, seed=4)
    used = folds[seen["members"]]
    assert used.shape == (40, 600)
    assert set(used[:20].unique().tolist()) == {1, 2} and set(used[20:].unique().tolist()) == {3, 4}
    with_property = known.has_property[seen["members"]].float().mean(1)
    expected = torch.tensor(WORLDS).repeat_interleave(10).repeat(2)
    torch.testing.assert_close(with_property, expected)


def test_the_meta_classifier_is_ridge_regression() -> None:
    draw = generator(0, "ridge")
    inputs, targets = torch.randn(12, 30, generator=draw), torch.tensor([-1.0, 1.0]).repeat(6)
    queries, ridge = torch.randn(4, 30, generator=draw), 0.3
    z = (inputs - inputs.mean(0)) / inputs.std(0)
    # The primal: least |z w - t|^2 + ridge * 30 * |w|^2.
    weights = torch.linalg.solve(z.T @ z + ridge * 30 * torch.eye(30), z.T @ targets)
    expected = (queries - inputs.mean(0)) / inputs.std(0) @ weights
    torch.testing.assert_close(ridge_scores(inputs, targets, queries, ridge), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_shadows": 7}, "n_shadows must be even, half of them of either pool, got 7"),
        ({"n_shadows": 0}, "n_shadows must be even, half of them of either pool, got 0"),
        ({"rows": 1}, "rows must be at least 2, got 1"),
        ({"bottom_hidden": (0,)}, "bottom_hidden must be at least 1, got 0"),
        ({"ridge": 0.0}, "ridge must be above 0, got 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ShadowConfig(**settings)  # type: ignore[arg-type]


def test_what_cannot_be_attacked_is_refused(games: tuple[list[Game], list[Game]]) -> None:
    observation, task = games[0][0]
    attack = ShadowModels(WORLDS)
    with pytest.raises(ObservationError, match="needs the adversary's own encoded columns"):
        attack.decide(dataclasses.replace(observation, features=None), task)
    for labels in (task.labels[:-1], task.labels + 1):
        with pytest.raises(ObservationError, match="one class below 2 for each of 400 auxiliary rows"):
            attack.decide(observation, TaskKnowledge(labels))
    with pytest.raises(UsageError, match="two different fractions"):
        ShadowModels((0.5, 0.5))


def test_accuracy_is_measured_on_the_pool_not_trained_on() -> None:
    """Each pool tells its worlds apart by a column of its own, which says nothing in the other."""
    worlds = torch.tensor([-1.0, 1.0]).repeat_interleave(10).repeat(2)
    shared, own = worlds.unsqueeze(1).repeat(1, 2), torch.full((40, 2), 0.3)
    own[:20, 0], own[20:, 1] = worlds[:20], worlds[20:]
    assert cross_pool_accuracy(shared, worlds, 0.1) == 1.0
    assert cross_pool_accuracy(own, worlds, 0.1) == 0.5


def test_too_few_rows_for_the_pools_are_refused(games: tuple[list[Game], list[Game]]) -> None:
    observation, task = games[0][0]
    keep = torch.cat([torch.arange(200), torch.arange(200, 204)])
    known = observation.auxiliary
    few = AuxiliaryData("x=1", known.ids[keep], known.has_property[keep], ("a",))
    with pytest.raises(ObservationError, match=r"at least 5 distinct auxiliary rows without x=1, got 4"):
        ShadowModels(WORLDS, SMALL).decide(
            dataclasses.replace(observation, auxiliary=few), TaskKnowledge(task.labels[keep])
        )


def test_options_are_the_settings() -> None:
    options = ShadowModels(WORLDS, SMALL).options()
    assert options["worlds"] == [0.2, 0.8] and options["n_shadows"] == 20 and options["schedule"]["epochs"] == 8
    # At least 50 shadow models per world, as in the literature.
    assert ShadowModels(WORLDS).options()["n_shadows"] == 50
