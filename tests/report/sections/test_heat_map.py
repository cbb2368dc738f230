"""The numbers of a heat map are readable on every shade, in both color schemes (WCAG 2.2, contrast at least 4.5)."""

import re
from importlib.resources import files

import pytest

from lightleak.core.results import ReleasedRow
from lightleak.report.kinds.released_entries import ClassScores, ClassShapes, Entry
from lightleak.report.kinds.released_scores import Attack
from lightleak.report.page import fill
from lightleak.report.sections.inversion import HEAT_BOUNDS, heat_map, shade

CSS = files("lightleak.report").joinpath("templates/report.css").read_text(encoding="utf-8")
LIGHT, DARK = (dict(re.findall(r"--(\w+): ([^;]+);", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.S)[:2])


def parts(colour: str) -> list[float]:
    named = [int(colour[i : i + 2], 16) for i in (1, 3, 5)] if colour.startswith("#") else map(int, colour.split())
    return [part / 255 for part in named]


def luminance(colour: list[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [LIGHT, LIGHT | DARK], ids=["light", "dark"])
def test_numbers_are_readable_on_every_shade(colours: dict[str, str]) -> None:
    alphas = [float(alpha) for alpha in re.findall(r"\.heat\d \{ background: rgb\(var\(--hit\) / ([\d.]+)\)", CSS)]
    assert len(alphas) == len(HEAT_BOUNDS) + 1
    assert alphas == sorted(set(alphas))  # the deeper, the higher the score
    ink, paper, tone = (parts(colours[name]) for name in ("ink", "paper", "hit"))
    for alpha in alphas:
        ground = [alpha * front + (1 - alpha) * back for front, back in zip(tone, paper, strict=True)]
        light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_each_shade_is_in_the_legend() -> None:
    drawn = fill("inversion", "heat", (0.0, *HEAT_BOUNDS))
    marks = dict(re.findall(r'<span class="swatch heat(\d)"></span>\s*(.*?)</li>', drawn))
    words = [marks[str(shade(score))] for score in (0.1, 0.5, 0.6499, 0.79, 0.9, 1.0)]
    assert words == ["below 50%", "50 to 60%", "60 to 70%", "70 to 80%", "90 to 95%", "95% and above"]
    assert len(marks) == len(HEAT_BOUNDS) + 1


def test_every_share_is_printed_on_its_shade() -> None:
    classes = ClassScores("a", {"x": 0.42}), ClassScores("b", {"x": 0.96, "y": 0.9}), ClassScores("c")
    entry = Entry("plgmi", class_shapes=ClassShapes(("x", "y"), classes=classes))
    drawn = heat_map(Attack((ReleasedRow(attack="plgmi"),), entries=(entry,)))
    assert drawn.head == ("Class", "x", "y", "mean")
    found = [[(cell.text, cell.css) for cell in line.cells[1:]] for group in drawn.groups for line in group.lines]
    assert found == [
        [("42.0", "heat heat0"), ("–", "heat heat0"), ("42.0", "heat heat0")],
        [("96.0", "heat heat6"), ("90.0", "heat heat5"), ("93.0", "heat heat5")],
        [("–", "heat heat0"), ("–", "heat heat0"), ("–", "heat heat0")],
        [("69.0", "heat heat2"), ("90.0", "heat heat5"), ("79.5", "heat heat3")],
    ]
    assert drawn.groups[-1].lines[0].css == "foot"
