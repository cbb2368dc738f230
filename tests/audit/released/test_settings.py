"""The thesis's settings as configs and as reproductions run them."""

from pathlib import Path

import pytest

from lightleak.audit.released.config import load_released_config
from lightleak.audit.released.settings import SETTINGS, setting

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_config_file_is_the_setting_of_the_reproduction(name: str) -> None:
    written = load_released_config(CONFIGS / f"thesis_setting{name}.yaml")
    assert written.to_dict() | {"title": ""} == setting(name).to_dict() | {"title": ""}


def test_settings_are_those_of_table_4_3() -> None:
    # Private classes and features as printed; settings 0 to 3 attack the MLP, setting 4 GANDALF.
    assert {name: values[:2] for name, values in SETTINGS.items()} == {
        "0": (100, 50), "1": (50, 50), "2": (20, 50), "3": (20, 100), "4": (20, 50)
    }  # fmt: skip
    assert [name for name in SETTINGS if setting(name).target.network == "gandalf"] == ["4"]
    assert all(setting(name).target.network != setting(name).evaluation_model.network for name in SETTINGS)
