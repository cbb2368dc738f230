"""What README.md shows works: its commands parse, its files and names exist; its Python is in test_code_blocks."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lightleak.attacks import ATTACKS
from lightleak.cli.arguments import flag_settings
from lightleak.cli.parser import build_parser
from lightleak.experiments.load import parse_config

README = Path(__file__).parents[1] / "README.md"
MOST_LINES = 150
LARGEST_PICTURE = 200_000
"""Bytes."""

PLACEHOLDERS = {"CONFIG": "config.yaml", "DIR": "folder", "NAME": "adult"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> Iterator[str]:
    """Every ``lightleak ...`` line of a shell block, and every one quoted in the text, without comments."""
    for block in blocks("bash"):
        yield from (line for line in block.splitlines() if line.startswith("lightleak "))
    text = re.sub(r"^```.*?^```$", "", README.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`(lightleak [^`]+)`", text)


def test_there_are_commands_to_check() -> None:
    assert len(list(commands())) >= 8


@pytest.mark.parametrize("line", list(commands()))
def test_command_parses(line: str) -> None:
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)]
    parsed, rest = build_parser().parse_known_args(words[1:])
    assert rest == [] or parsed.takes_settings
    settings = flag_settings(rest)
    named = README.parent / str(getattr(parsed, "config", None))
    of_horizontal = settings and named.is_file()
    parse_config(yaml.safe_load(named.read_text()) if of_horizontal else {"data": {"name": "fair"}}, settings)
    for key in settings:
        if key.startswith("attacks."):
            ATTACKS.get(key.split(".")[1])


def test_flags_that_its_comments_mention_are_settings() -> None:
    mentioned = [flags for block in blocks("bash") for flags in re.findall(r"#.*?((?:--[a-z_.]+ \S+\s?)+)", block)]
    assert mentioned
    for flags in mentioned:
        parse_config({"data": {"name": "fair"}}, flag_settings(flags.split()))


@pytest.mark.parametrize("block", blocks("yaml"))
def test_configs_parse(block: str) -> None:
    for name, options in parse_config(yaml.safe_load(block)).attacks.items():
        ATTACKS.get(name)(**options)


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES


def test_its_pictures_are_small() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README.read_text())
    assert pictures
    assert all((README.parent / picture).stat().st_size < LARGEST_PICTURE for picture in pictures)


def test_make_targets_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    targets = {line.split()[1] for block in blocks("bash") for line in block.splitlines() if line.startswith("make ")}
    assert {"audit", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_linked_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README.read_text()) if "://" not in link]
    assert links
    for link in links:
        assert (README.parent / link).exists(), link
