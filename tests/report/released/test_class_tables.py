"""Single classes and single columns."""

import re

import pytest

from lightleak.report.released.class_tables import (
    HEAT_BOUNDS,
    class_accuracy,
    heat_legend,
    heat_maps,
    lowest_columns,
    pseudo_labels,
    shade,
)
from lightleak.report.released.comparison import compare
from lightleak.report.released.entries import ClassShapes, Entry, LowColumn, PseudoLabel
from lightleak.report.released.result import parse_result
from lightleak.report.released.topics import Topic


def topic(*entries: Entry, title: str = "attack", is_baseline: bool = False) -> Topic:
    return Topic(title, title, is_baseline, entries)


def entry(**parts) -> Entry:
    return Entry("run", "plgmi", "plgmi", **parts)


def test_classes_stand_beside_real_rows() -> None:
    rows = [
        {
            "attack": "plgmi",
            "class": name,
            "evaluation_index": k,
            "attack_accuracy": made + 0.01 * k,
            "real_rows_accuracy_class": real,
        }
        for name, made, real in (("a", 0.5, 0.6), ("b", 0.9, 0.3), ("c", 0.7, None))
        for k in (0, 2)
    ]
    ((group,),) = (one.groups for one in compare([parse_result(row, "run", "row") for row in rows]))
    found = class_accuracy(group)
    assert found is not None
    assert (found.n_classes, found.n_above, found.has_real) == (3, 1, True)
    assert re.findall(r"(\w): made-up rows ([\d.]+%)", found.drawing) == [
        ("b", "91.0%"),
        ("c", "71.0%"),
        ("a", "51.0%"),
    ]
    assert "b: real rows 30.0%" in found.drawing and "+61.0" in found.drawing and "c: real rows" not in found.drawing
    bare = [{name: row[name] for name in row if name != "real_rows_accuracy_class"} for row in rows]
    ((group,),) = (one.groups for one in compare([parse_result(row, "run", "row") for row in bare]))
    assert class_accuracy(group).n_above is None


def shapes(**classes: dict[str, float]) -> Entry:
    return entry(class_shapes=ClassShapes(("number", "flag"), {"number": 1, "flag": 3}, classes))


def test_a_heat_map_is_a_mean_over_seeds_classes_and_columns() -> None:
    first = shapes(a={"number": 0.5, "flag": 0.9}, b={"number": 0.7, "flag": 0.7})
    second = shapes(a={"number": 0.7, "flag": 0.9})
    (found,) = heat_maps([topic(entry()), topic(first, second)])
    assert found.groups == {"number": 1, "flag": 3}
    assert [row.title for row in found.rows] == ["a", "b"]
    assert found.rows[0].scores == pytest.approx({"number": 0.6, "flag": 0.9})
    assert found.rows[0].mean == pytest.approx((0.6 + 3 * 0.9) / 4)  # over columns, not over kinds
    assert found.foot.scores == pytest.approx({"number": 0.65, "flag": 0.8})
    assert found.foot.mean == pytest.approx((0.65 + 3 * 0.8) / 4)
    sizeless = entry(class_shapes=ClassShapes(("x", "y"), {"x": 9}, {"a": {"x": 0.2, "y": 0.4}, "b": {"x": 0.3}}))
    (found,) = heat_maps([topic(sizeless)])
    assert found.groups == {"x": 9, "y": None}
    assert [row.mean for row in found.rows] == pytest.approx([0.3, 0.3])


def test_each_shade_is_in_the_legend() -> None:
    words = dict(heat_legend())
    assert list(words) == list(range(len(HEAT_BOUNDS) + 1))
    assert [words[shade(score)] for score in (0.1, 0.5, 0.6499, 0.79, 0.9, 0.95, 1.0)] == [
        "below 50%", "50 to 60%", "60 to 70%", "70 to 80%", "90 to 95%", "95% and above", "95% and above",
    ]  # fmt: skip


def test_the_lowest_columns_are_those_of_the_attack() -> None:
    low = (LowColumn("b", "boolean", 0.8, "TVComplement"), LowColumn("a", "discrete", 0.6, "KSComplement"))
    full = entry(lowest=low, column_shapes={"b": 0.8, "a": 0.6, "c": 0.9}, seed=3)
    (found,) = lowest_columns([topic(entry(), full), topic(full, is_baseline=True)])
    assert (found.n, found.mean, found.seed) == (2, pytest.approx(0.7), "3")
    assert found.every == (("a", 0.6), ("b", 0.8), ("c", 0.9))
    labels = re.findall(r">([ab] \(\w+\))<", found.drawing)
    assert labels == ["a (discrete)", "b (boolean)"]
    assert [found.drawing.index(f"bar {style}") for style in ("s0", "s1")] == sorted(
        found.drawing.index(f"bar {style}") for style in ("s0", "s1")
    )


def test_one_sorting_of_the_public_rows_stands_once() -> None:
    rows = (
        PseudoLabel("a", 90, 10, None),
        PseudoLabel("b", 2, 0, "2 rows are too few"),
        PseudoLabel("c", 5, None, None),
    )
    other = (PseudoLabel("a", 91, 10, None),)
    found = pseudo_labels(
        [
            topic(entry(pseudo_labels=rows)),
            topic(entry(pseudo_labels=rows)),
            topic(entry(pseudo_labels=other), title="x"),
        ]
    )
    assert [(one.title, one.used, len(one.excluded)) for one in found] == [("attack", 10, 1), ("x", 10, 0)]
    assert found[0].excluded[0].class_name == "b"
