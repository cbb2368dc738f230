"""The heat map's numbers must be readable on every shade, in both colour schemes (WCAG 2.2, contrast at least 4.5)."""

import re
from importlib.resources import files

import pytest

from lightleak.report.released.class_tables import HEAT_BOUNDS

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
