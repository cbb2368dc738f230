"""What the pages in docs/ show works: commands parse, configs are configs of ours, links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from lightleak.attacks import ATTACKS
from lightleak.audit.config import load_config, parse_config
from lightleak.cli import _parser, _settings

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return [block for page in PAGES for block in re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)]


def test_there_are_pages_and_no_block_is_left_out() -> None:
    assert PAGES
    named = {name for page in PAGES for name in re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE)}
    assert named <= {"bash", "yaml", "text"}


@pytest.mark.parametrize("line", [line for block in blocks("bash") for line in block.splitlines()])
def test_command_parses(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == "lightleak"
    parsed, rest = _parser().parse_known_args(words[1:])
    assert rest == [] or parsed.takes_settings
    config = load_config(ROOT / parsed.config, _settings(rest))
    for name, options in config.attacks.items():
        ATTACKS.get(name)(**options)


@pytest.mark.parametrize("block", blocks("yaml"))
def test_config_parses(block: str) -> None:
    for name, options in parse_config(yaml.safe_load(block)).attacks.items():
        ATTACKS.get(name)(**options)


def test_settings_named_in_the_text_exist() -> None:
    named = [flags for page in PAGES for flags in re.findall(r"`(--attacks\.[^`]+)`", page.read_text())]
    assert named
    for flags in named:
        for name, options in parse_config({"data": {"name": "fair"}}, _settings(flags.split())).attacks.items():
            ATTACKS.get(name)(**options)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), link
