"""The report of vertical runs in a real browser, on a desk and on a phone."""

from pathlib import Path

import pytest
from PIL import Image

from lightleak.report import build_report

LONG = "What the registry of chronic diseases and its three partners tell each other while they train one model"
DEFENSES = (
    "none", "laplace scale 0.01", "laplace scale 0.1", "r3elu epsilon 1.0", "r3elu epsilon 10.0", "withdraw ratio 0.1",
    "withdraw ratio 0.5",
)  # fmt: skip


def test_a_report_fits_a_desk_and_a_phone(make_vertical, browser) -> None:
    report = build_report(make_vertical(defenses=("none", "r3elu epsilon 1.0", "withdraw ratio 0.5")))
    for width, found in browser.measure(report, unfold=True).items():
        assert found["client"] == int(width)
        assert found["scroll"] <= found["client"], width
        assert found["outside"] == [] and (width == "390" or not found["wide"]), width
        assert found["scripts"] == 0
        assert found["sections"] == 10
        # Two properties: two charts of shares, two times two of defenses, two times five of norms.
        assert len(found["drawn"]) == 17
        assert all(100 < drawn < int(width) for drawn in found["drawn"])


def test_hostile_and_long_names_neither_run_nor_overflow(make_vertical, browser) -> None:
    long = "a_name_without_any_space_" * 8
    folder = make_vertical(properties=("sex=Male",), seeds=(0, 1))
    for name in ("results.json", "norms.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("sex=Male", long).replace('"adult"', '"<script>alert(1)</script>"'))
    for found in browser.measure(build_report(folder), unfold=True).values():
        assert found["scroll"] <= found["client"]
        assert found["scripts"] == 0


def test_a_screenshot_shows_the_page(make_vertical, browser, tmp_path: Path) -> None:
    report = build_report(make_vertical(properties=("sex=Male",)))
    picture = tmp_path / "report.png"
    browser.run(report, "--window-size=1280,5000", f"--screenshot={picture}")
    with Image.open(picture) as image:
        assert image.size == (1280, 5000)
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24)}
        # The marks of C1 and C2: the styles arrived.
        assert {(0, 114, 178), (213, 94, 0)} <= colours


@pytest.mark.parametrize(("defenses", "redact"), [(("none",), False), (DEFENSES, False), (DEFENSES, True)])
def test_the_summary_prints_on_one_sheet(make_vertical, browser, defenses: tuple[str, ...], redact: bool) -> None:
    config = {"kind": "vertical", "title": LONG}
    properties = ("sex=Male", "race=White", "marital-status=Married-civ-spouse")
    folder = make_vertical(properties=properties, defenses=defenses, norms=False, config=config)
    assert browser.sheets(build_report(folder, redact=redact)) == 1
