"""The site builds without a warning: every link and anchor leads somewhere, nothing is fetched from elsewhere."""

import doctest
import json
import re
import runpy
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

mkdocs_build = pytest.importorskip("mkdocs.commands.build", reason="the extra `docs` is not installed")
pytest.importorskip("material", reason="the extra `docs` is not installed")

from mkdocs.config import load_config  # noqa: E402  after the check that it is there

from lightleak.cards import all_cards  # noqa: E402

ROOT = Path(__file__).parents[2]
page_path = runpy.run_path(str(ROOT / "docs" / "site" / "card_pages.py"))["page_path"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, strictly, but for the API's pages, which take a minute: `make docs` builds these."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(
        str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder), plugins=["search"], extra={"api": False}
    )
    config.plugins.on_startup(command="build", dirty=False)
    mkdocs_build.build(config)
    return folder


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_card_has_its_page(site: Path) -> None:
    cards = all_cards()
    for card in cards:
        assert (site / "cards" / page_path(card, cards)).with_suffix(".html").is_file()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        text = page.read_text("utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//', text) == [], page
        assert re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="(?:https?:)?//', text) == [], page


def test_links_inside_the_site_lead_to_files_and_anchors(site: Path) -> None:
    anchors: dict[Path, set[str]] = {}
    for page in pages(site):
        anchors[page] = set(re.findall(r'\bid="?([^"\s>]+)', page.read_text("utf-8")))
    for page in anchors:
        if page.name == "404.html":
            continue  # its links are those of a server's root
        for link in re.findall(r'href="([^"]+)"', page.read_text("utf-8")):
            if re.match(r"[a-z]+:|//|#__|\.$", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.relative_to(site)}: {link}"
            assert not anchor or target.suffix != ".html" or anchor in anchors[target], (
                f"{page.relative_to(site)}: {link}"
            )


def test_the_search_index_knows_the_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    assert {"choose.html", "cards/attacks/tableak.html"} <= {entry["location"] for entry in index["docs"]}


def test_every_direct_dependency_stands_on_the_page_of_licenses_with_its_terms(site: Path) -> None:
    text = (site / "licenses.html").read_text("utf-8")
    required = map(Requirement, requires("lightleak") or [])
    needed = [one.name for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    assert len(needed) > 10
    for name in needed:
        row = re.search(rf"<tr>\s*<td>{re.escape(name.lower())}</td>(.*?)</tr>", text, re.DOTALL)
        assert row and "not stated" not in row[1] and "not installed" not in row[1], name


@pytest.mark.parametrize("script", ["config_page", "doctests", "licenses"])
def test_examples_of_the_build_scripts_hold(script: str) -> None:
    names = runpy.run_path(str(ROOT / "docs" / "site" / f"{script}.py"), run_name=script)
    own = {name: thing for name, thing in names.items() if getattr(thing, "__module__", None) == script}
    tests = [test for name, thing in own.items() for test in doctest.DocTestFinder().find(thing, name, globs=names)]
    found = [test for test in tests if test.examples]
    assert found
    for test in found:
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_pages_that_are_written_by_hand_are_all_in_the_navigation() -> None:
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    named = set(re.findall(r"'([\w-]+\.md)'", str(config["nav"])))
    written = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert written <= named
    assert named - written <= {"measured.md", "licenses.md"}


def test_citation_file_names_the_version_and_license_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    from lightleak import __version__

    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
