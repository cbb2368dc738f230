import pytest
import yaml

from lightleak.core.errors import UsageError
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.job import plan_jobs
from lightleak.experiments.load import load_config

MINIMAL = {"kind": "vertical", "data": {"name": "fair"}, "properties": ["religious=3"]}


def test_defaults_are_those_of_the_paper():
    config = VerticalConfig.parse(MINIMAL)
    assert (config.training.epochs, config.training.batch_size, config.auxiliary.size) == (20, 64, 4000)
    assert config.epochs_attacked == (18,)  # the penultimate of 20
    assert config.adversaries == ("C1", "C2")


def test_short_forms_are_written_out():
    short = {"properties": "a=b", "adversaries": "C2", "attacks": ["aia"], "defenses": "none", "seeds": 2}
    config = VerticalConfig.parse(MINIMAL | short | {"attack_epochs": -1})
    assert config.properties == ("a=b",)
    assert config.adversaries == ("C2",)
    assert config.attacks == {"aia_raw_adjusted": {}, "aia": {}}
    assert config.defenses == {"none": {}}
    assert config.seeds == (0, 1)
    assert config.epochs_attacked == (19,)


def test_one_seed_and_a_list_in_words():
    assert VerticalConfig.parse(MINIMAL, {"seed": 7}).seeds == (7,)
    assert VerticalConfig.parse({**MINIMAL, "seed": 7, "seeds": 3}).seeds == (7, 8, 9)
    for flags in ({"seed": 7, "seeds": 3}, {"seeds": 3, "seed": 7}):
        assert VerticalConfig.parse(MINIMAL, flags).seeds == (7, 8, 9)
    assert VerticalConfig.parse({**MINIMAL, "seed": 7}, {"seeds": 3}).seeds == (7, 8, 9)
    assert VerticalConfig.parse({**MINIMAL, "seeds": 3}, {"seed": 7}).seeds == (7, 8, 9)
    assert VerticalConfig.parse(MINIMAL, {"seeds": "0,1"}).seeds == (0, 1)
    assert VerticalConfig.parse(MINIMAL, {"properties": "a=b, c=d"}).properties == ("a=b", "c=d")


def test_survives_yaml():
    config = VerticalConfig.parse(
        MINIMAL
        | {
            "parties": {"columns": [["a", "b"], ["c"]]},
            "attacks": {"trees": {"attack": "provfl_b", "estimator": "decision_tree"}},
            "defenses": {"none": None, "half": {"defense": "withdraw", "ratio": 0.5}},
        }
    )
    assert VerticalConfig.parse(yaml.safe_load(yaml.safe_dump(config.to_dict()))) == config
    assert config.parties.columns == (("a", "b"), ("c",))


def test_reads_a_file_with_overrides(tmp_path):
    path = tmp_path / "audit.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    config = load_config(path, {"training.epochs": 3, "attacks.aia": {}, "attack_epochs": [0, -1]})
    assert isinstance(config, VerticalConfig)
    assert config.epochs_attacked == (0, 2)
    assert "aia" in config.attacks


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"properties": []}, "properties must name at least one"),
        ({"properties": ["sex"]}, "written column=value"),
        ({"adversaries": ["C3"]}, "adversaries must be among C1, C2, got C3"),
        ({"attack_epochs": [20]}, "must lie within the 20 epochs, got 20"),
        ({"auxiliary": {"size": 7}}, "must be even"),
        ({"auxiliary": {"mislabeled": 1.0}}, "auxiliary.mislabeled"),
        ({"auxiliary": {"misaligned": "some"}}, "misaligned"),
        ({"parties": {"number": 1}}, "parties.number must be at least 2, got 1"),
        ({"parties": {"victim_share": 1.0}}, "parties.victim_share"),
        ({"parties": {"adversary": 1}}, "parties.adversary needs parties.columns"),
        ({"parties": {"columns": [["a"], ["b"]], "victim_share": 0.5}}, "excludes"),
        ({"training": {"epochs": 0}}, "training.epochs must be at least 1"),
        ({"training": {"decay": 0.0}}, "training.decay"),
        ({"target": {"output_width": 0}}, "target.output_width"),
        ({"data": {"name": "fair", "test_fraction": 0.0}}, "data.test_fraction"),
        ({"data": {}}, "either name or table"),
        ({"seeds": [1, 1]}, "seeds must be distinct, got 1, 1"),
        ({"properties": ["a=b", "a=b"]}, "properties must be distinct"),
        ({"data": {"name": "fair", "fraction": 0.5}}, "belong together"),
        ({"data": {"name": "fair", "fraction": 1.0, "rows": 10}}, "data.fraction must be above 0"),
        ({"batch_size": 3}, "batch_size"),
        ({"attacks": {"aia": 3}}, "attacks.aia must be a mapping"),
    ],
)
def test_refuses_and_names_the_place(changed, message):
    with pytest.raises(UsageError, match=message):
        VerticalConfig.parse(MINIMAL | changed)


@pytest.mark.parametrize("name", ["vertical", "vertical-survey"])
def test_shipped_configs_can_be_planned(name, pytestconfig):
    config = load_config(pytestconfig.rootpath / "configs" / f"{name}.yaml")
    assert len(plan_jobs(config)) > 0


def test_an_entry_of_a_defense_has_the_same_shape_as_in_other_kinds() -> None:
    flat = VerticalConfig.parse({**MINIMAL, "defenses": {"none": {}, "half": {"defense": "withdraw", "ratio": 0.5}}})
    half = {"name": "withdraw", "options": {"ratio": 0.5}}
    assert VerticalConfig.parse({**MINIMAL, "defenses": {"none": {}, "half": half}}) == flat
    assert VerticalConfig.parse({**MINIMAL, "defenses": ["none", {**half, "label": "half"}]}) == flat
    with pytest.raises(UsageError, match="defenses must have distinct names or labels, got 'withdraw' 2 times"):
        VerticalConfig.parse({**MINIMAL, "defenses": [half, half]})
