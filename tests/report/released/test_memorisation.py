"""Nearness to training rows against held-out ones."""

import re

from lightleak.report.estimate import estimate
from lightleak.report.released.entries import Entry, Memorisation
from lightleak.report.released.memorisation import memory_section, pooled
from lightleak.report.released.topics import Topic


def entry(found: Memorisation | None) -> Entry:
    return Entry("run", "plgmi", "plgmi", memorisation=found)


ONE = Memorisation(0.070, 0.072, 0.55, 0.53, 0.57, 1000)
OTHER = Memorisation(0.080, 0.084, 0.51, 0.49, 0.53, 500)


def test_seeds_are_pooled_with_an_interval_over_them() -> None:
    assert pooled([]) is None and pooled([entry(None)]) is None
    assert pooled([entry(None), entry(ONE)]) == ONE
    found = pooled([entry(ONE), entry(OTHER)])
    expected = estimate([0.55, 0.51])
    assert found == Memorisation((0.070 + 0.080) / 2, 0.078, expected.mean, expected.low, expected.high, 1500)
    assert pooled([entry(Memorisation(None, None, None, None, None, 3))] * 2) == Memorisation(*[None] * 5, 6)


def test_attacks_and_baselines_stand_around_one_half() -> None:
    topics = [
        Topic("attack", "attack", False, (entry(ONE),)),
        Topic("nothing", "nothing", False, (entry(None),)),
        Topic("public", "public", True, (entry(OTHER),)),
    ]
    found = memory_section(topics)
    assert found is not None
    assert [(title, baseline) for title, baseline, _ in found.rows] == [("attack", False), ("public", True)]
    assert "attack: 55.0% (95% interval 53.0 to 57.0)" in found.drawing and "chance 50%" in found.drawing
    at = {label: float(x) for x, label in re.findall(r'x="([\d.]+)%"[^>]*class="tick"[^>]*>(\d+)%<', found.drawing)}
    line = re.search(r'x1="([\d.]+)%"[^>]*class="guess"', found.drawing)
    assert line and float(line[1]) == at["50"]
    assert memory_section([topics[1]]) is None
    bare = memory_section([Topic("a", "a", False, (entry(Memorisation(0.1, 0.2, None, None, None, None)),))])
    assert bare is not None and bare.drawing is None
