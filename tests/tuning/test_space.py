"""Searches next to the values they replace: conditions, alternatives, lists, and what Optuna is given."""

import copy
import warnings
from typing import Any

import optuna
import pytest

from lightleak.core.errors import UsageError
from lightleak.experiments.settings import read_yaml
from lightleak.tuning.space import Space, read_space

EXPERIMENT = """
data: {name: adult}
protocol: {name: fedsgd}
target:
  network: {search: choice, of: [mlp, resnet], default: mlp}
  options:
    hidden: {search: choice, of: [[100, 100], [50], [200, 200, 200]], default: [100, 100], when: {target.network: mlp}}
defense:
  name: {search: choice, of: [none, gaussian_noise, clipping], default: none}
  options:
    scale: {search: float, low: 1e-4, high: 0.1, log: true, when: {defense.name: gaussian_noise}}
    max_norm: {search: float, low: 0.5, high: 5, when: {defense.name: clipping}}
attacks:
  tableak:
    learning_rate:
      - {search: float, low: 0.005, high: 0.3, log: true, default: 0.06, when: {attacks.tableak.sign: true}}
      - {search: float, low: 0.5, high: 5, when: {attacks.tableak.sign: false}}
    sign: {search: choice, of: [true, false], default: true}
    restarts: {search: int, low: 5, high: 60, step: 5, default: 30}
    momentum: {search: choice, of: [null, 0.9, 1], default: null, when: {defense.name: [none, clipping], attacks.tableak.sign: true}}
  random: {}
initial:
  batch_sizes: [8, {search: choice, of: [16, 32], default: 32}]
"""  # noqa: E501
DEFAULTS = {
    "target.network": "mlp",
    "target.options.hidden": [100, 100],
    "defense.name": "none",
    "attacks.tableak.sign": True,
    "attacks.tableak.learning_rate": 0.06,
    "attacks.tableak.restarts": 30,
    "attacks.tableak.momentum": None,
    "initial.batch_sizes.1": 32,
}


@pytest.fixture
def space() -> Space:
    return read_space(read_yaml(EXPERIMENT))


