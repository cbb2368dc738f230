"""The page of all config keys is current and complete."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightleak.experiments.load import DEFAULT_KIND, KINDS
from lightleak.experiments.settings import RENAMED_SETTINGS, RENAMED_VALUES
from lightleak.tuning.config import StudyConfig

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "site" / "config_page.py"))
PAGE, config_page, keys_of = (SCRIPT[name] for name in ("PAGE", "config_page", "keys_of"))
FREE = ("attacks", "defenses", "options", "trainer", "where", "columns")
"""Keys whose content is listed elsewhere."""


def test_the_committed_page_is_current() -> None:
    written = (ROOT / "docs" / PAGE).read_text("utf-8")
    assert written == config_page(), "run `python -m lightleak.cards`, which writes the page again"


def test_every_kind_of_audit_is_on_the_page() -> None:
    first, *others = re.findall(r"^## kind: (.*)$", config_page(), re.MULTILINE)
    assert first == DEFAULT_KIND and sorted([first, *others]) == sorted(KINDS)


def dotted(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        is_section = isinstance(value, dict) and key not in FREE and "search" not in value
        yield from dotted(value, f"{prefix}{key}.") if is_section else [f"{prefix}{key}"]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_key_of_the_shipped_configs_is_listed(path: Path) -> None:
    tree = yaml.safe_load(path.read_text("utf-8"))
    config = KINDS[tree.get("kind", "updates")].config
    listed = {key.name for key in keys_of(config)} | {key.name for key in keys_of(StudyConfig, "study.")}
    sections = {name.split(".")[0] for name in listed}
    for key in dotted(tree):
        key = key.replace("study.objectives.", "study.objectives[].")  # a single one need not be a list
        assert key in listed or (key in sections and not isinstance(tree[key], dict)), key


def test_the_title_of_the_people_example_says_nothing_that_its_flags_change() -> None:
    """Its first lines and the documents run it on other tables and over other epochs."""
    title = yaml.safe_load((ROOT / "configs" / "people.yaml").read_text("utf-8"))["title"].lower()
    assert not {"german", "credit", "applicants", "one", "two", "epoch", "epochs"} & set(re.findall(r"[a-z]+", title))


def test_a_default_of_a_section_is_the_kinds_own() -> None:
    released = {key.name: key for key in keys_of(KINDS["released-model"].config)}
    assert released["training.optimizer.name"].default == "adam"
    assert released["data.encoding"].kind.split(" or ")[0] == "`standardized`"
    assert released["data.missing"].kind == "`refuse` or `category` or `impute`"


def test_keys_are_tables_of_four_cells_in_every_line() -> None:
    for line in config_page().partition("## Old names")[0].splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_every_renamed_key_and_value_is_listed() -> None:
    old_names = config_page().partition("## Old names")[2]
    for old, new in RENAMED_SETTINGS.items():
        assert f"| `{old}` | `{new}` |" in old_names
    for key, values in RENAMED_VALUES.items():
        for old, new in values.items():
            assert f"| `{key}: {old}` | `{key}: {new}` |" in old_names
