"""The report of a frontier in a real browser, on a desk and on a phone."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from PIL import Image

from lightleak.report import build_report

WIDTHS = (1280, 820, 390)
LONG = "What the registry of chronic diseases and its three partners pay for each way to defend what they send"
LABELS = """<!doctype html><body style="margin:0">%s<script>
onload = () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument;
    const boxes = selector => [...page.querySelectorAll(selector)].map(node => {
      const box = node.getBoundingClientRect();
      return [box.left, box.top, box.right, box.bottom, node.textContent];
    }).filter(box => box[2] > box[0]);
    found[frame.clientWidth] = {labels: boxes("svg.chart text"), marks: boxes("svg.chart .point > .mark")};
  }
  document.body.dataset.found = JSON.stringify(found);
};
</script>"""


def overlap(first, second, by: float) -> bool:
    return (
        min(first[2], second[2]) - max(first[0], second[0]) > by
        and min(first[3], second[3]) - max(first[1], second[1]) > by
    )


def test_a_report_fits_a_desk_and_a_phone(make_frontier, browser) -> None:
    report = build_report(make_frontier(attacks=("tableak", "inverting_gradients", "random")))
    for width, found in browser.measure(report, unfold=True).items():
        assert found["client"] == int(width)
        assert found["scroll"] <= found["client"], width
        assert found["outside"] == [], width
        assert found["clipped"] == [] and found["wide"] == [], width
        assert found["scripts"] == 0
        assert found["sections"] == 5
        assert len(found["drawn"]) == 1
        assert all(100 < drawn < int(width) for drawn in found["drawn"])


def test_labels_collide_at_no_width(make_frontier, browser, tmp_path: Path) -> None:
    text = build_report(make_frontier()).read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    frames = "".join(
        f'<iframe srcdoc="{text}" style="border:0;width:{width}px;height:900px"></iframe>' for width in WIDTHS
    )
    page = tmp_path / "labels.html"
    page.write_text(LABELS % frames, encoding="utf-8")
    match = re.search(r'data-found="([^"]*)"', browser.run(page, "--dump-dom"))
    assert match, "the browser did not finish"
    for width, found in json.loads(unescape(match[1])).items():
        labels, marks = found["labels"], found["marks"]
        assert len(marks) == 19
        assert len(labels) >= 15, width
        # A text's box has room above and below its letters.
        touching = [(a[4], b[4]) for i, a in enumerate(labels) for b in labels[i + 1 :] if overlap(a, b, 3)]
        assert touching == [], width
        assert [label[4] for label in labels for mark in marks if overlap(label, mark, 3)] == [], width


def test_a_screenshot_shows_the_page(make_frontier, browser, tmp_path: Path) -> None:
    report = build_report(make_frontier(curves=("none", "gaussian_noise", "laplacian_noise")))
    picture = tmp_path / "report.png"
    browser.run(report, "--window-size=1280,4500", f"--screenshot={picture}")
    with Image.open(picture) as image:
        assert image.size == (1280, 4500)
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24)}
        # The marks of the two defenses: the styles arrived.
        assert {(0, 114, 178), (213, 94, 0)} <= colours


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"trainings": 1, "clients": 1},
        {"changed": dict.fromkeys(("gaussian_noise", "laplacian_noise", "dp_sgd"), (0.55, 0.846))},
    ],
    ids=["full", "single", "rivals"],
)
def test_the_summary_prints_on_one_sheet(make_frontier, browser, options) -> None:
    folder = make_frontier(**options)
    (folder / "config.yaml").write_text(json.dumps({"kind": "defense-frontier", "title": LONG}))
    assert browser.sheets(build_report(folder)) == 1
