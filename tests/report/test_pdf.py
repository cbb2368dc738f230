"""Printing: with a browser that is there, with a made-up one, and without any."""

import re
import stat
import subprocess
from pathlib import Path

import pytest

from lightleak.cli import main
from lightleak.core.errors import UsageError
from lightleak.report import build_report, pdf, print_pdf


@pytest.fixture
def report(make_run) -> Path:
    return build_report(make_run(batch_sizes=(8,), n_batches=3))


@pytest.fixture
def stands_in(monkeypatch):
    """A browser that writes down what it was asked and prints nothing but a marker."""
    asked = []

    def run(command, **_):
        asked.append(command)
        target = next(flag for flag in command if flag.startswith("--print-to-pdf=")).partition("=")[2]
        page = Path(command[-1].removeprefix("file://"))
        Path(target).write_text(page.read_text())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pdf, "find_browser", lambda: "browser")
    monkeypatch.setattr(pdf.subprocess, "run", run)
    return asked


def test_a_browser_prints_a4_with_page_numbers(report: Path, browser) -> None:
    printed = print_pdf(report, report.with_suffix(".pdf"))
    raw = printed.read_bytes()
    assert raw.startswith(b"%PDF")
    sizes = {tuple(round(float(x)) for x in box.split()) for box in re.findall(rb"/MediaBox\s*\[([^\]]*)\]", raw)}
    a4 = {(0, 0, 595, 842), (0, 0, 842, 595)}  # upright, and turned for the rows side by side
    assert all(any(max(abs(a - b) for a, b in zip(one, page, strict=True)) <= 1 for page in a4) for one in sizes)
    assert len(sizes) == 2
    assert stat.S_IMODE(printed.stat().st_mode) == 0o600


def test_the_stylesheet_numbers_the_pages(report: Path) -> None:
    text = report.read_text()
    assert text.count("counter(page)") == text.count("counter(pages)") == 2


def test_what_is_folded_is_printed_unfolded(report: Path, stands_in) -> None:
    printed = print_pdf(report, report.with_suffix(".pdf")).read_text()
    assert "<details" in printed
    assert not re.search(r"<details(?![^>]*open)", printed)
    assert re.search(r"<details(?![^>]*open)", report.read_text())  # the page itself stays as it was


def test_nothing_is_left_beside_the_file_and_only_its_owner_reads_it(report: Path, stands_in) -> None:
    before = set(report.parent.iterdir())
    target = print_pdf(report, report.parent / "out.pdf")
    assert set(report.parent.iterdir()) - before == {target}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_values_of_a_name_are_not_mistaken_for_a_fold() -> None:
    assert pdf.unfold("&lt;details&gt; <details class=a><details open class=b>") == (
        "&lt;details&gt; <details open class=a><details open class=b>"
    )


def test_without_a_browser_the_command_says_what_to_install(report: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
    monkeypatch.setattr(pdf, "INSTALLED", ())
    report.unlink()
    assert main(["report", str(report.parent), "--pdf"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "needs Chromium, Google Chrome or Microsoft Edge" in told and "apt install chromium" in told
    assert not report.exists()  # refused before anything was written


def test_a_browser_that_fails_is_told_of(report: Path, monkeypatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "no display\n")
    monkeypatch.setattr(pdf, "find_browser", lambda: "browser")
    monkeypatch.setattr(pdf.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UsageError, match=r"did not print the report \(exit code 1\): no display"):
        print_pdf(report, report.with_suffix(".pdf"))
    assert not report.with_suffix(".pdf").exists()


def test_the_command_writes_both(make_named_run, stands_in, capsys) -> None:
    runs = [make_named_run(name)(batch_sizes=(8,), n_batches=2) for name in ("a", "b")]
    assert main(["report", *map(str, runs), "--pdf"]) == 0
    assert (runs[0] / "combined.html").is_file() and (runs[0] / "combined.pdf").is_file()
    assert "combined.pdf" in capsys.readouterr().out
