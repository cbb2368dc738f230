"""A run on images shows its pictures; a redacted page shows none."""

import json
from pathlib import Path

import numpy as np

from lightleak.report import build_report
from lightleak.report.sections.pictures import FILE_NAME, picture_row, pictures_json

PIXELS = np.full((2, 1, 4, 4), 200, np.uint8)


def run_on_images(folder: Path) -> Path:
    row = {
        "kind": "released-model",
        "attack": "plgmi",
        "label": "plgmi",
        "class": "all",
        "dataset": "digits",
        "seed": 0,
    }
    row |= {"latent_search": "random", "attack_accuracy": 0.5, "evaluation_index": 0, "samples": 10}
    (folder / "results.json").write_text(json.dumps({"schema_version": 1, "rows": [row], "summary": []}))
    rows = [picture_row("made up", PIXELS, False), picture_row("nearest private image", PIXELS, True)]
    grid = {"target": "image_resnet", "attack": "plgmi", "search": "random", "classes": ["0", "<b>1"], "rows": rows}
    (folder / FILE_NAME).write_text(pictures_json([grid]))
    return folder


def test_every_picture_is_shown_with_its_class_and_nothing_else_may_be_loaded(tmp_path: Path) -> None:
    page = build_report(run_on_images(tmp_path)).read_text()
    assert page.count('<img src="data:image/png;base64,') == 4
    assert "nearest private image, class &lt;b&gt;1" in page and "<b>1" not in page
    assert "This file contains private data." in page
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page


def test_a_redacted_page_shows_no_picture(tmp_path: Path) -> None:
    page = build_report(run_on_images(tmp_path), redact=True).read_text()
    assert "<img" not in page and 'id="pictures"' not in page
