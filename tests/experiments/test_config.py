"""Configs: YAML and flags to typed settings; what is wrong is refused with its name."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.load import load_config, parse_config
from lightleak.experiments.settings import read_yaml

MINIMAL: dict[str, Any] = {"data": {"name": "fair"}}


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_classes(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "data: {name: fair}"))
    assert config == AuditConfig(data=config.data)
    assert (config.data.name, config.target.network, config.labels) == ("fair", "mlp", "true")
    assert config.attacks == {"tableak": {}, "audit_max": {}, "random": {}}


def test_the_first_rounds_are_captured_by_their_number() -> None:
    config = parse_config(MINIMAL, {"capture.rounds": 3})
    assert config.capture.epochs == (0, 1, 2)
    assert parse_config(config.to_dict()) == config


def test_dotted_overrides_win_over_the_file(tmp_path: Path) -> None:
    text = "{data: {name: fair}, training: {epochs: 9, batch_size: 4}, attacks: {tableak: {steps: 7}}}"
    path = written(tmp_path, text)
    config = load_config(
        path,
        {
            "training.epochs": 1,
            "training.optimizer.learning_rate": 0.5,
            "attacks.tableak.restarts": 3,
            "attacks.random": None,
            "initial.batch_sizes": [2, 3],
            "training.trainer.gradient_clip_val": 1.0,
        },
    )
    assert (config.training.epochs, config.training.batch_size) == (1, 4)
    assert config.training.optimizer.learning_rate == 0.5
    assert config.attacks == {"tableak": {"steps": 7, "restarts": 3}, "random": {}}
    assert config.initial.batch_sizes == (2, 3)
    assert config.training.trainer == {"gradient_clip_val": 1.0}


@pytest.mark.parametrize("attacks", ["random", ["random"], {"random": None}, {"random": {}}])
def test_attacks_may_be_a_name_a_list_or_a_mapping(attacks: Any) -> None:
    assert parse_config(MINIMAL | {"attacks": attacks}).attacks == {"random": {}}
    assert parse_config(MINIMAL, {"attacks": attacks}).attacks == {"random": {}}


def test_a_setting_can_be_changed_in_an_attack_of_a_list() -> None:
    config = parse_config(MINIMAL | {"attacks": ["tableak", "random"]}, {"attacks.tableak.steps": 5})
    assert config.attacks == {"tableak": {"steps": 5}, "random": {}}


def test_unquoted_true_is_the_label_setting_and_not_a_boolean(tmp_path: Path) -> None:
    text = "{data: {name: fair}, labels: true, attacks: {tableak: {labels: true}}, monitor: {options: {labels: true}}}"
    config = load_config(written(tmp_path, text))
    assert config.labels == "true"
    assert config.attacks["tableak"] == {"labels": "true"}
    assert config.monitor.options == {"labels": "true"}
    assert parse_config(MINIMAL, {"labels": True}).labels == "true"


def test_settings_of_others_keep_their_types() -> None:
    options = {"word": "true", "number": "1e3", "nothing": None, "deep": {"list": ["no", 1]}}
    for key in ("data.options", "target.options", "training.trainer", "monitor.options", "attacks.mine"):
        plain = parse_config(MINIMAL, {key: options}).to_dict()
        for part in key.split("."):
            plain = plain[part]
        assert plain == options


def test_a_key_without_a_value_is_left_to_its_default(tmp_path: Path) -> None:
    text = "data: {name: fair, folder: }\ntraining:\ncapture: {per_epoch: }\nseed:\n"
    assert load_config(written(tmp_path, text)) == parse_config(MINIMAL)


def test_numbers_without_a_decimal_point_are_numbers(tmp_path: Path) -> None:
    attacks, training = "{tableak: {learning_rate: 6e-2}}", "{optimizer: {learning_rate: 1e-3}}"
    config = load_config(written(tmp_path, f"{{data: {{name: fair}}, attacks: {attacks}, training: {training}}}"))
    assert config.attacks["tableak"]["learning_rate"] == 0.06
    assert config.training.optimizer.learning_rate == 0.001


LARGEST = float(2**62)


@given(st.floats(-LARGEST, LARGEST), st.integers(-(2**63) + 1, 2**63 - 1), st.text("ab1e", max_size=5))
def test_yaml_values_come_back(number: float, whole: int, word: str) -> None:
    written_out = yaml.safe_dump({"number": number, "whole": whole})
    assert read_yaml(written_out) == {"number": number, "whole": whole}
    assert read_yaml(f"{number:e}") == float(f"{number:e}")
    assert read_yaml(repr(word).replace("'", '"')) == word


def test_dictionary_form_round_trips_through_yaml() -> None:
    config = parse_config(
        MINIMAL
        | {
            "attacks": {"tableak": {"steps": 10, "learning_rate": 1e-5}},
            "capture": {"epochs": [0, 3], "at": "clipped"},
            "training": {"trainer": {"gradient_clip_val": 0.5}, "optimizer": {"name": "adam"}},
            "labels": "restored",
            "seed": 2**40,
        }
    )
    assert parse_config(config.to_dict()) == config
    assert parse_config(yaml.safe_load(yaml.safe_dump(config.to_dict()))) == config


def test_parsing_leaves_its_arguments_as_they_were() -> None:
    content, options = {"data": {"name": "fair"}, "attacks": ["tableak"]}, {"steps": 3}
    parse_config(content, {"attacks.tableak": options, "attacks.tableak.restarts": 2})
    assert content == {"data": {"name": "fair"}, "attacks": ["tableak"]}
    assert options == {"steps": 3}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"trainig.epochs": 1}, "trainig"),
        ({"training.epoch": 1}, "epoch"),
        ({"training.optimizer.lr": 0.1}, "lr"),
        ({"training.epochs": "many"}, "training.epochs"),
        ({"training.epochs": 1.5}, "training.epochs"),
        ({"training.epochs": -1}, "training.epochs must be at least 0, got -1"),
        ({"training.batch_size": 0}, "training.batch_size must be at least 1, got 0"),
        ({"training.validation_fraction": 1.0}, "training.validation_fraction must be at least 0 and below 1, got 1.0"),
        ({"training.optimizer.name": "lion"}, "training.optimizer.name"),
        ({"training.optimizer.learning_rate": -1.0}, "learning_rate"),
        ({"capture.per_epoch": 0}, "capture.per_epoch must be at least 1, got 0"),
        ({"capture.epochs": [-1]}, "capture.epochs must be at least 0, got -1"),
        ({"capture.epochs": [], "initial.batches": 0}, "nothing to attack: capture.epochs names no epoch"),
        ({"capture.at": "cooked"}, "capture.at"),
        ({"capture.at": "clipped"}, "training.trainer.gradient_clip_val"),
        ({"capture.at": "noised"}, "capture.at 'noised'"),
        ({"initial.batches": -1}, "initial.batches must be at least 0, got -1"),
        ({"initial.batch_sizes": [8, 0]}, "initial.batch_sizes must be at least 1, got 0"),
        ({"initial.batches": 0, "training.epochs": 0}, "nothing to attack"),
        ({"monitor.every": 0}, "monitor.every must be at least 1, got 0"),
        ({"attacks": {}}, "attacks must name at least one attack"),
        ({"attacks": None}, "attacks must name at least one attack"),
        ({"attacks": 5}, "attacks must be names, or a mapping of names to settings, got 5"),
        ({"attacks": [{"tableak": {}}]}, "attacks must be names"),
        ({"attacks.tableak": 5}, "attacks.tableak must be a mapping of settings, got 5"),
        ({"target.options": [100]}, "target.options must be a mapping of settings, got [100]"),
        ({"training": 3}, "training must be a mapping of settings, got 3"),
        ({"training.optimizer": "adam"}, "training.optimizer must be a mapping of settings, got 'adam'"),
        ({"data": "fair"}, "data must be a mapping of settings, got 'fair'"),
        ({"data.name.x": 1}, "--data.name.x: 'name' holds a value, not settings"),
        ({"labels": "guessed"}, "labels"),
        ({"label_method": "magic"}, "label_method"),
        ({"workers": -1}, "workers must be at least 0 and at most 10000, got -1"),
        ({"redact": "perhaps"}, "redact"),
        ({"kind": "diagonal"}, "kind"),
        ({"data": None}, "data"),
        ({"data.name": None}, "data needs either name or table"),
        ({"data.table": "mine.csv"}, "data needs either name or table, got name='fair' and table='mine.csv'"),
        ({"data.name": None, "data.table": "mine.csv"}, "data.table 'mine.csv' needs data.label"),
        ({"data.encoding": "base64"}, "data.encoding"),
    ],
)
def test_wrong_settings_are_refused_by_name(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_config(MINIMAL, overrides)
    assert message in str(error.value)


def test_lists_may_be_written_short() -> None:
    data = {"data.table": "mine.csv", "data.name": None, "data.label": "ill", "data.drop": "age, sex"}
    config = parse_config(MINIMAL, {**data, "initial.batch_sizes": 8, "capture.epochs": "0,1"})
    assert (config.data.drop, config.initial.batch_sizes, config.capture.epochs) == (("age", "sex"), (8,), (0, 1))


def test_error_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "{data: {name: fair}, trainin: 1}")
    with pytest.raises(UsageError, match=f"{path}: .*trainin"):
        load_config(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"data: [unclosed", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"- a\n- b\n", "must hold a mapping of settings, .*; got list"),
        (b"", "must hold a mapping of settings, .*; got an empty file"),
        (b"just words", "must hold a mapping of settings, .*; got str"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_config(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match=f"config {path} does not exist or is no file"):
            load_config(path)


def test_an_unknown_section_is_refused_even_where_it_holds_nothing() -> None:
    with pytest.raises(UsageError, match=r"unknown setting 'attaks' \(did you mean 'attacks'\?\)"):
        parse_config(MINIMAL, {"attaks.random": {}})


@pytest.mark.parametrize(
    ("name", "attack"), [("quickstart", "tableak"), ("adult", "tableak"), ("fedavg", "tableak_fedavg")]
)
def test_shipped_configs_parse(name: str, attack: str, pytestconfig: pytest.Config) -> None:
    config = load_config(pytestconfig.rootpath / "configs" / f"{name}.yaml")
    assert attack in config.attacks and "random" in config.attacks
