"""What follows from the shares of one row of a vertical audit."""

import math

import pytest

from lightleak.core.errors import UsageError
from lightleak.core.results import VerticalRow, read_row

ROW = {
    "kind": "vertical", "attack": "provfl_b", "property": "sex=Male", "true_fraction": 0.66, "low": 0.58, "high": 0.65,
    "estimated_fraction": 0.62, "by_kind": {"VG": 0.6, "AO": 0.7, "XX": 0.5}, "trained_fraction": 0.49,
    "own_columns_error": 0.1,
}  # fmt: skip


def read(**changes: object) -> VerticalRow:
    found = read_row(ROW | changes, "row 7")
    assert isinstance(found, VerticalRow)
    return found


def test_errors_follow_from_the_shares() -> None:
    found = read()
    assert found.error == found.unaware_error == pytest.approx(0.04)
    assert found.trained_error == pytest.approx(0.13) and found.learned == pytest.approx(0.06)
    assert found.kind_errors == {"AO": pytest.approx(0.04), "VG": pytest.approx(0.06)}  # in the order of the kinds
    assert found.ends == (0.58, 0.65) and found.covered is False
    assert read(high=0.66).covered is True


def test_who_knows_the_defense_is_the_one_who_is_judged() -> None:
    found = read(informed_fraction=0.65, informed_low=0.6, informed_high=0.7, informed_by_kind={"AO": 0.8})
    assert (found.estimated, found.ends, list(found.kind_errors)) == (0.65, (0.6, 0.7), ["AO"])
    assert found.error == pytest.approx(0.01) and found.covered and found.learned == pytest.approx(0.09)
    assert found.unaware_error == pytest.approx(0.04)


@pytest.mark.parametrize("missing", [None, math.nan])
def test_without_truth_nothing_is_known_of_the_error(missing: object) -> None:
    found = read(true_fraction=missing)
    assert (found.error, found.unaware_error, found.learned, found.covered) == (None,) * 4
    assert found.kind_errors == {} and found.estimated == 0.62


def test_only_attack_and_property_have_to_be_there() -> None:
    bare = read_row({"kind": "vertical", "attack": "aia", "property": "a=b"}, "row 7")
    assert isinstance(bare, VerticalRow)
    assert (bare.variant, bare.adversary, bare.is_undefended, bare.error) == ("", "", True, None)
    for wrong in ({"kind": "vertical", "attack": "aia"}, {"kind": "vertical", "property": "a=b"}):
        with pytest.raises(UsageError, match="row 7"):
            read_row(wrong, "row 7")
