"""Norms with and without a property."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.report.blocks import Details, Panels, Table
from lightleak.report.read import Run
from lightleak.report.sections.norms import NormEntry, density_chart, norm_entries, norms_section

HOSTILE = '<script>alert("&")</script>'
DENSITIES = st.floats(0, 9).map(lambda value: round(value, 6))


def entry(**changes: Any) -> NormEntry:
    values: dict[str, Any] = {
        "run": "run", "dataset": "adult", "property_name": "sex=Male", "party": 1, "variant": "passive",
        "defense": "none", "kind": "AO", "norm": "l1", "epoch": 18, "seed": 0, "edges": (0.0, 1.0, 2.0),
        "having": (0.5, 0.5), "lacking": (0.25, 0.75), "distances": {"kl": 0.2, "js": 0.1, "bc": 0.9},
    }  # fmt: skip
    return NormEntry(**(values | changes))


def folds(*entries: NormEntry, first: str = "") -> list[Details]:
    section = norms_section(entries, first)
    assert section is not None
    return [block for block in section.blocks if isinstance(block, Details)]


def captions(fold: Details) -> list[str]:
    (panels,) = (block for block in fold.blocks if isinstance(block, Panels))
    return [re.sub("<.*?>", "", figure.caption).replace("&#39;", "'") for figure in panels.figures]


def lines(fold: Details) -> list[list[str]]:
    (table,) = (block for block in fold.blocks if isinstance(block, Table))
    return [[cell.text for cell in line.cells] for group in table.groups for line in group.lines]


def test_one_panel_for_each_kind_and_variant_in_their_order() -> None:
    (fold,) = folds(
        entry(variant="MR"), entry(kind="VG"), entry(kind="AO"), entry(kind="AO", norm="l2"), entry(kind="VO")
    )
    titles = ["AO, own output", "VO, the other's output", "VG, the other's gradient", "AO, own output · MR"]
    assert captions(fold) == [f"{title} · overlap (BC) 0.900" for title in titles]
    assert [line[:2] for line in lines(fold)][:2] == [["AO, own output", "L1"], ["AO, own output", "L2"]]


def test_distances_are_means_over_seeds_and_the_first_seed_is_drawn() -> None:
    (fold,) = folds(entry(seed=3), entry(seed=4, having=(0.0, 1.0), distances={"kl": 0.4, "js": 0.3}))
    assert lines(fold) == [["AO, own output", "L1", "0.3000", "0.2000", "0.9000", "2"]]
    panels, (alone,) = fold.blocks[0], folds(entry(seed=3))
    assert panels == alone.blocks[0]
    assert "seed 3" in str(fold.blocks[1])


def test_what_differs_is_said() -> None:
    (fold,) = folds(entry(), entry(epoch=3), entry(defense="noise 0.1"), entry(party=2))
    assert {line[0] for line in lines(fold)} == {
        "AO, own output · epoch 18, party 1, no defense", "AO, own output · epoch 3, party 1, no defense",
        "AO, own output · epoch 18, party 1, noise 0.1", "AO, own output · epoch 18, party 2, no defense",
    }  # fmt: skip


def test_the_property_of_the_summary_comes_first_and_is_unfolded() -> None:
    entries = [entry(), entry(property_name="race=White"), entry(dataset="bank", property_name="month=may")]
    assert [one.summary for one in folds(*entries)] == ["adult: sex=Male", "adult: race=White", "bank: month=may"]
    found = folds(*entries, first="month=may")
    assert found[0].summary == "bank: month=may" and [one.is_open for one in found] == [True, False, False]
    assert norms_section([]) is None


def test_another_norm_is_drawn_where_there_is_no_l1() -> None:
    (fold,) = folds(entry(norm="linf", distances={}))
    assert captions(fold) == ["AO, own output"]
    assert lines(fold) == [["AO, own output", "L∞", "–", "–", "–", "1"]]


def test_entries_are_read_and_damage_is_named(tmp_path: Path) -> None:
    run = Run("mine", tmp_path)
    assert norm_entries([run]) == []
    good = {"edges": [0, 1, 2], "with_property": [0.5, 0.5], "without_property": [0.2, 0.8]}
    for content, says in (
        ("nonsense", "expected JSON"),
        ("[]", "a list 'entries'"),
        (json.dumps({"schema_version": 2, "entries": []}), "schema_version must be 1, got 2"),
        (json.dumps({"schema_version": 1, "entries": [3]}), "entry 0: expected a mapping, got 3"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, 1]}]}), "got 2, 2 and 2"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, 0, 1]}]}), "edges must ascend"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, "a", 1]}]}), "entry 1: expected a number"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, 1, None]}]}), "finite numbers"),
    ):
        (tmp_path / "norms.json").write_text(content)
        with pytest.raises(UsageError, match=says):
            norm_entries([run])
    (tmp_path / "norms.json").write_text(
        json.dumps({"schema_version": 1, "entries": [good | {"distances": {"kl": None}, "adversary_party": 1}]})
    )
    (found,) = norm_entries([run])
    assert (found.run, found.edges, found.having, found.party) == ("mine", (0.0, 1.0, 2.0), (0.5, 0.5), 1)
    assert not found.distances


@given(st.lists(st.tuples(DENSITIES, DENSITIES), min_size=1, max_size=20), st.floats(-5, 5))
def test_densities_start_and_end_on_their_edges(values, start) -> None:
    edges = [start + 0.5 * i for i in range(len(values) + 1)]
    drawing = density_chart(HOSTILE, edges, [a for a, _ in values], [b for _, b in values])
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    for name in ("having", "lacking"):
        found = corners(drawing, name)
        assert found[0][0] == 0 and found[-1][0] == 100
        assert len(found) == 2 * len(values)
        assert all(base - 110 <= y <= base for _, y in found)
        assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert corners(drawing, "fill") == [(0, base), *corners(drawing, "having"), (100, base)]
    assert "<script" not in drawing


def test_the_higher_density_reaches_the_top_on_one_scale_for_both() -> None:
    drawing = density_chart("n", [0, 1, 2], [4.0, 1.0], [2.0, 0.0])
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    heights = {name: [(x, base - y) for x, y in corners(drawing, name)] for name in ("having", "lacking")}
    assert heights["having"] == [(0, 110), (50, 110), (50, 27.5), (100, 27.5)]
    assert heights["lacking"] == [(0, 55), (50, 55), (50, 0), (100, 0)]


def classed(drawing: str, name: str) -> list[ET.Element]:
    return [node for node in ET.fromstring(drawing).iter() if name in node.get("class", "").split()]


def corners(drawing: str, name: str) -> list[tuple[float, float]]:
    """Points of a line, as percentages along x and pixels from the top."""
    (found,) = classed(drawing, name)
    if found.tag == "line":
        return [(float(found.get(f"x{end}")[:-1]), float(found.get(f"y{end}"))) for end in (1, 2)]
    return [tuple(map(float, pair.split())) for pair in found.get("d")[1:].rstrip("Z").split("L")]
