"""Norms with and without a property."""

from typing import Any

import pytest

from lightleak.report.vertical.distributions import norm_sections
from lightleak.report.vertical.norms import NormEntry


def entry(**changes: Any) -> NormEntry:
    values: dict[str, Any] = {
        "run": "run", "dataset": "adult", "property_name": "sex=Male", "party": 1, "variant": "passive",
        "defense": "none", "kind": "AO", "norm": "l1", "epoch": 18, "seed": 0, "edges": (0.0, 1.0, 2.0),
        "having": (0.5, 0.5), "lacking": (0.25, 0.75), "distances": {"kl": 0.2, "js": 0.1, "bc": 0.9},
    }  # fmt: skip
    return NormEntry(**(values | changes))


def test_one_panel_for_each_kind_and_variant_in_their_order() -> None:
    entries = [
        entry(variant="MR"), entry(kind="VG"), entry(kind="AO"), entry(kind="AO", norm="l2"), entry(kind="VO"),
    ]  # fmt: skip
    (section,) = norm_sections(entries)
    assert [panel.title for panel in section.panels] == [
        "AO, own output", "VO, the other's output", "VG, the other's gradient", "AO, own output · MR",
    ]  # fmt: skip
    assert [(row.title, row.norm) for row in section.rows][:2] == [("AO, own output", "L1"), ("AO, own output", "L2")]
    assert section.panels[0].note == "overlap (BC) 0.900"


def test_distances_are_means_over_seeds_and_the_first_seed_is_drawn() -> None:
    entries = [entry(seed=3), entry(seed=4, having=(0.0, 1.0), distances={"kl": 0.4, "js": 0.3})]
    (section,) = norm_sections(entries)
    (row,), (panel,) = section.rows, section.panels
    assert row.distances["kl"] and row.distances["kl"].mean == pytest.approx(0.3)
    assert row.distances["bc"] and row.distances["bc"].n == 1
    assert (row.n_seeds, section.seed) == (2, "3")
    assert panel.drawing == norm_sections([entry(seed=3)])[0].panels[0].drawing


def test_what_differs_is_said() -> None:
    (section,) = norm_sections([entry(), entry(epoch=3), entry(defense="noise 0.1"), entry(party=2)])
    assert {panel.title for panel in section.panels} == {
        "AO, own output · epoch 18, party 1, no defence", "AO, own output · epoch 3, party 1, no defence",
        "AO, own output · epoch 18, party 1, noise 0.1", "AO, own output · epoch 18, party 2, no defence",
    }  # fmt: skip


def test_the_property_of_the_headline_comes_first() -> None:
    entries = [entry(), entry(property_name="race=White"), entry(dataset="bank", property_name="month=may")]
    assert [one.title for one in norm_sections(entries)] == [
        "adult: sex=Male", "adult: race=White", "bank: month=may",
    ]  # fmt: skip
    assert norm_sections(entries, "month=may")[0].title == "bank: month=may"
    assert norm_sections([]) == ()


def test_another_norm_is_drawn_where_there_is_no_l1() -> None:
    (section,) = norm_sections([entry(norm="linf", distances={})])
    assert len(section.panels) == 1 and section.panels[0].note == ""
    assert section.rows[0].norm == "L∞" and section.rows[0].distances["kl"] is None