def suggested(space: Space, stored: dict[str, Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return space.suggest(optuna.trial.FixedTrial(stored))


def test_default_trial_is_what_the_yaml_says(space: Space) -> None:
    stored = space.defaults()
    assert space.values(stored) == suggested(space, stored) == DEFAULTS
    assert space.fill(DEFAULTS) == {
        "data": {"name": "adult"},
        "protocol": {"name": "fedsgd"},
        "target": {"network": "mlp", "options": {"hidden": [100, 100]}},
        "defense": {"name": "none", "options": {}},
        "attacks": {
            "tableak": {"learning_rate": 0.06, "sign": True, "restarts": 30, "momentum": None},
            "random": {},
        },
        "initial": {"batch_sizes": [8, 32]},
    }


def test_optuna_takes_the_default_trial_without_complaint(space: Space) -> None:
    study = optuna.create_study()
    study.enqueue_trial(space.defaults())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trial = study.ask()
        assert space.suggest(trial) == DEFAULTS
    assert trial.params == space.defaults()


def test_optuna_samples_the_ranges_that_the_yaml_says() -> None:
    floats, ints, choices = (
        optuna.distributions.FloatDistribution,
        optuna.distributions.IntDistribution,
        optuna.distributions.CategoricalDistribution,
    )
    tree = {
        "log": {"search": "float", "low": 0.01, "high": 1, "log": True, "default": 1},
        "grid": {"search": "float", "low": 0, "high": 1, "step": 0.25, "default": 0.5},
        "log_count": {"search": "int", "low": 1, "high": 64, "log": True, "default": 2},
        "count": {"search": "int", "low": 5, "high": 60, "step": 5, "default": 30},
        "word": {"search": "choice", "of": ["x", 1, None], "default": "x"},
        "widths": {"search": "choice", "of": [[100, 50.0], {"b": True, "a": None}], "default": [100, 50]},
    }
    trial = optuna.create_study().ask()
    read_space(tree).suggest(trial)
    assert trial.distributions == {
        "log": floats(0.01, 1.0, log=True),
        "grid": floats(0.0, 1.0, step=0.25),
        "log_count": ints(1, 64, log=True),
        "count": ints(5, 60, step=5),
        "word": choices(("x", 1, None)),
        "widths": choices(("[100, 50]", '{"a": null, "b": true}')),
    }


def test_what_a_choice_rules_out_is_neither_suggested_nor_filled(space: Space) -> None:
    stored = {
        **{name: value for name, value in space.defaults().items() if name != "target.options.hidden"},
        "target.network": "resnet",
        "defense.name": "clipping",
        "defense.options.max_norm": 2.0,
    }
    values = suggested(space, stored)
    assert "target.options.hidden" not in values
    filled = space.fill(values)
    assert filled["target"] == {"network": "resnet", "options": {}}
    assert filled["defense"] == {"name": "clipping", "options": {"max_norm": 2.0}}


def test_one_setting_has_other_ranges_under_other_choices(space: Space) -> None:
    names = [one.name for one in space.parameters if one.key == "attacks.tableak.learning_rate"]
    assert names == ["attacks.tableak.learning_rate#1", "attacks.tableak.learning_rate#2"]
    stored = {**space.defaults(), "attacks.tableak.sign": False, names[1]: 3.0}
    values = suggested(space, stored)
    assert values["attacks.tableak.learning_rate"] == 3.0  # the second range, though the first is given too
    assert "attacks.tableak.momentum" not in values  # one of its two conditions fails


def test_alternatives_of_one_range_are_one_parameter_of_optuna() -> None:
    tree = """
    a: {search: choice, of: [x, y, z], default: x}
    b:
      - {search: int, low: 1, high: 9, default: 2, when: {a: x}}
      - {search: int, low: 1, high: 9, default: 7, when: {a: [y, x]}}
    """
    space = read_space(read_yaml(tree))
    assert [one.name for one in space.parameters] == ["a", "b", "b"]
    assert space.defaults() == {"a": "x", "b": 2}  # the first that holds
    assert suggested(space, {"a": "y", "b": 4}) == {"a": "y", "b": 4}
    assert suggested(space, {"a": "z"}) == {"a": "z"}
    assert space.fill({"a": "z"}) == {"a": "z"}


def test_conditions_on_conditions_whatever_the_order_of_the_file() -> None:
    tree = """
    c: {search: int, low: 0, high: 3, default: 1, when: {b: [2, 3]}}
    b: {search: int, low: 1, high: 3, default: 2, when: {a: on_it}}
    a: {search: choice, of: [on_it, off_it], default: on_it}
    """
    space = read_space(read_yaml(tree))
    assert [one.key for one in space.parameters] == ["a", "b", "c"]
    assert space.defaults() == {"a": "on_it", "b": 2, "c": 1}
    assert suggested(space, {"a": "on_it", "b": 1}) == {"a": "on_it", "b": 1}
    # What is ruled out meets no condition, whatever it would have been.
    assert suggested(space, {"a": "off_it", "b": 2, "c": 1}) == {"a": "off_it"}


@pytest.mark.parametrize("name", ["fedsgd", "fedavg"])
def test_a_fixed_setting_rules_searches_out_for_good(name: str) -> None:
    tree = f"""
    protocol: {{name: {name}}}
    epochs: {{search: choice, of: [1, 5], default: 1, when: {{protocol.name: fedavg}}}}
    decay: {{search: float, low: 0, high: 1, default: 0.5, when: {{epochs: 5}}}}
    rate: {{search: float, low: 0, high: 1, default: 0.5}}
    """
    space = read_space(read_yaml(tree))
    federated = name == "fedavg"
    assert [one.key for one in space.parameters] == (["epochs", "decay", "rate"] if federated else ["rate"])
    assert space.defaults() == ({"epochs": 1, "rate": 0.5} if federated else {"rate": 0.5})
    if not federated:
        assert space.fill({"rate": 0.1}) == {"protocol": {"name": name}, "rate": 0.1}
        with pytest.raises(UsageError, match="epochs: takes no value here, as its conditions do not hold"):
            space.fill({"rate": 0.1, "epochs": 1})


def test_items_of_a_list_are_searched_one_by_one() -> None:
    tree = """
    sizes: [{search: int, low: 1, high: 4, default: 2}, {search: int, low: 5, high: 9, default: 6}]
    mixed: [8, {search: int, low: 1, high: 4, default: 2, when: {sizes.0: 2}}]
    """
    space = read_space(read_yaml(tree))
    assert space.fill(space.values(space.defaults())) == {"sizes": [2, 6], "mixed": [8, 2]}
    assert space.fill({"sizes.0": 3, "sizes.1": 5}) == {"sizes": [3, 5], "mixed": [8]}


def test_choices_that_python_holds_equal_stay_apart() -> None:
    space = read_space(read_yaml("a: {search: choice, of: [1, true, '1'], default: true}"))
    assert space.values(space.defaults()) == {"a": True}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    for _ in range(30):
        trial = study.ask()
        value = space.suggest(trial)["a"]
        again = space.values(trial.params)["a"]
        assert (type(value), value) == (type(again), again)
        study.tell(trial, 0.0)
    assert {repr(space.values(trial.params)["a"]) for trial in study.trials} == {"1", "True", "'1'"}


def test_a_setting_that_is_called_search_is_no_search() -> None:
    tree = {
        "fixed": {"search": "tpe", "steps": 300},
        "searched": {"search": {"search": "choice", "of": ["tpe", "none"], "default": "tpe"}, "steps": 300},
    }
    space = read_space(tree)
    assert [one.key for one in space.parameters] == ["searched.search"]
    assert space.fill({"searched.search": "none"})["fixed"] == tree["fixed"]


def test_neither_reading_nor_filling_changes_the_config_or_shares_its_values(space: Space) -> None:
    tree = read_yaml(EXPERIMENT)
    before = copy.deepcopy(tree)
    space = read_space(tree)
    space.fill(DEFAULTS)["target"]["options"]["hidden"].append(1)
    space.fill(DEFAULTS)["data"]["name"] = "german"
    assert tree == before
    tree["data"]["name"] = "changed"
    assert space.fill(DEFAULTS)["target"]["options"]["hidden"] == [100, 100]
    assert space.fill(DEFAULTS)["data"]["name"] == "adult"


def test_description_is_that_of_the_results(space: Space) -> None:
    entries = {entry["name"]: entry for entry in space.describe()}
    assert entries["attacks.tableak.learning_rate#1"] == {
        "key": "attacks.tableak.learning_rate",
        "name": "attacks.tableak.learning_rate#1",
        "kind": "float",
        "low": 0.005,
        "high": 0.3,
        "log": True,
        "step": None,
        "of": None,
        "default": 0.06,
        "when": "attacks.tableak.sign is true",
    }
    assert (
        entries["attacks.tableak.momentum"]["when"]
        == "defense.name is none or clipping and attacks.tableak.sign is true"
    )
    assert entries["target.options.hidden"]["of"] == [[100, 100], [50], [200, 200, 200]]
    assert entries["defense.name"]["when"] is None and entries["defense.options.scale"]["default"] is None


def test_without_searches_there_is_nothing_to_choose() -> None:
    space = read_space({"a": 1, "b": [2, {"c": 3}]})
    assert space.parameters == () and space.fill({}) == {"a": 1, "b": [2, {"c": 3}]}


def test_values_of_a_trial_that_was_cut_short(space: Space) -> None:
    assert space.values({"defense.name": "clipping"}) == {"defense.name": "clipping"}
