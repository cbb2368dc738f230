"""A report of ours is known by its beginning, a printed one by its end, and nothing else is."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from lightleak.cli import main
from lightleak.report import build_report, pdf
from lightleak.report.earlier import BEGINNING, KICKER, is_printed_report, is_report
from lightleak.report.pdf import MARK


def test_a_built_report_is_one(make_run) -> None:
    assert is_report(build_report(make_run(batch_sizes=(8,), n_batches=2)))


def test_every_template_of_a_page_says_so_early() -> None:
    folder = files("lightleak.report") / "templates"
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".j2")]
    pages = [text for text in texts if "<!doctype html>" in text]
    assert pages
    style = (folder / "report.css").read_bytes()
    for page in pages:
        assert page.encode().index(KICKER) + len(style) < BEGINNING / 4
        assert not re.sub(r"\{%.*?%\}", "", page.partition("<!doctype html>")[0]).strip()


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n1,2\n", b"<!doctype html><title>LightLeak</title>", KICKER, b"%PDF-1.4\n%%EOF\n", MARK],
)
def test_nothing_else_is_one(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert not is_report(tmp_path / "file") and not is_printed_report(tmp_path / "file")


@pytest.fixture
def prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that prints an empty PDF."""
    monkeypatch.setattr(pdf, "find_browser", lambda: "browser")
    monkeypatch.setattr("lightleak.report.find_browser", lambda: "browser")
    monkeypatch.setattr(
        pdf, "_print", lambda browser, page, printed, profile: printed.write_bytes(b"%PDF-1.4\n%%EOF\n")
    )


def test_the_command_writes_its_own_anew_and_prints_where_it_is_told(
    make_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: None
) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=2)
    monkeypatch.chdir(tmp_path)
    run = str(folder)
    for _ in range(2):
        assert main(["report", run, "--output", "a.html", "--pdf"]) == 0
        assert main(["report", "--pdf", run]) == 0
        assert main(["report", run, "--pdf", "b.pdf", "--redact"]) == 0
        assert main(["report", "--output", "a.html", "--pdf", "c.PDF", run]) == 0
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.[pP]*") if path.suffix.lower() == ".pdf"}
    assert made == {"a.pdf", "b.pdf", "c.PDF", "run/report.pdf"}
    assert all(is_printed_report(tmp_path / name) for name in made)
