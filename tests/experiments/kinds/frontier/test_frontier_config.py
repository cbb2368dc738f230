from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lightleak.core.errors import UsageError
from lightleak.defenses.horizontal import DPSGD, TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.defenses.horizontal.shipped import FrameworkFilter
from lightleak.experiments.config import DataConfig
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.kinds.frontier.config import USUAL_CURVES, Curve, FrontierConfig, Point
from lightleak.experiments.load import load_config

CONFIGS = Path(__file__).parents[4] / "configs"
FILTERS = {name for name in UPDATE_DEFENSES if issubclass(UPDATE_DEFENSES.get(name), FrameworkFilter)} | {"transport"}


def test_the_config_of_filters_measures_every_filter() -> None:
    points = load_config(CONFIGS / "shipped-filters.yaml").points
    assert {point.name for point in points} == FILTERS | {"none"}
    assert len({point.id for point in points}) == len(points)


def test_the_shipped_config_measures_every_defense_there_is() -> None:
    config = load_config(CONFIGS / "defense-frontier.yaml")
    everything = {*UPDATE_DEFENSES, *TRAINING_DEFENSES} - FILTERS
    assert {point.name for point in config.points} == everything
    assert {curve.name for curve in USUAL_CURVES} == everything - {"none"}
    assert config.points[0] == Point()
    assert len({point.id for point in config.points}) == len(config.points)


def test_a_config_is_the_same_after_it_was_written(small) -> None:
    config = small(defenses=[{"name": "dp_sgd", "strengths": [1], "options": {"max_grad_norm": 0.5}}])
    assert FrontierConfig.parse(yaml.safe_load(yaml.safe_dump(config.to_dict()))) == config


def test_a_target_epsilon_gives_one_noise_to_all_seeds_of_a_federation() -> None:
    """Their rounds of the most drawn client differ; the one with most spends the target, the others less."""
    protocol = ProtocolConfig("fedavg", clients=20, clients_per_round=4, rounds=10, client_rows=32)
    curve = Curve("dp_sgd", (5.0,), {}, "target_epsilon", acts_on="steps")
    config = FrontierConfig(
        DataConfig("german"), protocol=protocol, defenses=(curve,), attacks={"tableak_fedavg": {}}, seeds=5
    )
    point = config.points[1]
    (noise,) = {config.audit_at(point, seed).defense.options["noise_multiplier"] for seed in (None, *range(5))}
    steps = [protocol.steps_of_a_row(config.training_seed(seed)) for seed in range(5)]
    spent = [DPSGD(noise_multiplier=noise).release_epsilon(of) for of in steps]
    assert len(set(steps)) > 1 and max(spent) == pytest.approx(5.0)
    assert point.facts()["defense_settings"]["options"] == {"target_epsilon": 5.0}
    fedsgd = FrontierConfig(DataConfig("german"), defenses=(replace(curve, acts_on="update"),))
    assert fedsgd.audit_at(fedsgd.points[1], 0).defense.options == {"target_epsilon": 5.0}


def test_a_curve_varies_its_first_setting_or_the_one_it_names() -> None:
    assert [point.settings for point in Curve("clipping", (0.1, 1)).points()] == [{"max_norm": 0.1}, {"max_norm": 1}]
    curve = Curve("dp_sgd", (0.5, 2.0), {"noise_multiplier": 1.0}, option="max_grad_norm", label="clip")
    assert [(point.label, point.option, point.strength) for point in curve.points()] == [
        ("clip", "max_grad_norm", 0.5),
        ("clip", "max_grad_norm", 2.0),
    ]
    (only,) = Curve("dp_sgd", (), {"target_epsilon": 3.0}).points()
    assert (only.strength, only.settings) == (None, {"target_epsilon": 3.0})


def test_names_of_defenses_may_be_written_short(small) -> None:
    assert small(defenses=["sign"]).points == (Point(), *Curve("sign").points())


