import json
import stat
from pathlib import Path

import pandas as pd
import pytest

from lightleak.report import build_report

ATTACKS = ("tableak", "audit_max", "random")
SECRETS = ("secret-truth", "secret-guess", "77777")


def planted(folder: Path) -> Path:
    """Markers in the place of every true and reconstructed value."""
    for file in (folder / "reconstructions").glob("*.csv"):
        cells = pd.read_csv(file, dtype=str, keep_default_na=False)
        cells["true"], cells["reconstructed"] = "secret-truth", "secret-guess"
        cells.loc[cells.index[::3], ["true", "reconstructed"]] = "77777"
        cells.to_csv(file, index=False)
    return folder


def test_before_and_after_stand_on_one_page(plain, defended, outline, tmp_path: Path) -> None:
    first = plain(0.85, epochs=2)
    page = outline(build_report([first, defended(first, accuracy=0.80)], tmp_path / "both.html").read_text())
    assert page.ids[:5] == ["summary", "risk", "change", "tested", "what"]
    for words in (
        "In plain language",
        "Noise of standard deviation 0.01 (noisy) against no defense (plain)",
        "defense.options.scale not set 0.01",
        "Whoever runs the server",
        "6 pairs",
        "About one in 20 of these intervals",
        "on every pair",  # guessing
    ):
        assert words in page.text, words
    accuracy = next(row for row in page.rows if row[0] == "Accuracy")
    assert accuracy[1].startswith("85.0%") and accuracy[2].startswith("80.0%") and accuracy[3].startswith("−5.0")


def test_the_share_of_the_commonest_label_stands_beside_the_accuracies(
    plain, defended, outline, tmp_path: Path
) -> None:
    first = plain(0.68, majority=0.672)
    page = outline(build_report([first, defended(first, accuracy=0.68)], tmp_path / "both.html").read_text())
    (row,) = [row for row in page.rows if row[0] == "Always the commonest label"]
    assert row[1:] == ["67.2%", "–", "–"]
    assert "learned no more than the commonest outcome yet" in page.text
    first = plain(0.85)
    page = outline(build_report([first, defended(first, name="b")], tmp_path / "both.html").read_text())
    assert "commonest" not in page.text


def test_the_summary_stands_first(plain, page_of) -> None:
    page = page_of(plain())
    assert page.ids[0] == "summary"
    assert page.text.index("In plain language") < page.text.index("over guessing")
    assert "change" not in page.ids


def test_redaction_leaves_no_value_in_a_comparison(plain, defended, tmp_path: Path) -> None:
    first = planted(plain(attacks=("tableak", "audit_max", "random"), epochs=2))
    runs = [first, planted(defended(first))]
    shown = build_report(runs, tmp_path / "shown.html").read_text()
    assert all(secret in shown for secret in SECRETS)
    hidden = build_report(runs, tmp_path / "hidden.html", redact=True).read_text()
    assert not any(secret in hidden for secret in SECRETS)
    assert "Before and after" in hidden and "6 pairs" in hidden


def test_several_runs_go_into_the_first_folder_and_leave_its_own_report(plain, defended) -> None:
    first = plain()
    own = build_report(first)
    text = own.read_text()
    both = build_report([first, defended(first)])
    assert both == first / "combined.html"
    assert stat.S_IMODE(both.stat().st_mode) == 0o600
    assert own.read_text() == text


def test_hostile_settings_are_text(plain, defended, outline, tmp_path: Path) -> None:
    first = plain()
    after = defended(first)
    (after / "config.yaml").write_text('defense: {name: "<script>alert(1)</script>"}\n"<img src=x>": 1\n')
    raw = json.loads((after / "results.json").read_text())
    for row in raw["rows"]:
        row["defense"] = "<script>alert(2)</script>"
    (after / "results.json").write_text(json.dumps(raw))
    page = outline(build_report([first, after], tmp_path / "both.html").read_text())
    assert not {"script", "img"} & set(page.tags)
    assert "<script>alert(2)</script>" in page.text


def test_three_runs_are_each_compared_with_the_undefended(plain, defended, outline, tmp_path: Path) -> None:
    first = plain()
    runs = [defended(first, 0.5, "some"), first, defended(first, 0.2, "much")]
    page = outline(build_report(runs, tmp_path / "all.html").read_text())
    for name in ("some", "much"):
        assert f"Noise of standard deviation 0.01 ({name}) against no defense (plain)" in page.text


def test_both_widths_show_it_without_sideways_scrolling(plain, defended, browser, tmp_path: Path) -> None:
    first = plain(0.85, attacks=("tableak", "audit_max", "random"), batch_sizes=(8, 32), epochs=2)
    report = build_report([first, defended(first)], tmp_path / "both.html")
    for width, found in browser.measure(report, unfold=True).items():
        assert found["scroll"] <= found["client"] == int(width)
        assert found["outside"] == [], width
        assert not set(found["wide"]) & {"Records at risk", "What it cost", "What changed for each attack"}, width


SHEET = (680, 1035)
"""What A4 (210 x 297 mm at 96 dots to the inch) leaves for text on the first page, in pixels."""


def on_paper(report: Path) -> Path:
    """The rules for paper on a screen, without boxes that scroll; the rows have a wide sheet of their own."""
    paper = report.with_name("paper.html")
    text = report.read_text().replace("@media print", "@media all").replace('class="scroll', 'class="unrolled')
    paper.write_text(text.replace('<section id="rows"', '<section id="rows" hidden'))
    return paper


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_nothing_is_wider_than_the_sheet_and_the_summary_is_one(
    plain, defended, browser, tmp_path: Path, runs: int
) -> None:
    weak = {"options": {"steps": 50, "restarts": 5, "tableak": {"steps": 50, "restarts": 5}}}
    first = plain(0.85, majority=0.8, attacks=ATTACKS, batch_sizes=(8, 32), epochs=2, extra=weak)
    folders = [first, defended(first), defended(first, 0.2, "much_noise")][:runs]
    paper = on_paper(build_report(folders, tmp_path / "all.html"))
    assert "50 steps in place of 1500" in paper.read_text()
    found = browser.measure(paper, unfold=True, widths=SHEET[:1])[str(SHEET[0])]
    assert found["outside"] == []
    assert found["scroll"] <= SHEET[0]
    assert found["bottoms"]["summary"] <= SHEET[1]


@pytest.mark.parametrize("runs", [1, 8])
def test_the_summary_of_few_and_of_many_runs_prints_on_one_sheet(
    plain, defended, browser, tmp_path: Path, runs: int
) -> None:
    weak = {"options": {"steps": 50, "restarts": 5, "tableak": {"steps": 50, "restarts": 5}}}
    first = plain(0.85, majority=0.8, attacks=ATTACKS, batch_sizes=(8, 32), n_batches=3, extra=weak)
    folders = [first, *(defended(first, kept / 10, f"much_noise_{kept}") for kept in range(1, runs))]
    assert browser.sheets(build_report(folders, tmp_path / "all.html")) == 1
