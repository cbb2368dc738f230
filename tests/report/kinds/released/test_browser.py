"""The report of released-model runs in a real browser, on a desk and on a phone."""

import json

import pytest
from PIL import Image

from lightleak.report import build_report

LONG = "What the registry of chronic diseases and its three partners tell each other while they train one model"


def test_a_report_fits_a_desk_and_a_phone(make_released, browser) -> None:
    report = build_report(make_released(searches=("random", "gradient")))
    for width, found in browser.measure(report, unfold=True).items():
        assert found["client"] == int(width)
        assert found["scroll"] <= found["client"], width
        assert found["outside"] == [] and (width == "390" or not found["wide"]), width
        assert found["scripts"] == 0
        assert found["sections"] == 13
        # Accuracies, classes, memorisation; lowest columns of both searches; four losses of two generators.
        assert len(found["drawn"]) == 1 + 3 + 2 + 8
        assert all(100 < drawn < int(width) for drawn in found["drawn"])


def test_hostile_and_long_names_neither_run_nor_overflow(make_released, browser) -> None:
    long, hostile = "a_name_without_any_space_" * 8, "<script>alert(1)</script>"
    folder = make_released(evaluations=2, settings=("0", "2"))
    for name in ("results.json", "inversion.json"):
        text = (folder / name).read_text()
        for part in ("diabetes130", "428", "num_medications", "race", "mlp-2048-1024-512-256", "Caucasian"):
            text = text.replace(f'"{part}"', json.dumps(long + part))
        for part in ("414", "num_procedures", "gandalf", "AfricanAmerican"):
            text = text.replace(f'"{part}"', json.dumps(hostile + part))
        (folder / name).write_text(text)
    for found in browser.measure(build_report(folder), unfold=True).values():
        assert found["scroll"] <= found["client"]
        assert found["scripts"] == 0


def test_a_screenshot_shows_the_page(make_released, browser, tmp_path) -> None:
    report = build_report(make_released(evaluations=2))
    picture = tmp_path / "report.png"
    browser.run(report, "--window-size=1280,7000", f"--screenshot={picture}")
    with Image.open(picture) as image:
        assert image.size == (1280, 7000)
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24)}
        # The mark of the attack, and the deepest shade of the heat map: 0.43 of the blue on white.
        assert {(0, 114, 178), tuple(round(255 - 0.43 * (255 - part)) for part in (0, 114, 178))} <= colours


@pytest.mark.parametrize("settings", [("2",), tuple("01234567")])
def test_the_summary_prints_on_one_sheet(make_released, browser, settings: tuple[str, ...]) -> None:
    config = {"kind": "released-model", "title": LONG}
    folder = make_released(settings=settings, seeds=(0, 1), evaluations=2, searches=("random", "tpe"), config=config)
    assert browser.sheets(build_report(folder)) == 1


def test_on_paper_nothing_is_cut_off_or_wider_than_the_sheet(make_released, browser, tmp_path) -> None:
    """Else a table is printed over what follows, or the whole print becomes smaller."""
    folder = make_released(evaluations=2)
    raw = json.loads((folder / "inversion.json").read_text())
    for pair in (pair for entry in raw["entries"] for pair in entry["nearest"]):
        pair["private"] |= {f"number_of_visits_{k}": 1 for k in range(40)}
        pair["reconstructed"] |= {f"number_of_visits_{k}": 23 for k in range(40)}
    (folder / "inversion.json").write_text(json.dumps(raw))
    text = build_report(folder).read_text().replace("@media print", "@media all")
    paper, wide = tmp_path / "paper.html", tmp_path / "wide.html"
    paper.write_text(text.replace('<section id="rows"', '<section id="rows" hidden'))
    wide.write_text(text.replace('class="scroll', 'class="unrolled'))
    (found,) = browser.measure(paper, unfold=True, widths=(680,)).values()
    assert found["outside"] == [] and found["clipped"] == []
    (found,) = browser.measure(wide, unfold=True, widths=(1032,)).values()  # the rows lie on a sheet of their own
    assert found["scroll"] <= 1032
