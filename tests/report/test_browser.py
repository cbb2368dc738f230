"""The report in a real browser, on a desk and on a phone."""

import json
from pathlib import Path

from PIL import Image

from lightleak.report import build_report


def test_a_report_fits_a_desk_and_a_phone(make_run, browser) -> None:
    attacks = ("tableak", "tableak_no_pooling", "inverting_gradients", "random")
    report = build_report(make_run(attacks=attacks, n_batches=3, epochs=4))
    for width, found in browser.measure(report).items():
        assert found["client"] == int(width)
        assert found["scroll"] <= found["client"], width
        assert found["outside"] == [], width
        assert width == "390" or not {*found["wide"]} - {"True and reconstructed rows"}, found["wide"]
        assert found["scripts"] == 0
        assert found["sections"] == 10
        assert len(found["drawn"]) == 6
        assert all(100 < drawn < int(width) for drawn in found["drawn"])


def test_hostile_and_long_names_neither_run_nor_overflow(make_run, browser) -> None:
    long = "a_name_without_any_space_" * 8
    folder = make_run(batch_sizes=(8,), n_batches=2, extra={"dataset": long, "target": long, "defense": long})
    raw = json.loads((folder / "results.json").read_text())
    for row in raw["rows"]:
        row["column_accuracy"] = {long: 0.9, "<script>alert(1)</script>": 0.4}
    (folder / "results.json").write_text(json.dumps(raw))
    for found in browser.measure(build_report(folder)).values():
        assert found["scroll"] <= found["client"]
        assert found["scripts"] == 0


def test_a_screenshot_shows_the_page(make_run, browser, tmp_path: Path) -> None:
    report = build_report(make_run(batch_sizes=(32,), n_batches=3))
    picture = tmp_path / "report.png"
    browser.run(report, "--window-size=1280,2000", f"--screenshot={picture}")
    with Image.open(picture) as image:
        assert image.size == (1280, 2000)
        # The first bar of the chart and the headline number are blue: the styles arrived.
        assert (0, 114, 178) in {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24)}
