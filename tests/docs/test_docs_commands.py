"""What the pages in docs/ show works: commands parse, configs load, examples run.

Blocks of ``python`` are executed by a test of their own; blocks of ``py`` are files of docs/examples/.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from lightleak.attacks import ATTACKS
from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.cards import find_cards
from lightleak.cli.arguments import flag_settings
from lightleak.cli.parser import build_parser
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.kind import VerticalKind
from lightleak.experiments.load import load_config, parse_config
from lightleak.tuning.config import load_tune_config
from lightleak.tuning.trial import trial_tree

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LANGUAGES = {"bash", "dockerfile", "yaml", "python", "py", "text"}
OTHER_COMMANDS = {"make", "export", "sbatch", "torchrun", "pip", "cd", "python", "source", "flwr", "nvflare"}
OTHER_COMMANDS |= {"git", "python3", ".venv/bin/pip", "for", "ssh", "configs/cluster/by-hand.sh"}
OTHER_COMMANDS |= {"LIGHTLEAK_PLUGINS"}  # set for one command, which test_examples runs
MADE_BY_THE_READER = {"mine.yaml", "best.yaml", "label-guess.yaml"}
"""Configs that the reader writes, or that a study of theirs leaves."""


def blocks(language: str) -> list[tuple[str, str]]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return [
        (page.name, block)
        for page in PAGES
        for block in re.findall(pattern, page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]


def commands() -> list[str]:
    """Every command line of a block, and every ``lightleak ...`` in the text, without those that name a placeholder."""
    lines = [line for _, block in blocks("bash") for line in block.replace("\\\n", " ").splitlines()]
    texts = [re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL) for page in PAGES]
    quoted = [command for text in texts for command in re.findall(r"`(lightleak [a-z][^`]+)`", text)]
    return [line for line in (*lines, *quoted) if line.strip() and not line.lstrip().startswith("#")]


COMMANDS = commands()
OURS = [line for line in dict.fromkeys(COMMANDS) if line.startswith("lightleak ")]


def test_there_are_pages_and_every_block_is_of_a_language_that_is_checked() -> None:
    assert {"index.md", "choose.md", "report.md", "extend.md", "exact-inversion.md"} <= {page.name for page in PAGES}
    named = {name for page in PAGES for name in re.findall(r"^```(\S*)$", page.read_text("utf-8"), re.MULTILINE)}
    assert named - {""} <= LANGUAGES
    for page in PAGES:
        assert len(re.findall(r"^```", page.read_text("utf-8"), re.MULTILINE)) % 2 == 0, page.name


@pytest.mark.parametrize("line", OURS)
def test_a_command_parses(line: str) -> None:
    words = [word.replace("NAME", "tableak") for word in shlex.split(line, comments=True)]
    if len(words) == 2 and words[1] in ("audit", "attack", "tune", "report", "compare", "reproduce", "data", "list"):
        return  # named in a sentence, without its arguments
    parsed, rest = build_parser().parse_known_args(words[1:])
    assert rest == [] or parsed.takes_settings
    config = getattr(parsed, "config", None)
    if config is not None and parsed.command in ("audit", "attack"):
        assert config.name in MADE_BY_THE_READER or (ROOT / config).is_file()
        read_config(config, rest)
    if parsed.command == "explain":
        assert find_cards(parsed.name)


def read_config(config: Path, rest: list[str]) -> None:
    settings = flag_settings(rest)
    if config.name in MADE_BY_THE_READER:
        loaded = parse_config({"data": {"name": "fair"}}, settings)
    else:
        loaded = load_config(ROOT / config, settings)
    if isinstance(loaded, AuditConfig):
        for name, options in loaded.attacks.items():
            ATTACKS.get(name)(**options)


def test_other_commands_are_few_and_what_make_makes_is_there() -> None:
    others = [shlex.split(line, comments=True) for line in COMMANDS if not line.startswith("lightleak ")]
    assert {words[0].partition("=")[0] for words in others} <= OTHER_COMMANDS
    targets = {words[1] for words in others if words[0] == "make"}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


SCHEMA = "# schema.yaml"
"""Begins a block that is the schema of a table; test_code_blocks reads it."""

CONFIGS = [(page, block) for page, block in blocks("yaml") if not block.startswith(SCHEMA)]


@pytest.mark.parametrize(("page", "block"), CONFIGS)
def test_a_config_parses_and_its_attacks_take_their_settings(page: str, block: str, tmp_path: Path) -> None:
    content = yaml.safe_load(block)
    if "study" in content:
        (tmp_path / "study.yaml").write_text(block, "utf-8")
        study = load_tune_config(tmp_path / "study.yaml")
        content = trial_tree(study, study.space.values(study.space.defaults()))
    kind = content.get("kind", "updates")
    if kind == "vertical":
        VerticalKind().check(VerticalConfig.parse(content))
    elif kind == "released-model":
        for name, options in ReleasedConfig.parse(content).attacks.items():
            INVERSION_ATTACKS.get(name)(**options)
    else:
        for name, options in parse_config(content).attacks.items():
            ATTACKS.get(name)(**options)


def test_settings_named_in_the_text_exist() -> None:
    named = [flags for page in PAGES for flags in re.findall(r"`(--attacks\.[^`]+)`", page.read_text("utf-8"))]
    assert named
    for flags in named:
        for name, options in parse_config({"data": {"name": "fair"}}, flag_settings(flags.split())).attacks.items():
            ATTACKS.get(name)(**options)


def test_files_named_in_the_text_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:configs|src|benchmarks)/[\w./-]+)`", page.read_text("utf-8")):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_a_page_reads_well_in_the_checkout(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "--8<--" not in text
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link} exists only on the site, if at all"
