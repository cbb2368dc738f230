"""Text must be readable on every ground it stands on, in both colour schemes (WCAG 2.2, contrast at least 4.5)."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

CSS = files("lightleak.report").joinpath("templates/report.css").read_text(encoding="utf-8")
Colour = tuple[float, float, float]


def scheme(dark: bool) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    values = dict(re.findall(r"--([\w]+): ([^;]+);", blocks[0]))
    return values | (dict(re.findall(r"--([\w]+): ([^;]+);", blocks[1])) if dark else {})


def colour(text: str) -> Colour:
    if text.startswith("#"):
        return tuple(int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[return-value]
    return tuple(int(part) / 255 for part in text.split())  # type: ignore[return-value]


def over(front: Colour, alpha: float, back: Colour) -> Colour:
    return tuple(alpha * f + (1 - alpha) * b for f, b in zip(front, back, strict=True))  # type: ignore[return-value]


def contrast(first: Colour, second: Colour) -> float:
    def luminance(c: Colour) -> float:
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in c]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("front", ["ink", "muted", "s0"])
@pytest.mark.parametrize("back", ["paper", "soft"])
def test_text_is_readable(dark: bool, front: str, back: str) -> None:
    found = scheme(dark)
    assert contrast(colour(found[front]), colour(found[back])) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("tone", ["hit", "miss"])
def test_cells_are_readable_at_every_shade(dark: bool, tone: str) -> None:
    found = scheme(dark)
    shades = re.findall(r"\.shade[1-4] \{ background: rgb\(var\(--tone\) / ([\d.]+)\)", CSS)
    assert len(shades) == 4
    for alpha in shades:
        ground = over(colour(found[tone]), float(alpha), colour(found["paper"]))
        assert contrast(colour(found["ink"]), ground) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("series", ["s0", "s1", "s2", "s3", "s4", "s5", "edge"])
def test_marks_stand_out_from_the_page(dark: bool, series: str) -> None:
    found = scheme(dark)
    assert contrast(colour(found[series]), colour(found["paper"])) >= 3


RULES = re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", CSS, flags=re.DOTALL))
"""Selector and declarations of every rule, those inside media queries too."""


def named(kind: str) -> set[str]:
    """Variables that rules of the stylesheet set a property to."""
    pattern = rf"(?:^|[;\s]){kind}: (?:[\w.#%-]+ )*var\(--(\w+)\)"
    return {name for _, declared in RULES for name in re.findall(pattern, declared)}


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_that_a_rule_gives_to_text_is_readable_on_every_ground(dark: bool) -> None:
    found = scheme(dark)
    fronts, grounds = named("color"), named("background") - {"line"}  # the line shows as a gap between tiles
    assert {"ink", "muted", "s0"} <= fronts and {"paper", "soft"} <= grounds
    poor = [
        (front, ground)
        for front in fronts
        for ground in grounds
        if contrast(colour(found[front]), colour(found[ground])) < 4.5
    ]
    assert poor == []


def test_text_on_paper_is_readable() -> None:
    printed = dict(re.findall(r"--(\w+): (#\w{3,6})", CSS[CSS.index("@media print") :]))
    full = {
        name: value if len(value) == 7 else "#" + "".join(2 * digit for digit in value[1:])
        for name, value in printed.items()
    }
    for front in ("ink", "muted"):
        for ground in ("paper", "soft"):
            assert contrast(colour(full[front]), colour(full[ground])) >= 4.5


def test_text_in_charts_takes_one_of_these_colours() -> None:
    fills = {
        name
        for selector, declared in RULES
        if ".chart" in selector and ("text" in selector or "label" in selector or "value" in selector)
        for name in re.findall(r"fill: var\(--(\w+)\)", declared)
    }
    assert fills == {"ink", "muted"}


def test_no_rule_gives_text_a_colour_of_its_own() -> None:
    """Else the contrasts above would not cover it; a cell's mark has its tone only where it stands without a shade."""
    own = [
        (selector.strip(), value)
        for selector, declared in RULES
        for value in re.findall(r"(?:^|[;\s])color: ([^;]+)", declared)
        if not value.startswith(("var(--", "inherit", "rgb(var(--tone))")) and "@page" not in selector
    ]
    assert [rule for rule in own if "@bottom" not in rule[0]] == []


def test_every_class_of_the_style_sheet_is_used() -> None:
    folder = files("lightleak.report")
    sources = [path for path in Path(str(folder)).rglob("*") if path.suffix in (".py", ".j2")]
    source = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    classes = {name for selector, _ in RULES for name in re.findall(r"\.([a-z][\w-]*)", selector)}
    numbered = re.compile(r"(heat|shade|s)\d")
    unused = [one for one in classes if not re.search(rf"[\"'\s]{one}[\"'\s]", source) and not numbered.fullmatch(one)]
    assert unused == []
