"""The thesis's settings as configs and as reproductions run them."""

from pathlib import Path

import pytest
import yaml

from lightleak.core.errors import UsageError
from lightleak.core.seeds import CPU
from lightleak.data.layout import EncodedLayout
from lightleak.experiments.kinds.released.config import (
    USUAL,
    ReleasedConfig,
)
from lightleak.experiments.load import load_config
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduce import reproduction_of
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.thesis.tables import SETTINGS, setting
from lightleak.targets import NetworkSpec, build_network

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_config_file_is_the_setting_of_the_reproduction(name: str) -> None:
    written = load_config(CONFIGS / f"thesis-setting{name}.yaml")
    assert written.to_dict() | {"title": ""} == setting(name).to_dict() | {"title": ""}


def test_settings_are_those_of_table_4_3() -> None:
    # Private classes and features as printed; settings 0 to 3 attack the MLP, setting 4 GANDALF.
    assert {name: (one["task.private_classes"], one["task.features"]) for name, one in SETTINGS.items()} == {
        "0": (100, 50), "1": (50, 50), "2": (20, 50), "3": (20, 100), "4": (20, 50)
    }  # fmt: skip
    assert [name for name in SETTINGS if setting(name).target.network == "gandalf"] == ["4"]
    assert all(setting(name).target.network != setting(name).evaluation_model.network for name in SETTINGS)


def test_the_networks_of_every_shipped_config_take_their_options() -> None:
    contents = {file: yaml.safe_load(file.read_text("utf-8")) for file in CONFIGS.glob("*.yaml")}
    released = [file for file, one in contents.items() if one.get("kind") == "released-model" and "study" not in one]
    assert {file.stem for file in released} >= {"released-model", "released-trees"}
    for config in map(load_config, released):
        require_networks(config)


def require_networks(config: ReleasedConfig) -> None:
    layout = EncodedLayout.of_numerical(4)
    for target in (config.target, config.evaluation_model):
        build_network(NetworkSpec(target.network, 3, layout, target.options), seed=0)


def test_options_of_the_usual_network_stay_with_it() -> None:
    data = {"data": {"name": "fair"}}
    assert ReleasedConfig.parse(data).target.options == USUAL["target"].options
    assert ReleasedConfig.parse(data | {"target": {"network": "resnet"}}).target.options == {}
    kept = ReleasedConfig.parse(data | {"target": {"network": "mlp"}})
    assert kept.target.options == USUAL["target"].options


@pytest.mark.parametrize("name", ["thesis-table5.1", "thesis-table5.3"])
def test_a_published_code_that_is_not_followed_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"--as-published: .*{name}"):
        reproduction_of(load_paper_table(name), Selection(as_published=True), CPU)
