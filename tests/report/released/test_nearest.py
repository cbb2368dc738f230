"""The closest private and made-up rows side by side."""

from typing import Any

import pytest

from lightleak.report.released.entries import Entry, Nearest
from lightleak.report.released.nearest import Pairing, nearest_section
from lightleak.report.released.topics import Topic


def topic(*pairs: Nearest, is_baseline: bool = False, title: str = "attack") -> Topic:
    return Topic(title, title, is_baseline, (Entry("run", "plgmi", "plgmi", seed=4, nearest=pairs),))


def pair(name: str, distance: float | None, private: dict[str, Any], made: dict[str, Any]) -> Nearest:
    return Nearest(name, distance, made, private)


ROWS = (
    pair("x", 0.2, {"bmi": 20.5, "n": 3, "race": "A", "flag": "no"}, {"bmi": 19.25, "n": 5, "race": "A", "flag": "no"}),
    pair("y", 0.1, {"bmi": 30.0, "n": 1, "race": "A", "flag": "yes"}, {"bmi": 30, "n": 1, "race": "B", "flag": "yes"}),
    pair("z", None, {"bmi": 1, "n": 1, "race": "A", "flag": "no"}, {"bmi": 1, "n": 1, "race": "A", "flag": "no"}),
)


def test_numbers_show_their_difference_and_categories_whether_they_agree() -> None:
    found = nearest_section([topic(*ROWS)])
    assert found is not None
    assert (found.columns, found.same, found.n_equal, found.seed) == (("bmi", "n", "race"), ("flag",), 1, "4")
    assert [row.class_name for row in found.rows] == ["y", "x", "z"]  # the closest first, without a distance last
    assert found.rows[0].cells == (Pairing("30", "30", True), Pairing("1", "1", True), Pairing("A", "B", False))
    assert found.rows[1].cells == (
        Pairing("20.5", "19.25", False, "−1.25"), Pairing("3", "5", False, "+2"), Pairing("A", "A", True),
    )  # fmt: skip
    assert found.mean == pytest.approx(0.15)


def test_what_one_row_lacks_is_not_compared() -> None:
    found = nearest_section([topic(pair("x", 0.1, {"a": 1, "b": None}, {"b": 2, "c": "q"}))])
    assert found is not None
    assert found.columns == ("a", "b", "c") and found.n_equal == 0
    assert found.rows[0].cells == (Pairing("1", None, None), Pairing(None, "2", None), Pairing(None, "q", None))


def test_baselines_give_their_distance_but_no_row() -> None:
    far = pair("x", 0.5, {"a": 1}, {"a": 2})
    baselines = [topic(far, far, is_baseline=True, title="public"), topic(is_baseline=True, title="none")]
    found = nearest_section([topic(), *baselines, topic(*ROWS, title="later")])
    assert found is not None
    assert (found.title, found.others) == ("later", (("public", 0.5),))
    assert nearest_section(baselines) is None
    assert nearest_section([topic(pair("x", None, {"a": 1}, {"a": 1}))]).mean is None
