"""The report of vertical runs in a real browser, on a desk and on a phone."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lightleak.report import build_report

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--virtual-time-budget=2000",
)  # fmt: skip
WIDTHS = (1280, 390)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian package: chromium)")

# A window is never narrower than 500 pixels, a frame is: both widths are measured in frames of one page.
MEASURE = """<!doctype html><body style="margin:0">%s<script>
onload = () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement, width = frame.clientWidth;
    for (const node of page.querySelectorAll("details")) node.open = true;
    const boxes = [...page.querySelectorAll("body *")].filter(node => !node.closest(".scroll, pre"));
    found[width] = {
      client: root.clientWidth,
      scroll: root.scrollWidth,
      outside: boxes.filter(node => {
        const box = node.getBoundingClientRect();
        return box.width && (box.right > width + 1 || box.left < -1);
      }).map(node => node.tagName + " " + node.textContent.trim().slice(0, 30)),
      scripts: page.scripts.length,
      sections: page.querySelectorAll("section").length,
      drawn: [...page.querySelectorAll("svg.chart")].map(node => node.getBoundingClientRect().width),
    };
  }
  document.body.dataset.found = JSON.stringify(found);
};
</script>"""


def chromium(tmp_path: Path, page: Path, *flags: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def measure(tmp_path: Path, report: Path) -> dict[str, Any]:
    """What a browser makes of the report at each width, with everything that can be folded unfolded."""
    text = report.read_text(encoding="utf-8").replace("&", "&amp;").replace('"', "&quot;")
    frames = "".join(
        f'<iframe srcdoc="{text}" style="border:0;width:{width}px;height:900px"></iframe>' for width in WIDTHS
    )
    page = tmp_path / "frames.html"
    page.write_text(MEASURE % frames, encoding="utf-8")
    dom = chromium(tmp_path, page, "--dump-dom")
    match = re.search(r'data-found="([^"]*)"', dom)
    assert match, "the browser did not finish"
    return json.loads(unescape(match[1]))


def test_a_report_fits_a_desk_and_a_phone(make_vertical, tmp_path: Path) -> None:
    report = build_report(make_vertical(defenses=("none", "r3elu epsilon 1.0", "withdraw ratio 0.5")))
    for width, found in measure(tmp_path, report).items():
        assert found["client"] == int(width)
        assert found["scroll"] <= found["client"], width
        assert found["outside"] == [], width
        assert found["scripts"] == 0
        assert found["sections"] == 9
        # Two properties: two charts of shares, two times two of defences, two times five of norms.
        assert len(found["drawn"]) == 16
        assert all(100 < drawn < int(width) for drawn in found["drawn"])


def test_hostile_and_long_names_neither_run_nor_overflow(make_vertical, tmp_path: Path) -> None:
    long = "a_name_without_any_space_" * 8
    folder = make_vertical(properties=("sex=Male",), seeds=(0, 1))
    for name in ("results.json", "norms.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("sex=Male", long).replace('"adult"', '"<script>alert(1)</script>"'))
    for found in measure(tmp_path, build_report(folder)).values():
        assert found["scroll"] <= found["client"]
        assert found["scripts"] == 0


def test_a_screenshot_shows_the_page(make_vertical, tmp_path: Path) -> None:
    report = build_report(make_vertical(properties=("sex=Male",)))
    picture = tmp_path / "report.png"
    chromium(tmp_path, report, "--window-size=1280,3000", f"--screenshot={picture}")
    with Image.open(picture) as image:
        assert image.size == (1280, 3000)
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24)}
        # The marks of C1 and C2: the styles arrived.
        assert {(0, 114, 178), (213, 94, 0)} <= colours
