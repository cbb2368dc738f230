"""Rows of results.json of vertical runs."""

import math

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.vertical.result import PropertyResult, Setting, parse_result

ROW = {
    "kind": "vertical", "dataset": "adult", "target": "split-32-16-16", "attack": "provfl_b", "variant": "passive",
    "adversary": "C1", "property": "sex=Male", "defense": "withdraw ratio 0.5", "defense_strength": 0.5, "seed": 3,
    "epoch": 18, "true_fraction": 0.66, "estimated_fraction": 0.62, "low": 0.58, "high": 0.65, "prior": 0.5,
    "auc": 0.9, "accuracy": 0.85, "seconds": 1.5, "warnings": ["odd"], "threat_model": "Knows little.",
    "options": {"queries": 100}, "by_kind": {"VG": 0.6, "AO": 0.7, "XX": 0.5},
    "trained_fraction": 0.49, "own_columns_error": 0.1,
}  # fmt: skip


def test_every_field_is_read() -> None:
    found = parse_result(ROW, "run", "row 0")
    assert found == PropertyResult(
        run="run", setting=Setting("adult", "split-32-16-16", 18, "withdraw ratio 0.5"), attack="provfl_b",
        variant="passive", adversary="C1", property_name="sex=Male", seed=3, defense_strength=0.5, true=0.66,
        trained=0.49, estimated=0.62, unaware=0.62, own_error=0.1, low=0.58, high=0.65, prior=0.5,
        by_kind={"AO": 0.7, "VG": 0.6}, auc=0.9, accuracy=0.85,
        seconds=1.5, warnings=("odd",), threat_model="Knows little.", options={"queries": "100"},
    )  # fmt: skip


def test_errors_follow_from_the_shares() -> None:
    found = parse_result(ROW, "run", "row 0")
    assert found.error == pytest.approx(0.04)
    assert found.unaware_error == pytest.approx(0.04) and found.trained_error == pytest.approx(0.13)
    assert found.learned == pytest.approx(0.06)
    assert found.error_of("AO") == pytest.approx(0.04) and found.error_of("AG") is None
    assert found.covered is False
    assert parse_result(ROW | {"high": 0.66}, "run", "row 0").covered is True


def test_who_knows_the_defence_is_the_one_who_is_judged() -> None:
    known = {"informed_fraction": 0.65, "informed_low": 0.6, "informed_high": 0.7, "informed_by_kind": {"AO": 0.8}}
    found = parse_result(ROW | known, "run", "row 0")
    assert (found.estimated, found.low, found.high, found.by_kind) == (0.65, 0.6, 0.7, {"AO": 0.8})
    assert found.error == pytest.approx(0.01) and found.covered and found.learned == pytest.approx(0.09)
    assert found.unaware == 0.62 and found.unaware_error == pytest.approx(0.04)


@pytest.mark.parametrize("missing", [None, math.nan, "text", True])
def test_without_truth_nothing_is_known_of_the_error(missing: object) -> None:
    found = parse_result(ROW | {"true_fraction": missing}, "run", "row 0")
    assert (found.true, found.error, found.unaware_error, found.learned, found.covered) == (None,) * 5
    assert found.estimated == 0.62


def test_only_attack_and_property_have_to_be_there() -> None:
    found = parse_result({"attack": "aia", "property": "a=b"}, "run", "row 0")
    assert (found.setting, found.variant, found.adversary) == (Setting(), "", "")
    assert found.setting.defense == "none"
    for wrong in ({"attack": "aia"}, {"property": "a=b"}, [], None):
        with pytest.raises(UsageError, match="row 7: expected a mapping with the names"):
            parse_result(wrong, "run", "row 7")