def test_trainings_differ_by_number_and_attacks_share_their_clients(small) -> None:
    config = small(seed=7)
    none, noise = config.points[:2]
    trainings = [config.audit_at(noise, number).seed for number in (0, 1)]
    assert trainings == [config.audit_at(none, number).seed for number in (0, 1)]
    others = [small(seed=8).audit_at(noise, number).seed for number in (0, 1)]
    assert len({7, 8, *trainings, *others}) == 6
    assert config.audit_at(noise).seed == config.audit_at(none).seed == 7
    assert config.audit_at(noise).defense.options == {"scale": 0.01}
    assert config.audit_at(none).defense.is_none


def test_guessing_is_always_run(small) -> None:
    assert list(small(attacks=["tableak"]).audit_at(Point()).attacks) == ["tableak", "random"]
    assert list(small(attacks=["random", "tableak"]).audit_at(Point()).attacks) == ["random", "tableak"]


def test_fedavg_takes_its_own_settings_of_training(small) -> None:
    fedavg = {"name": "fedavg", "rounds": 3, "local_epochs": 2}
    config = small(
        protocol=fedavg,
        training={"validation_fraction": 0.2},
        defenses=[{"name": "gaussian_noise", "strengths": [0.1], "acts_on": "steps"}],
    )
    audit = config.audit_at(config.points[1])
    assert (audit.rounds, audit.defense.point, audit.training.validation_fraction) == (3, "steps", 0.2)
    assert config.points[1].words.endswith("of scale 0.1 on the gradient of every local step")
    with pytest.raises(UsageError, match=r"training\.epochs is a setting of FedSGD"):
        small(protocol=fedavg, defenses=["sign"], training={"epochs": 3})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"defenses": ["gausian_noise"]}, "defenses.gausian_noise: .*did you mean 'gaussian_noise'"),
        ({"defenses": ["none"]}, "defenses.none: no defense is always measured"),
        ({"defenses": [{"name": "gaussian_noise", "strengths": [-1]}]}, "defenses.gaussian_noise: .* got -1"),
        ({"defenses": [{"name": "random_pruning", "strengths": [0.5, 1.5]}]}, "defenses.random_pruning: .* got 1.5"),
        ({"defenses": [{"name": "quantization", "strengths": [2.5]}]}, "defenses.quantization: .*whole number"),
        ({"defenses": [{"name": "gaussian_noise", "strengths": [1, 1.0]}]}, "strengths must be distinct"),
        ({"defenses": [{"name": "sign", "strengths": [1]}]}, "sign has no settings, so it takes no strengths"),
        ({"defenses": [{"name": "sign", "option": "scale"}]}, "option 'scale' needs strengths"),
        ({"defenses": [{"name": "clipping", "strengths": [1], "option": "norm"}]}, "no setting 'norm'; .*: max_norm"),
        ({"defenses": [{"name": "clipping", "strengths": [1], "options": {"max_norm": 1}}]}, "leave it out of options"),
        ({"defenses": [{"name": "clipping", "options": {"norm": 1}}]}, "clipping has no setting norm"),
        ({"defenses": [{"name": "dp_sgd"}]}, "defenses.dp_sgd: .*either noise_multiplier or target_epsilon"),
        ({"defenses": ["sign", "sign"]}, "distinct names, got 'sign' twice; give one of them a label"),
        ({"defenses": [{"name": "sign", "strength": [1]}]}, "strength"),
        ({"defenses": [{"strengths": [1]}]}, "defenses.name is required"),
        ({"defenses": [{"name": "clipping", "strengths": ["a"]}]}, "defenses.strengths must be .*number, got a"),
        ({"defenses": [3]}, "defenses must be a mapping of settings, got 3"),
        ({"defenses": [{"name": "sign", "acts_on": "steps"}]}, "about local steps of a FedAvg client"),
        ({"defenses": ["sign"], "protocol": {"name": "fedavg"}, "training": {"epochs": 3}}, "setting of FedSGD"),
        ({"attacks": ["random"]}, "at least one besides random"),
        ({"attacks": {}}, "at least one besides random"),
        ({"training__epochs": 0}, r"training.epochs must be at least 1"),
        ({"initial__batches": 0}, r"initial.batches must be at least 1"),
        ({"initial__batch_size": 0}, r"initial.batch_sizes must be at least 1"),
        ({"initial__batch_sizes": [8, 32]}, r"initial.batch_sizes of a frontier must be one number, got \[8, 32\]"),
        ({"initial__releases": 4}, "initial.releases of a frontier must be 1: .* got 4"),
        ({"seeds": [3, 4]}, r"seeds of a frontier are a number of trainings, or all from 0 on; got \[3, 4\]"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"workers": -1}, "workers must be at least 0"),
        ({"defences": []}, "unknown setting 'defences'.*did you mean 'defenses'"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(small, changed, message) -> None:
    with pytest.raises(UsageError, match=message):
        small(**changed)


def test_dp_sgd_is_refused_under_fedavg(small) -> None:
    with pytest.raises(UsageError, match="dp_sgd"):
        small(protocol={"name": "fedavg"}, training={}, defenses=[{"name": "dp_sgd", "strengths": [1.0]}])


def test_one_shape_of_batch_sizes_and_seeds_and_the_old_name() -> None:
    minimal = {"kind": "defense-frontier", "data": {"name": "synthetic"}}
    given = {**minimal, "initial": {"batch_sizes": 8}, "seeds": [0, 1]}
    config = FrontierConfig.parse(given)
    assert config.initial.batch_sizes == (8,) and config.seeds == 2
    old = FrontierConfig.parse({**minimal, "initial": {"batch_size": 8}, "seeds": 2})
    assert old == config and FrontierConfig.parse(config.to_dict()) == config


def test_an_adaptive_frontier_adds_the_attack_that_knows_each_defense() -> None:
    curves = (Curve("random_pruning", (0.5,)), Curve("transport"), Curve("sign"))
    given = {"tableak": {}, "exact_joint": {"noised_steps": 9}, "exact_pruned": {}}
    plain = FrontierConfig(data=DataConfig("german"), defenses=curves, attacks={"tableak": {}})
    assert all(plain.audit_at(point).attacks == {"tableak": {}, "random": {}} for point in plain.points)
    adaptive = replace(plain, adaptive=True, attacks={"tableak": {}, "exact_joint": {"noised_steps": 9}})
    found = {point.name: adaptive.audit_at(point).attacks for point in adaptive.points}
    usual = {"tableak": {}, "exact_joint": {"noised_steps": 9}, "random": {}}
    assert found["transport"] == usual and found["sign"] == {**usual, "exact_signs": {}}
    assert found["none"] == {**usual, "audit_max": {}}
    assert found["random_pruning"] == {**usual, "exact_pruned": {"left_out": "any"}}
    svt = replace(adaptive, defenses=(Curve("nvflare_svt", (10,), {"scale": 0.1}),)).points[1]
    told = {"exact_signs": {"cut": pytest.approx(1e-4), "noise": pytest.approx(2e-5)}}
    assert svt.known_to == svt.facts()["defense_knowledge"] == told
    assert "defense_knowledge" not in adaptive.points[1].facts()
    clipped = replace(adaptive, defenses=(Curve("clipping", (0.1,)),))
    assert set(clipped.audit_at(clipped.points[1]).attacks) == {*usual, "exact"}
    weights = replace(clipped, protocol=ProtocolConfig("fedavg"), attacks={"tableak_fedavg": {}})
    found = {point.name: set(weights.audit_at(point).attacks) for point in weights.points}
    assert found["clipping"] == {"tableak_fedavg", "random", "exact_fedavg"}
    assert found["none"] == {"tableak_fedavg", "random", "audit_max"}
    named = replace(adaptive, attacks=given)
    assert named.audit_at(named.points[1]).attacks["exact_pruned"] == {"left_out": "any"}
    assert named.audit_at(named.points[0]).attacks["exact_pruned"] == {}
