"""Pages that are made while the documentation is built: cards, API, licenses, measured results."""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from lightleak.cards import all_cards

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))
card_pages, licenses = import_module("card_pages"), import_module("licenses")
page_path = card_pages.page_path

WITH_LINKS = ("choose.md",)
"""Pages on which names of attacks become links to their cards."""

KINDS = {"attack": "Attacks", "defense": "Defenses", "metric": "Metrics"}
PACKAGES = {
    "lightleak": "what a script needs, in one place",
    "lightleak.core": "observations, reconstructions, threat models, seeds, errors, registries",
    "lightleak.data": "schema, encoder, datasets, partitions",
    "lightleak.targets": "networks and how they are trained",
    "lightleak.defenses": "what a client or a party does to what it sends",
    "lightleak.protocols": "what leaves a client: gradients, weight updates, aggregates",
    "lightleak.callbacks": "Lightning callbacks that record what is seen while a target trains",
    "lightleak.integrations": "updates of other frameworks",
    "lightleak.attacks": "gradient inversion, property inference, model inversion",
    "lightleak.metrics": "scores of what an attack returns",
    "lightleak.report": "the run folder as one page",
    "lightleak.experiments": "configs, campaigns, every kind of audit, the leakage monitor",
    "lightleak.reproductions": "papers' tables and figures",
    "lightleak.doctor": "checks of an installation and of the machine",
    "lightleak.tuning": "searches in configs, shared studies",
    "lightleak.cards": "the cards of this documentation",
}
"""Public packages, in the order in which data passes them."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation; ``extra: {api: false}`` leaves the API out, it is slow."""
    cards = all_cards()
    if not with_api(config):
        config.nav = [entry for entry in config.nav or [] if "API" not in entry]
    for entry in config.nav or []:
        if "Cards" in entry:
            entry["Cards"] = ["cards/index.md"] + [
                {title: [{card.name: f"cards/{page_path(card, cards)}"} for card in cards if card.kind == kind]}
                for kind, title in KINDS.items()
            ]
        if "API" in entry:
            there = filter(is_there, PACKAGES)
            entry["API"] = ["api/index.md", *({package: f"api/{package}.md"} for package in there)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in pages(with_api(config)):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that work in a checkout to the pages of the site, and names of attacks to their cards."""
    markdown = markdown.replace("](../benchmarks/RESULTS.md", "](measured.md")
    if page.file.src_uri not in WITH_LINKS:
        return markdown
    cards = all_cards()
    paths = {card.name: f"cards/{page_path(card, cards)}" for card in cards if card.kind == "attack"}
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _linked(part, paths) for part in parts)


def _linked(text: str, paths: Mapping[str, str]) -> str:
    return re.sub(r"`(\w+)`", lambda found: f"[{found[0]}]({paths[found[1]]})" if found[1] in paths else found[0], text)


def with_api(config: MkDocsConfig) -> bool:
    """Whether pages of the API are made."""
    return bool(config.extra.get("api", True))


def pages(api: bool = True) -> Iterator[tuple[str, str]]:
    """Path and Markdown of every generated page."""
    cards = all_cards()
    yield "cards/index.md", card_pages.index_page(cards)
    for card in cards:
        yield f"cards/{page_path(card, cards)}", card_pages.card_page(card)
    yield "measured.md", (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    yield "licenses.md", licenses.page()
    if api:
        yield "api/index.md", api_index()
    for package in PACKAGES:
        if api and is_there(package):
            yield f"api/{package}.md", api_page(package)


def is_there(package: str) -> bool:
    """Whether the package is in this checkout."""
    return (ROOT / "src" / package.replace(".", "/") / "__init__.py").is_file()


def api_index() -> str:
    """The packages in the order in which data passes them."""
    rows = [f"| [{package}]({package}.md) | {about} |" for package, about in PACKAGES.items() if is_there(package)]
    head = ["# API", "", "From the docstrings.", "", "| package | what is in it |", "| --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


def api_page(package: str) -> str:
    """A package with all its public modules; of the root, what it offers itself."""
    if package == "lightleak":
        return f"# {package}\n\n::: lightleak.api\n    options: {{show_submodules: false, show_root_heading: false}}\n"
    return f"# {package}\n\n::: {package}\n    options: {{show_root_heading: false}}\n"
