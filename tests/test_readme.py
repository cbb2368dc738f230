"""What README.md shows works: its commands parse, its files and names exist; its Python is in test_code_blocks."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.cli.arguments import flag_settings
from lightleak.cli.parser import build_parser
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.kind import check_vertical
from lightleak.experiments.load import parse_config
from lightleak.tuning.config import load_tune_config
from lightleak.tuning.trial import trial_tree

README = Path(__file__).parents[1] / "README.md"
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
def test_configs_parse(block: str, tmp_path: Path) -> None:
    content = yaml.safe_load(block)
    if "study" in content:
        (tmp_path / "study.yaml").write_text(block)
        study = load_tune_config(tmp_path / "study.yaml")
        content = trial_tree(study, study.space.values(study.space.defaults()))
    if content.get("kind") == "vertical":
        check_vertical(VerticalConfig.parse(content))
        return
    if content.get("kind") == "released-model":
        released = ReleasedConfig.parse(content)
        for label, options in released.attacks.items():
            INVERSION_ATTACKS.get(label)(**options)
        return
    for name, options in parse_config(content).attacks.items():
        ATTACKS.get(name)(**options)


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
